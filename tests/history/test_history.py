"""What chain and blobs tell of one round, and of one client over all of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ledger.audit.history import RoundStatus, read_record, read_round, read_run
from ledger.audit.participation import client_rounds, ended_rounds, participation
from ledger.blobs.store import MemoryBlobs
from ledger.chain.contract.committee_ledger import RoundOpening
from ledger.chain.ports import NotServedError
from ledger.protocol.encoding import commitment_of, sha256
from ledger.protocol.types import ClientId, DropoutReason, IncidentKind
from tests.audit.blobs import ChangedBlobs
from tests.audit.forged_chain import forged
from tests.audit.runs import PARAMETERS, Deviation, Run

if TYPE_CHECKING:
    from pathlib import Path

    from ledger.audit.history import RoundHistory


def round_of(run: Run, number: int) -> RoundHistory:
    history = read_round(run.ledger, run.ledger.deployment(), number, run.blobs)
    assert history is not None
    return history


def test_tells_a_decided_round(honest: Run) -> None:
    history = round_of(honest, 1)
    assert (history.round, history.status) == (1, RoundStatus.DECIDED)
    assert history.record is not None
    assert history.decided is not None
    assert history.ended is not None
    assert len(history.trainers) == PARAMETERS.trainers
    malformed = next(
        d for d in history.record.dropouts if d.reason is DropoutReason.PAYLOAD_MALFORMED
    )
    assert history.payloads[malformed.client] == malformed.payload
    for client, payload in history.payloads.items():
        assert history.commitments[client] == commitment_of(client, payload)


def test_tells_what_went_wrong_while_voting(honest: Run) -> None:
    incidents = round_of(honest, 2).incidents
    assert incidents is not None
    assert [incident.kind for incident in incidents.incidents] == [IncidentKind.WRONG_PROPOSAL]
    assert round_of(honest, 1).incidents is None, "there was none"


def test_tells_an_abandoned_round_and_its_bans(honest: Run) -> None:
    history = round_of(honest, 3)
    assert (history.status, history.decided, history.record) == (RoundStatus.ABANDONED, None, None)
    assert history.abandoned is not None
    assert history.banned == (history.committee[0],)
    assert history.payloads == {}


def test_samples_without_the_banned_and_knows_empty_seats(honest: Run) -> None:
    banned = {ban.client for ban in honest.ledger.bans()}
    history = round_of(honest, 5)
    assert len(banned) == 2
    assert not banned.intersection(history.trainers)
    assert history.empty_seats == tuple(c for c in history.committee if c in banned)
    assert len(history.empty_seats) == 1
    assert round_of(honest, 4).empty_seats == ()


def test_tells_an_open_round_and_none_that_has_not_opened(tmp_path: Path) -> None:
    run = Run.opened(tmp_path)
    with run.chain:
        sizes = run.ledger.deployment()
        history = read_round(run.ledger, sizes, 1)
        assert history is not None
        assert (history.status, history.ended) == (RoundStatus.OPEN, None)
        assert read_round(run.ledger, sizes, 2) is None


def test_there_is_no_round_after_the_last(honest: Run) -> None:
    assert read_round(honest.ledger, honest.ledger.deployment(), 6) is None


def test_a_ledger_that_drew_no_committee_has_no_further_round(
    honest: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    short = RoundOpening(5, (ClientId(1),), sha256(b"a seed"), 9)
    monkeypatch.setattr(honest.ledger, "opening", lambda _round, _block: short)
    assert read_round(honest.ledger, honest.ledger.deployment(), 5) is None


def test_documents_that_are_missing_or_bogus_are_none(honest: Run) -> None:
    event = honest.outcome(2)
    gone = ChangedBlobs(honest.blobs, {event.record: None, event.incidents: b"nothing"})
    history = read_round(honest.ledger, honest.ledger.deployment(), 2, gone)
    assert history is not None
    assert (history.record, history.incidents) == (None, None)
    assert read_record(MemoryBlobs(), event.record) is None
    assert read_run(MemoryBlobs(), event.record) is None
    assert read_run(honest.blobs, honest.ledger.deployment().config) == honest.document


def test_incidents_of_other_inputs_are_none(tmp_path: Path) -> None:
    run = Run.opened(tmp_path)
    with run.chain:
        run.play(Deviation(incidents_blob=lambda _, run: run.incidents_of(sha256(b"others"))))
        assert round_of(run, 1).incidents is None


def test_counts_what_each_client_did(honest: Run) -> None:
    ended = ended_rounds(honest.ledger)
    counts = participation(honest.ledger, ended)
    assert [entry.client for entry in counts] == list(range(PARAMETERS.clients))
    assert sum(entry.served for entry in counts) == 5 * PARAMETERS.members
    assert sum(entry.trained for entry in counts) == 5 + 7 + 6 + 7
    assert [e.banned_in_round for e in counts if e.banned_in_round is not None] == [3, 4]
    assert counts[0].as_dict()["samples"] == 10
    for entry in counts:
        rows = client_rounds(ended, entry.client)
        assert sum(row.role == "member" for row in rows) == entry.served
        assert sum(row.accepted for row in rows) == entry.accepted
        assert all(set(row.as_dict()) >= {"round", "role", "rank"} for row in rows)


def test_a_node_that_gives_rounds_but_not_their_clients_is_not_believed(honest: Run) -> None:
    """One that lags behind between two answers has the later rounds and not the registrations."""
    ended = ended_rounds(honest.ledger)
    silent = forged(honest.ledger, logs_of=lambda _logs: [])
    with pytest.raises(NotServedError, match="they are not whole"):
        participation(silent, ended)


def test_events_of_no_round_are_passed_over(honest: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, ended = round_of(honest, 1), ended_rounds(honest.ledger)
    of_round, outcomes = honest.ledger.round_events, honest.ledger.outcomes
    first = honest.ledger.events(0, honest.chain.head().number)[:2]
    monkeypatch.setattr(honest.ledger, "round_events", lambda *args: [*first, *of_round(*args)])
    monkeypatch.setattr(honest.ledger, "outcomes", lambda **how: [*first, *outcomes(**how)])
    assert round_of(honest, 1) == whole
    assert ended_rounds(honest.ledger) == ended


def test_a_ledger_that_has_not_opened_has_no_rounds(
    honest: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(honest.ledger, "opening", lambda _round: None)
    monkeypatch.setattr(honest.ledger, "outcomes", lambda **_: [])
    assert ended_rounds(honest.ledger) == []
