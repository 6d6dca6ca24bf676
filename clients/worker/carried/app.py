"""The ClientApp beside an owner's worker."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from flwr.clientapp import ClientApp

from clients.runs.flower.grid_nodes import read_message, reply_to
from clients.worker.carried.exchange import NodeRefusal, encode_answer
from clients.worker.carried.node import answer_carrier
from ledger.protocol.errors import CmflError, ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable

    from flwr.app import Context, Message

CARRIED = "carried"


def carried_app(folder: Callable[[Context], Path] | None = None) -> ClientApp:
    """Return the app.

    Args:
        folder: returns the folder of carried objects; None for the node's own configuration.
    """
    place = _folder if folder is None else folder

    def exchange(message: Message, context: Context) -> Message:
        try:
            answer = answer_carrier(read_message(message), place(context))
        except CmflError as error:
            answer = encode_answer(NodeRefusal(str(error)))
        return reply_to(message, answer)

    app = ClientApp()
    app.train()(exchange)
    return app


def _folder(context: Context) -> Path:
    """Return the folder of carried objects.

    Raises:
        ConfigurationError: the node's configuration names none.
    """
    folder = context.node_config.get(CARRIED)
    if not isinstance(folder, str) or not Path(folder).is_absolute() or not Path(folder).is_dir():
        raise ConfigurationError(
            f"carried = {folder!r:.200}: start the SuperNode with --node-config "
            f"'carried=\"/an/absolute/folder\"', one that is there"
        )
    return Path(folder)
