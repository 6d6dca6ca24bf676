"""What a run of CMFL sends, counted while it is played."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

import pytest

from clients.configuration.loading import load
from clients.experiments.costs import CommitteeTraffic, RoundTraffic
from clients.runs.open_run import open_memory_run
from ledger.protocol.documents.envelope import EnvelopeKind, encode_envelope
from ledger.storage.mailbox import MemoryMailbox
from tests.clients.played import FIVE_MEMBERS

if TYPE_CHECKING:
    from pathlib import Path

    from clients.runs.metrics import RoundMetrics
    from ledger.protocol.documents.envelope import Envelope
    from ledger.protocol.types import ClientId

CONFIGURATION = load("smoke", settings=("machine.ledger=memory", "protocol.rounds=2"))
"""Ten active clients, four of them members, and a model of 650 numbers: 2,600 bytes."""


class Board(MemoryMailbox):
    """A mailbox that remembers how many bytes came into it, by round, client and phase."""

    def __init__(self) -> None:
        super().__init__()
        self.sizes: defaultdict[tuple[int, ClientId, bool], int] = defaultdict(int)

    def put(self, envelope: Envelope) -> bool:
        is_first = envelope.kind is EnvelopeKind.PAYLOAD
        self.sizes[envelope.round, envelope.client, is_first] += len(encode_envelope(envelope))
        return super().put(envelope)


@pytest.fixture
def board(monkeypatch: pytest.MonkeyPatch) -> Board:
    """The mailbox of the runs of a test."""
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


def test_faulty_members_and_abandoned_rounds_are_counted_too(tmp_path: Path) -> None:
    settings = (
        *FIVE_MEMBERS,
        "seed=13",
        "machine.ledger=memory",
        "protocol.rounds=3",
        "protocol.commit_blocks=1",
        "protocol.deadline_blocks=3",
        "malice.members.silent=4",
        "malice.members.equivocating=2",
    )
    with open_memory_run(tmp_path, "run", load("smoke", settings=settings)) as run:
        traffic = CommitteeTraffic(run.population.model.dimension)
        run.simulation.on_step = traffic.take
        rows = run.go_on(traffic.close)
        assert len(run.ledger.bans()) > 0
    assert {row.decided for row in rows} == {True, False}
    for row, one in zip(rows, traffic.rounds, strict=True):
        # A model goes out with a decision alone.
        assert (one.sent["decision"].total() > 2600) == row.decided
