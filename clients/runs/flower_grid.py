"""The one module that imports Flower: the Grid's nodes, their ClientApp, and a simulation of both.

`machine.engine = "flower"` without a SuperLink is a simulation, which ends with its run. Its
ServerApp only hands out the Grid. Actors of Ray execute ClientApps, and load data and model once.
"""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from queue import SimpleQueue
from typing import Any

import httpx
from flwr.app import Array, ArrayRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.common.constant import NUM_PARTITIONS_KEY, PARTITION_ID_KEY
from flwr.serverapp import Grid, ServerApp

from clients.configuration.loading import checked
from clients.configuration.schema import Configuration
from clients.runs.flower import NodeFailure, TrainingNode, UnansweredError, encode
from clients.training.port import TrainingError
from ledger.io.parsing import parse_toml
from ledger.protocol.errors import CmflError, ConfigurationError, EncodingError

TRAIN = "train"
_RECORD = "cmfl"
_FORM = "cmfl.bytes"


class GridNodes:
    """Nodes of a ServerApp's Grid."""

    def __init__(self, grid: Grid) -> None:
        self._grid = grid

    def online(self) -> Collection[int]:
        with _answering():
            return list(self._grid.get_node_ids())

    def send(self, node: int, message: bytes) -> str:
        with _answering():
            names = list(self._grid.push_messages([Message(_content(message), node, TRAIN)]))
        if len(names) != 1 or not names[0]:
            raise TrainingError(
                f"Flower's SuperLink does not take a message of {len(message)} bytes to node {node}"
            )
        return str(names[0])

    def answers(self, names: Collection[str]) -> dict[str, bytes | UnansweredError]:
        if not names:
            return {}
        with _answering():
            messages = list(self._grid.pull_messages(names))
        return {message.metadata.reply_to_message_id: _answer(message) for message in messages}


def read_message(message: Message) -> bytes:
    """Return the bytes in a message of Flower (EncodingError: it has none of ours)."""
    record: Any = message.content.get(_RECORD)
    if not isinstance(record, ArrayRecord) or set(record) != {_RECORD}:
        raise EncodingError("the message comes from another app; it has no bytes of cmfl")
    return bytes(record[_RECORD].data)


def reply_to(message: Message, answer: bytes) -> Message:
    """Return the message that answers another."""
    return Message(_content(answer), reply_to=message)


def _content(data: bytes) -> RecordDict:
    # Flower cuts arrays into chunks, and nothing else.
    array = Array(dtype="uint8", shape=(len(data),), stype=_FORM, data=data)
    return RecordDict({_RECORD: ArrayRecord({_RECORD: array})})


def _answer(message: Message) -> bytes | UnansweredError:
    if message.has_error():
        error = message.error
        return UnansweredError(f"Flower's error {error.code}: {error.reason or ''!s:.300}")
    try:
        return read_message(message)
    except EncodingError as error:
        return UnansweredError(str(error))


@contextmanager
def _answering() -> Iterator[None]:
    try:
        yield
    except (httpx.HTTPError, RuntimeError, ValueError) as error:
        raise TrainingError(
            f"Flower's SuperLink does not answer: {type(error).__name__} {error!s:.200}"
        ) from error


def training_app(node: Callable[[Context], TrainingNode]) -> ClientApp:
    """Return the app; `node` opens what answers, given the context of a message."""

    def answer(message: Message, context: Context) -> Message:
        names = (PARTITION_ID_KEY, NUM_PARTITIONS_KEY)
        partition, count = (context.node_config.get(name) for name in names)
        try:
            if type(partition) is not int or type(count) is not int or not 0 <= partition < count:
                raise ConfigurationError(
                    f"partition-id = {partition!r:.40} of num-partitions = {count!r:.40}: start "
                    f"each SuperNode with --node-config 'partition-id=0 num-partitions=4', the "
                    f"first 0 to 3"
                )
            answer = node(context).answer(read_message(message), partition, count)
        except CmflError as error:
            answer = encode(NodeFailure(str(error)))
        return reply_to(message, answer)

    app = ClientApp()
    app.train()(answer)
    return app


@contextmanager
def simulated_nodes(configuration: Configuration) -> Iterator[GridNodes]:
    """Simulate a SuperNode for each client of a run, on as many cores as it has workers."""
    text = configuration.to_toml()
    # The text travels with each message to an actor: the data and the model do not.
    app = training_app(lambda _: _opened(text))
    server, grids, is_over = ServerApp(), SimpleQueue[Any](), threading.Event()

    def hand_out(grid: Grid, context: Context) -> None:  # noqa: ARG001 - Flower's signature
        grids.put(grid)
        is_over.wait()

    server.main()(hand_out)
    with tempfile.TemporaryDirectory(prefix="cmfl-ray-") as folder:
        arguments = {
            "server_app": server,
            "client_app": app,
            "num_supernodes": configuration.protocol.clients,
            "backend_config": {
                "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
                "init_args": {
                    "num_cpus": configuration.machine.workers,
                    "include_dashboard": False,
                    "_temp_dir": folder,
                },
            },
        }
        thread = threading.Thread(target=_simulate, args=(arguments, grids), name="flower")
        thread.start()
        try:
            grid = grids.get(timeout=120)
            if isinstance(grid, Exception):
                raise TrainingError(f"Flower's simulation does not start: {grid}") from grid
            yield GridNodes(grid)
        finally:
            is_over.set()
            thread.join()


@cache
def _opened(text: str) -> TrainingNode:
    return TrainingNode(checked(parse_toml(text)))


def _simulate(arguments: dict[str, Any], grids: SimpleQueue[Any]) -> None:
    from flwr.simulation import run_simulation  # noqa: PLC0415 - it needs Ray

    try:
        run_simulation(**arguments)
    except Exception as error:  # noqa: BLE001 - what Flower and Ray raise is not documented
        with suppress(Exception):
            grids.put(error)
