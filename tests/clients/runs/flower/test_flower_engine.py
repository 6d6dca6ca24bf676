"""Nodes train what this process would train, also when they are lost, wrong or replaced."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from clients.configuration.loading import load
from clients.runs.flower import nodes as nodes_module
from clients.runs.flower.engine import FlowerEngine
from clients.runs.flower.messages import (
    MAX_OVERHEAD_BYTES,
    NodeDescription,
    NodeFailure,
    NodeQuery,
    TrainedPayloads,
    TrainingRequest,
    decode_answer,
    decode_request,
    encode_answer,
    encode_request,
)
from clients.runs.flower.opening import flower_engine
from clients.runs.flower.training_node import TrainingNode, run_digest
from clients.runs.open_run import open_memory_run
from clients.runs.population import populate
from clients.runs.preparation import open_measure
from clients.training.port import TrainingError, TrainingJob
from ledger.protocol.errors import ConfigurationError
from ledger.protocol.payload_forms import FLOAT32, PAYLOAD_FORMS
from ledger.protocol.types import Digest
from tests.clients.runs.flower.connected import ConnectedNodes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from clients.configuration.schema import Configuration
    from clients.training.port import Engine, TrainedUpdate

JOBS = [TrainingJob(client, bytes([client]) * 32) for client in (5, 0, 3, 4)]
FLOWER = ("machine.engine=flower",)


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nodes_module, "_POLL_SECONDS", 0.0)


@pytest.fixture(scope="module", params=PAYLOAD_FORMS)
def configuration(request: pytest.FixtureRequest) -> Configuration:
    settings = (
        f"protocol.payload={request.param}",
        "training.path=plain",
        f"training.calibrated={str(request.param == FLOAT32.name).lower()}",
    )
    return load("smoke", settings=settings)


@pytest.fixture(scope="module")
def node(configuration: Configuration) -> Iterator[TrainingNode]:
    opened = TrainingNode.open(configuration)
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def local(configuration: Configuration) -> Iterator[Engine]:
    with open_measure(configuration, populate(configuration), 4) as measure:
        yield measure.gauge.engine


@pytest.fixture(scope="module")
def start(configuration: Configuration) -> np.ndarray:
    return populate(configuration).initial


def answering(node: TrainingNode, partition: int, partitions: int) -> Callable[[bytes], bytes]:
    return lambda message: node.answer(message, partition, partitions)


def trained(
    configuration: Configuration,
    local: Engine,
    nodes: ConnectedNodes,
    start: np.ndarray,
    jobs: list[TrainingJob] = JOBS,
) -> list[TrainedUpdate]:
    parameters = configuration.parameters(len(start))
    with flower_engine(configuration, local, parameters, nodes) as engine:
        return [update.copy() for update in engine.train(start, jobs)]


def same(one: list[TrainedUpdate], other: list[TrainedUpdate]) -> bool:
    return [(u.client, u.payload.digest) for u in one] == [
        (u.client, u.payload.digest) for u in other
    ] and all(np.array_equal(a.vector, b.vector) for a, b in zip(one, other, strict=True))


def test_updates_are_those_of_this_process(
    configuration: Configuration, node: TrainingNode, local: Engine, start: np.ndarray
) -> None:
    expected = [update.copy() for update in local.train(start, JOBS)]
    for partitions in (1, 3):
        nodes = ConnectedNodes({7 + i: answering(node, i, partitions) for i in range(partitions)})
        assert same(trained(configuration, local, nodes, start), expected)


def test_each_client_is_trained_by_its_partition(
    configuration: Configuration, node: TrainingNode, local: Engine, start: np.ndarray
) -> None:
    nodes = ConnectedNodes({10: answering(node, 0, 2), 11: answering(node, 1, 2)})
    trained(configuration, local, nodes, start)
    requests = {number: decode_request(data, 10**6) for number, data in nodes.sent[2:]}
    clients = {
        number: [job.client for job in request.jobs]
        for number, request in requests.items()
        if isinstance(request, TrainingRequest)
    }
    assert clients == {10: [0, 4], 11: [5, 3]}


def test_a_replaced_node_gets_the_work_of_the_lost_one(
    configuration: Configuration, node: TrainingNode, local: Engine, start: np.ndarray
) -> None:
    nodes = ConnectedNodes({1: answering(node, 0, 1)})

    def lost(message: bytes) -> bytes | None:
        if isinstance(decode_request(message, 10**6), NodeQuery):
            return node.answer(message, 0, 1)
        # It takes the work and is not heard of again; another node has its partition by then.
        nodes.nodes[2] = answering(node, 0, 1)
        return None

    nodes.nodes[1] = lost
    assert same(trained(configuration, local, nodes, start), list(local.train(start, JOBS)))
    assert [number for number, _ in nodes.sent] == [1, 1, 2, 2]


@pytest.mark.parametrize(
    "answer",
    [
        b"nonsense",
        encode_answer(TrainedPayloads(())),
        encode_answer(TrainedPayloads((b"short",) * len(JOBS))),
        encode_answer(NodeDescription(0, 1, "")),
        encode_request(NodeQuery(Digest(bytes(32)))),
    ],
    ids=["nonsense", "none", "short", "description", "request"],
)
def test_wrong_answers_end_the_call_after_a_few(
    configuration: Configuration,
    node: TrainingNode,
    local: Engine,
    start: np.ndarray,
    answer: bytes,
) -> None:
    def wrong(message: bytes) -> bytes:
        is_query = isinstance(decode_request(message, 10**6), NodeQuery)
        return node.answer(message, 0, 1) if is_query else answer

    nodes = ConnectedNodes({1: wrong})
    with pytest.raises(TrainingError, match="partition 0 failed"):
        trained(configuration, local, nodes, start)
    assert len(nodes.sent) == 1 + nodes_module.MOST_FAILURES


def test_a_node_that_says_why_ends_the_call(
    configuration: Configuration, node: TrainingNode, local: Engine, start: np.ndarray
) -> None:
    def failing(message: bytes) -> bytes:
        is_query = isinstance(decode_request(message, 10**6), NodeQuery)
        return node.answer(message, 0, 1) if is_query else encode_answer(NodeFailure("no memory"))

    with pytest.raises(TrainingError, match="cannot train: no memory"):
        trained(configuration, local, ConnectedNodes({1: failing}), start)


def test_other_settings_at_a_node_are_refused(configuration: Any, local: Any, start: Any) -> None:
    settings = (f"protocol.payload={configuration.protocol.payload}", "training.path=plain")
    other = TrainingNode.open(load("smoke", settings=(*settings, "training.local_steps=3")))
    with pytest.raises(TrainingError, match="settings of the run differ"):
        trained(configuration, local, ConnectedNodes({1: answering(other, 0, 1)}), start)
    other.close()


def test_only_the_machine_may_differ_between_the_two() -> None:
    one = load("smoke", settings=("training.path=plain",))
    assert run_digest(one) == run_digest(load("smoke", settings=("training.path=plain", *FLOWER)))
    assert run_digest(one) != run_digest(load("smoke", settings=("training.path=plain", "seed=1")))


def test_nodes_that_count_differently_are_refused(
    configuration: Configuration, node: TrainingNode, local: Engine, start: np.ndarray
) -> None:
    nodes = ConnectedNodes({1: answering(node, 0, 2), 2: answering(node, 1, 3)})
    with pytest.raises(TrainingError, match="2 and 3 as num-partitions"):
        trained(configuration, local, nodes, start)


def test_a_partition_without_a_node_ends_the_call(
    configuration: Configuration, node: TrainingNode, local: Engine, start: np.ndarray
) -> None:
    parameters, run = configuration.parameters(len(start)), run_digest(configuration)
    nodes = ConnectedNodes({1: answering(node, 0, 2)})
    engine = FlowerEngine(local, nodes_module.Partitions(nodes, run, 0.05), run, parameters)
    with pytest.raises(TrainingError, match="no SuperNode of partition 1"):
        engine.train(start, JOBS)
    nobody = nodes_module.Partitions(ConnectedNodes({}), run, 0.05)
    with pytest.raises(TrainingError, match="no SuperNode has answered"):
        FlowerEngine(local, nobody, run, parameters).train(start, JOBS)


def test_a_node_that_cannot_say_what_it_is_is_left_alone_until_it_connects_anew(
    configuration: Configuration,
    node: TrainingNode,
    start: np.ndarray,
    caplog: pytest.LogCaptureFixture,
) -> None:
    run = run_digest(configuration)
    nodes = ConnectedNodes({1: answering(node, 0, 1), 2: lambda _message: b"nonsense"})
    partitions = nodes_module.Partitions(nodes, run, 0.05)

    def asked() -> int:
        for _ in range(10):
            partitions.ask({0: encode_request(NodeQuery(run))}, lambda _partition, _answer: None)
        return sum(to == 2 for to, _ in nodes.sent)

    assert asked() == asked() == nodes_module.MOST_FAILURES
    assert caplog.text.count("node 2 is not asked again") == 1
    stuck = nodes.nodes.pop(2)
    asked()
    nodes.nodes[2] = stuck
    assert asked() == 2 * nodes_module.MOST_FAILURES


@pytest.mark.parametrize("jobs", [[TrainingJob(99, bytes(32))], [TrainingJob(1, bytes(32))] * 2])
def test_wrong_jobs_are_refused_before_anything_is_sent(
    configuration: Configuration, local: Engine, start: np.ndarray, jobs: list[TrainingJob]
) -> None:
    nodes = ConnectedNodes({})
    with pytest.raises(ValueError, match="client"):
        trained(configuration, local, nodes, start, jobs)
    with pytest.raises(ValueError, match="start"):
        trained(configuration, local, nodes, start.astype(np.float64))


@pytest.mark.parametrize("message", [b"nonsense", encode_answer(NodeFailure("an answer"))])
def test_a_node_answers_nonsense_with_a_sentence(node: TrainingNode, message: bytes) -> None:
    answer = decode_answer(node.answer(message, 0, 1), MAX_OVERHEAD_BYTES)
    assert isinstance(answer, NodeFailure)


def test_a_message_larger_than_the_model_is_refused_by_a_node(
    configuration: Configuration, node: TrainingNode, start: np.ndarray
) -> None:
    run = run_digest(configuration)
    large = bytes(4 * len(start) + MAX_OVERHEAD_BYTES)
    for model in (large, start.tobytes()[4:]):
        message = encode_request(TrainingRequest(run, model, ()))
        answer = decode_answer(node.answer(message, 0, 1), MAX_OVERHEAD_BYTES)
        assert isinstance(answer, NodeFailure)


def test_without_flower_a_sentence_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with (
        pytest.raises(ConfigurationError, match=r"flwr\[simulation\]=="),
        open_memory_run(tmp_path / "home", "run", load("smoke", settings=FLOWER)),
    ):
        pass
    assert not (tmp_path / "home").exists()
