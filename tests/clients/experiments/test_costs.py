"""Bytes of a round, counted while it is played, and simulated time from rows."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from clients.configuration.loading import load
from clients.experiments.baselines import federated_traffic
from clients.experiments.costs import (
    CommitteeTraffic,
    RoundTraffic,
    Transmission,
    computation_of,
    recorded_traffic,
    solo_training_seconds,
    time_axis,
    transfers,
    transmission_of,
)
from clients.experiments.definition import MethodKindName
from clients.experiments.rows import CellRow, CellSeconds
from clients.runs.metrics import RoundMetrics
from clients.runs.open_run import open_memory_run
from ledger.protocol.documents.envelope import Envelope, EnvelopeKind, encode_envelope
from ledger.protocol.errors import ConfigurationError
from ledger.protocol.types import ClientId
from ledger.storage.mailbox import MemoryMailbox
from tests.clients.experiments.made_up import cell

TEXT, AUTHORS, COUNTED = Transmission

MODEL = 125_000  # two rounds with C = 2 and n = 3; a model takes a second at 1 Mbit/s
SIZES = {"committee": 2, "trainers": 3}


def row(
    kind: MethodKindName, seconds: CellSeconds, extra: Mapping[str, Any] | None = None
) -> CellRow:
    sent = {"model": MODEL, "by_round": [2 * MODEL, 4 * MODEL]}
    extra = SIZES if extra is None else dict(extra)
    return cell(kind, 0, (0.1, 0.2), kind=kind, seconds=seconds, bytes=sent, extra=extra)


NO_WORK = CellSeconds(wall=1, cpu=1, training=0)


@pytest.mark.parametrize(
    ("kind", "text", "authors"),
    [
        ("federated", (2, 4), (2, 4)),
        ("cmfl", (5, 10), (3, 6)),
        ("brain-torrent", (3, 6), (3, 6)),
        ("gossip", (2, 4), (2, 4)),
    ],
)
def test_time_is_transmission_where_nothing_is_computed(kind: Any, text: Any, authors: Any) -> None:
    one = row(kind, NO_WORK)
    assert time_axis(one, TEXT, rate=1) == text
    assert time_axis(one, AUTHORS, rate=1) == authors
    assert time_axis(one, COUNTED, rate=1) == (2, 6)
    assert transmission_of(one, COUNTED, rate=10) == (0.2, 0.4)


def test_each_client_computes_its_share_beside_the_others() -> None:
    work = CellSeconds(wall=99, cpu=99, training=60, scoring=30, ledger=8)
    # Two rounds: of 5 clients that train and a whole committee's scores; of n = 3 and a server; of
    # 5 and the initiator again, one merge; of 5, and as many merges.
    assert computation_of(row("cmfl", work)) == 6 + 15
    assert computation_of(row("federated", work)) == 10 + 15
    assert computation_of(row("brain-torrent", work)) == 2 * 5 + 15
    assert computation_of(row("gossip", work)) == 6 + 3
    assert computation_of(row("federated", work, SIZES | {"participants": 5})) == 6 + 15


def test_computation_and_transmission_add_up_round_by_round() -> None:
    work = CellSeconds(wall=99, cpu=99, training=10, scoring=1, ledger=4)
    # Training 10 / (2 * 5), scoring 1 / 2; then 2 and 4 s on the wire.
    assert time_axis(row("cmfl", work), COUNTED, rate=1) == (3.5, 9.0)


def test_given_training_times_are_equal_for_all_methods() -> None:
    work = CellSeconds(wall=99, cpu=99, training=60)
    alone = solo_training_seconds(
        [row("gossip", work), row("brain-torrent", work), row("cmfl", work)]
    )
    assert alone == (60 / 10 + 60 / 12) / 2
    assert solo_training_seconds([row("cmfl", work)]) is None
    assert time_axis(row("cmfl", work), COUNTED, rate=1, training=1) == (3, 8)
    assert time_axis(row("brain-torrent", work), COUNTED, rate=1, training=1) == (4, 10)


def test_rows_that_do_not_say_what_is_needed_are_refused() -> None:
    untimed = row("cmfl", CellSeconds(wall=1, cpu=1))
    with pytest.raises(ConfigurationError, match="cell cmfl__seed0: its training was not timed"):
        time_axis(untimed, TEXT, rate=1)
    with pytest.raises(ConfigurationError, match="kind 'theorem' sends nothing"):
        transmission_of(row("theorem", NO_WORK), TEXT, rate=1)
    with pytest.raises(ConfigurationError, match="not counted in every round"):
        transmission_of(replace(row("cmfl", NO_WORK), bytes={}), TEXT, rate=1)
    with pytest.raises(ConfigurationError, match="not counted in every round"):
        transmission_of(replace(row("cmfl", NO_WORK), bytes={"by_round": [1]}), COUNTED, rate=1)
    for wrong in (None, 0, True, 2.0):
        with pytest.raises(ConfigurationError, match=f"extra.committee = {wrong} must be at"):
            transmission_of(row("cmfl", NO_WORK, SIZES | {"committee": wrong}), TEXT, rate=1)


A, B, C = map(ClientId, range(3))


def test_a_round_waits_for_the_busier_direction_of_each_phase_s_busiest_link() -> None:
    traffic = RoundTraffic("ask", "nothing", "send")
    traffic.ask("ask", A, B, question=8, answer=100)
    traffic.ask("ask", A, C, question=8, answer=50)
    traffic.move("send", B, C, 70)
    assert traffic.received["ask"] == {A: 150, B: 8, C: 8}
    assert traffic.sent["ask"] == {A: 16, B: 100, C: 50}
    assert traffic.phases == {"ask": 150, "nothing": 0, "send": 70}
    assert (traffic.busiest, traffic.requests) == (220, 2)


def test_a_row_keeps_plain_sums_over_the_run() -> None:
    two = [federated_traffic((A, C), dimension=100), federated_traffic((B, C), dimension=100)]
    assert recorded_traffic(two, dimension=100) == {
        "model": 400,
        "busiest": 1616,
        "phases": {"model": 800, "updates": 816},
        "sent": 1632,
        "received": 1600,
        "requests": 0,
        "by_round": [808, 808],
        "clients": [0, 1, 2],
        "client_sent": [408, 408, 816],
        "client_received": [400, 400, 800],
    }


@pytest.mark.parametrize(
    ("kind", "text", "authors"),
    [("federated", 2, 2), ("cmfl", 43 + 65, 43 + 1), ("brain-torrent", 65, 65), ("gossip", 64, 64)],
)
def test_the_transfers_of_the_paper_s_sizes(kind: str, text: int, authors: int) -> None:
    assert transfers(kind, TEXT, committee=43, trainers=65) == text
    assert transfers(kind, AUTHORS, committee=43, trainers=65) == authors


@pytest.mark.parametrize("rate", [0.0, -1.0, math.nan, math.inf])
def test_a_rate_that_is_not_above_zero_is_refused(rate: float) -> None:
    with pytest.raises(ConfigurationError, match=r"rate = .* Mbit/s: must be above 0"):
        transmission_of(row("cmfl", NO_WORK), COUNTED, rate)


CONFIGURATION = load("smoke", settings=("machine.ledger=memory", "protocol.rounds=2"))
"""Ten active clients, four of them members, and a model of 650 numbers: 2,600 bytes."""


class Board(MemoryMailbox):
    def __init__(self) -> None:
        super().__init__()
        self.sizes: defaultdict[tuple[int, ClientId, bool], int] = defaultdict(int)

    def put(self, envelope: Envelope) -> bool:
        is_first = envelope.kind is EnvelopeKind.PAYLOAD
        self.sizes[envelope.round, envelope.client, is_first] += len(encode_envelope(envelope))
        return super().put(envelope)


@pytest.fixture
def board(monkeypatch: pytest.MonkeyPatch) -> Board:
    made = Board()
    monkeypatch.setattr("clients.runs.open_run.MemoryMailbox", lambda: made)
    return made


def played(home: Path) -> list[tuple[RoundMetrics, RoundTraffic]]:
    """Play two rounds, and return each with what it sent."""
    with open_memory_run(home, "run", CONFIGURATION) as run:
        traffic = CommitteeTraffic(run.population.model.dimension)
        run.simulation.on_step = traffic.take
        rows = run.go_on(traffic.close)
    return list(zip(rows, traffic.rounds, strict=True))


def test_the_traffic_of_every_phase_is_counted_from_messages(tmp_path: Path, board: Board) -> None:
    rounds = played(tmp_path)
    assert len(rounds) == 2
    for row, traffic in rounds:
        sent, received = traffic.sent, traffic.received
        active = sorted((*row.trained, *row.served))
        posted = {
            (c, first): board.sizes[row.round, c, first] for c in active for first in (True, False)
        }

        assert received["model"] == dict.fromkeys(active, 2600), "one model down"
        # A selector and nine words: round, two offsets, two lengths, client, commitment, r, vs.
        assert sent["commitments"] == dict.fromkeys(active, 4 + 9 * 32)
        # One update up, not one for every member.
        assert sent["updates"] == {client: 2600 + posted[client, True] for client in active}

        # A member reads those of all others, C - 1 + n = 9.
        assert sorted(received["reading"]) == sorted(row.served)
        for member, read in received["reading"].items():
            others = [client for client in active if client != member]
            assert len(others) == 9
            assert read == sum(2600 + posted[client, True] for client in others)
            said = sum(posted.get((client, False), 0) for client in others)
            assert received["votes"][member] == said
            assert sent["votes"][member] >= posted[member, False] > 0
        # Who leads stores the record and the vectors once; all others only speak.
        stored = [m for m in row.served if sent["votes"][m] > posted[m, False]]
        assert len(stored) == 1

        ((settler, size),) = sent["decision"].items()
        assert settler in row.served
        assert size > 2600 + 1000, "a model, and the decision's call data"
        assert traffic.busiest > (1 + 1 + 9 + 1) * 2600


def test_counting_a_runs_traffic_does_not_change_its_heads(tmp_path: Path) -> None:
    counted = [row.head for row, _ in played(tmp_path / "counted")]
    with open_memory_run(tmp_path / "plain", "run", CONFIGURATION) as run:
        assert [row.head for row in run.go_on(lambda _: None)] == counted
