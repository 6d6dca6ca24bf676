"""Nodes train what this process would train, also when they are lost, wrong or replaced."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from clients.configuration.loading import load
from clients.configuration.schema import Configuration
from clients.runs import flower as nodes_module
from clients.runs.flower import (
    MAX_OVERHEAD_BYTES,
    FlowerEngine,
    NodeDescription,
    NodeFailure,
    NodeQuery,
    TrainedPayloads,
    TrainingNode,
    TrainingRequest,
    decode,
    encode,
    run_digest,
)
from clients.runs.open_run import open_measure
from clients.runs.population import populate
from clients.training.port import Engine, TrainedUpdate, TrainingError, TrainingJob
from ledger.protocol.payloads import FLOAT32, PAYLOAD_FORMS
from ledger.protocol.types import Digest
from tests.clients.played import require_refused

JOBS = [TrainingJob(client, bytes([client]) * 32) for client in (5, 0, 3, 4)]
FLOWER, PLAIN = ("machine.engine=flower",), "training.path=plain"


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nodes_module, "_POLL_SECONDS", 0.0)


class ConnectedNodes:
    def __init__(self, nodes: dict[int, Callable[[bytes], bytes | None]]) -> None:
        self.nodes = nodes
        self.sent: list[tuple[int, bytes]] = []
        self._names = count()
        self._waiting: dict[str, tuple[int, bytes]] = {}

    def online(self) -> Collection[int]:
        return list(self.nodes)

    def send(self, node: int, message: bytes) -> str:
        name = str(next(self._names))
        self.sent.append((node, message))
        self._waiting[name] = node, message
        return name

    def answers(self, names: Collection[str]) -> dict[str, bytes | nodes_module.UnansweredError]:
        answers: dict[str, bytes | nodes_module.UnansweredError] = {}
        for name in names:
            node, message = self._waiting[name]
            if node not in self.nodes:
                answers[name] = nodes_module.UnansweredError("the node is gone")
            elif (answer := self.nodes[node](message)) is not None:
                answers[name] = answer
        for name in answers:
            del self._waiting[name]
        return answers


@dataclass(frozen=True)
class Flower:
    """A run's settings, its start, the engine of this process, and a node that trains for it."""

    configuration: Configuration
    start: np.ndarray
    local: Engine
    node: TrainingNode

    def answering(self, partition: int, partitions: int) -> Callable[[bytes], bytes]:
        return lambda message: self.node.answer(message, partition, partitions)

    def instead(self, answer: bytes) -> ConnectedNodes:
        def wrong(message: bytes) -> bytes:
            is_query = isinstance(decode(message, 10**6, NodeQuery, TrainingRequest), NodeQuery)
            return self.node.answer(message, 0, 1) if is_query else answer

        return ConnectedNodes({1: wrong})

    def trained(self, nodes: ConnectedNodes, jobs: list[TrainingJob] = JOBS) -> list[TrainedUpdate]:
        engine = FlowerEngine(self.local, nodes, self.configuration, len(self.start))
        return [update.copy() for update in engine.train(self.start, jobs)]


@pytest.fixture(scope="module", params=PAYLOAD_FORMS)
def flower(request: pytest.FixtureRequest) -> Iterator[Flower]:
    calibrated = str(request.param == FLOAT32.name).lower()
    settings = (f"protocol.payload={request.param}", f"training.calibrated={calibrated}", PLAIN)
    configuration = load("smoke", settings=settings)
    population, node = populate(configuration), TrainingNode(configuration)
    with open_measure(configuration, population, 4) as measure:
        yield Flower(configuration, population.initial, measure.gauge.engine, node)
    node.close()


def same(one: list[TrainedUpdate], other: list[TrainedUpdate]) -> bool:
    return [(u.client, u.payload.digest) for u in one] == [
        (u.client, u.payload.digest) for u in other
    ] and all(np.array_equal(a.vector, b.vector) for a, b in zip(one, other, strict=True))


def test_updates_are_those_of_this_process(flower: Flower) -> None:
    expected = [update.copy() for update in flower.local.train(flower.start, JOBS)]
    for partitions in (1, 3):
        nodes = ConnectedNodes({7 + i: flower.answering(i, partitions) for i in range(partitions)})
        assert same(flower.trained(nodes), expected)


def test_each_client_is_trained_by_its_partition(flower: Flower) -> None:
    nodes = ConnectedNodes({10: flower.answering(0, 2), 11: flower.answering(1, 2)})
    flower.trained(nodes)
    requests = {number: decode(data, 10**6, TrainingRequest) for number, data in nodes.sent[2:]}
    clients = {number: sent.clients for number, sent in requests.items()}
    assert clients == {10: (0, 4), 11: (5, 3)}


def test_a_replaced_node_gets_the_work_of_the_lost_one(flower: Flower) -> None:
    nodes = ConnectedNodes({1: flower.answering(0, 1)})

    def lost(message: bytes) -> bytes | None:
        if isinstance(decode(message, 10**6, NodeQuery, TrainingRequest), NodeQuery):
            return flower.node.answer(message, 0, 1)
        # It takes the work and is not heard of again; another node has its partition by then.
        nodes.nodes[2] = flower.answering(0, 1)
        return None

    nodes.nodes[1] = lost
    assert same(flower.trained(nodes), list(flower.local.train(flower.start, JOBS)))
    assert [number for number, _ in nodes.sent] == [1, 1, 2, 2]


@pytest.mark.parametrize(
    "answer",
    [
        b"nonsense",
        encode(TrainedPayloads(())),
        encode(TrainedPayloads((b"short",) * len(JOBS))),
        encode(NodeDescription(0, 1, "")),
        encode(NodeQuery(Digest(bytes(32)))),
    ],
    ids=["nonsense", "none", "short", "description", "request"],
)
def test_wrong_answers_end_the_call_after_a_few(flower: Flower, answer: bytes) -> None:
    nodes = flower.instead(answer)
    with pytest.raises(TrainingError, match="partition 0 failed"):
        flower.trained(nodes)
    assert len(nodes.sent) == 1 + nodes_module.MOST_FAILURES


def test_a_node_that_says_why_ends_the_call(flower: Flower) -> None:
    with pytest.raises(TrainingError, match="cannot train: no memory"):
        flower.trained(flower.instead(encode(NodeFailure("no memory"))))


def test_other_settings_at_a_node_are_refused(flower: Flower) -> None:
    settings = (f"protocol.payload={flower.configuration.protocol.payload}", "training.path=plain")
    other = TrainingNode(load("smoke", settings=(*settings, "training.local_steps=3")))
    with pytest.raises(TrainingError, match="run's settings differ"):
        flower.trained(ConnectedNodes({1: lambda m: other.answer(m, 0, 1)}))
    other.close()


def test_only_the_machine_may_differ_between_the_two() -> None:
    one = load("smoke", settings=("training.path=plain",))
    assert run_digest(one) == run_digest(load("smoke", settings=("training.path=plain", *FLOWER)))
    assert run_digest(one) != run_digest(load("smoke", settings=("training.path=plain", "seed=1")))


def test_nodes_that_count_differently_are_refused(flower: Flower) -> None:
    nodes = ConnectedNodes({1: flower.answering(0, 2), 2: flower.answering(1, 3)})
    with pytest.raises(TrainingError, match="num-partitions 2 and 3"):
        flower.trained(nodes)


def test_a_partition_without_a_node_ends_the_call(
    flower: Flower, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nodes_module, "NODE_SECONDS", 0.05)
    with pytest.raises(TrainingError, match="no SuperNode of partition 1"):
        flower.trained(ConnectedNodes({1: flower.answering(0, 2)}))
    with pytest.raises(TrainingError, match="no SuperNode responded"):
        flower.trained(ConnectedNodes({}))


@pytest.mark.parametrize("jobs", [[TrainingJob(99, bytes(32))], [TrainingJob(1, bytes(32))] * 2])
def test_wrong_jobs_are_refused_before_anything_is_sent(flower: Flower, jobs: Any) -> None:
    nodes = ConnectedNodes({})
    with pytest.raises(ValueError, match="client"):
        flower.trained(nodes, jobs)
    with pytest.raises(ValueError, match="start"):
        replace(flower, start=flower.start.astype(np.float64)).trained(nodes)


@pytest.mark.parametrize("message", [b"nonsense", encode(NodeFailure("an answer"))])
def test_a_node_answers_nonsense_with_a_sentence(flower: Flower, message: bytes) -> None:
    answer = decode(flower.node.answer(message, 0, 1), MAX_OVERHEAD_BYTES, NodeFailure)
    assert isinstance(answer, NodeFailure)


def test_a_message_larger_than_the_model_is_refused_by_a_node(flower: Flower) -> None:
    run = run_digest(flower.configuration)
    large = bytes(4 * len(flower.start) + MAX_OVERHEAD_BYTES)
    for model in (large, flower.start.tobytes()[4:]):
        message = encode(TrainingRequest(run, model, (), ()))
        answer = decode(flower.node.answer(message, 0, 1), MAX_OVERHEAD_BYTES, NodeFailure)
        assert isinstance(answer, NodeFailure)


def test_without_flower_an_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    require_refused(tmp_path / "home", load("smoke", settings=FLOWER), r"flwr\[simulation\]==")
    assert not (tmp_path / "home").exists()
