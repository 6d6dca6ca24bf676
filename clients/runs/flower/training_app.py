"""The ClientApp of nodes that train: it answers each message by what its process has opened."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from flwr.app import Context, Message
from flwr.clientapp import ClientApp
from flwr.common.constant import NUM_PARTITIONS_KEY, PARTITION_ID_KEY

from clients.runs.flower.grid_nodes import read_message, reply_to
from clients.runs.flower.nodes import NodeFailure, encode_answer
from ledger.protocol.errors import CmflError, ConfigurationError

if TYPE_CHECKING:
    from clients.runs.flower.training_node import TrainingNode


def training_app(node: Callable[[Context], TrainingNode]) -> ClientApp:
    """Return the app.

    Args:
        node: opens what answers, once in a process; takes the context of a message.
    """

    def answer(message: Message, context: Context) -> Message:
        try:
            place = _partition(context)
            answer = node(context).answer(read_message(message), *place)
        except CmflError as error:
            answer = encode_answer(NodeFailure(str(error)))
        return reply_to(message, answer)

    app = ClientApp()
    app.train()(answer)
    return app


def _partition(context: Context) -> tuple[int, int]:
    """Return the number of a node, and how many there are."""
    names = (PARTITION_ID_KEY, NUM_PARTITIONS_KEY)
    partition, partitions = (context.node_config.get(name) for name in names)
    if type(partition) is not int or type(partitions) is not int or not 0 <= partition < partitions:
        raise ConfigurationError(
            f"partition-id = {partition!r:.40} of num-partitions = {partitions!r:.40}: start each "
            f"SuperNode with --node-config 'partition-id=0 num-partitions=4', the first 0 to 3"
        )
    return partition, partitions
