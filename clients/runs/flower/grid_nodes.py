"""The nodes behind the Grid of a ServerApp, and messages as Flower carries them."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

import httpx
from flwr.app import Array, ArrayRecord, Message, RecordDict

from clients.runs.flower.nodes import UnansweredMessage
from clients.training.port import TrainingError
from ledger.protocol.errors import EncodingError

if TYPE_CHECKING:
    from flwr.serverapp import Grid

TRAIN = "train"
_RECORD = "cmfl"
_FORM = "cmfl.bytes"


class GridNodes:
    """Nodes of a ServerApp's Grid."""

    def __init__(self, grid: Grid) -> None:
        self._grid = grid

    def online(self) -> Collection[int]:
        """Return the numbers of the connected nodes; TrainingError if the SuperLink is silent."""
        try:
            return list(self._grid.get_node_ids())
        except (httpx.HTTPError, RuntimeError) as error:
            raise TrainingError(_lost(error)) from error

    def send(self, node: int, message: bytes) -> str:
        """Send a message, and return its name."""
        content = RecordDict({_RECORD: _record(message)})
        try:
            names = list(self._grid.push_messages([Message(content, node, TRAIN)]))
        except (httpx.HTTPError, RuntimeError, ValueError) as error:
            raise TrainingError(_lost(error)) from error
        if len(names) != 1 or not names[0]:
            raise TrainingError(
                f"Flower's SuperLink does not take a message of {len(message)} bytes to node {node}"
            )
        return str(names[0])

    def answers(self, names: Collection[str]) -> dict[str, bytes | UnansweredMessage]:
        """Return the answers that have come; TrainingError if the SuperLink is silent."""
        if not names:
            return {}
        try:
            messages = list(self._grid.pull_messages(names))
        except (httpx.HTTPError, RuntimeError) as error:
            raise TrainingError(_lost(error)) from error
        return {message.metadata.reply_to_message_id: _answer(message) for message in messages}


def read_message(message: Message) -> bytes:
    """Return the bytes in a message of Flower (EncodingError: it has none of ours)."""
    record: Any = message.content.get(_RECORD)
    if not isinstance(record, ArrayRecord) or set(record) != {_RECORD}:
        raise EncodingError("a message of another app: it has no bytes of cmfl")
    return bytes(record[_RECORD].data)


def reply_to(message: Message, answer: bytes) -> Message:
    """Return the message that answers another."""
    return Message(RecordDict({_RECORD: _record(answer)}), reply_to=message)


def _record(data: bytes) -> ArrayRecord:
    # Flower cuts arrays into chunks, and nothing else.
    array = Array(dtype="uint8", shape=(len(data),), stype=_FORM, data=data)
    return ArrayRecord({_RECORD: array})


def _answer(message: Message) -> bytes | UnansweredMessage:
    if message.has_error():
        error = message.error
        return UnansweredMessage(f"Flower's error {error.code}: {error.reason or ''!s:.300}")
    try:
        return read_message(message)
    except EncodingError as error:
        return UnansweredMessage(error)


def _lost(error: Exception) -> str:
    return f"Flower's SuperLink does not answer: {type(error).__name__} {error!s:.200}"
