"""A worker finds its roles on the chain, does what they ask, and takes up where it was killed."""

from __future__ import annotations

import logging
from dataclasses import replace
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest

from clients.adversaries.faults import MemberFault, TrainerFault
from clients.worker.background import WorkPart
from clients.worker.status import WorkerCounters, WorkerState, worker_status
from ledger.actors.journal import first_round_key
from ledger.protocol.documents.envelope import EnvelopeKind
from ledger.protocol.encoding import u64
from ledger.protocol.errors import ChainError
from ledger.protocol.ledger_state import LedgerStage, RoundAbandoned
from ledger.protocol.types import Address, Phase
from tests.clients.worker.together import ROOMY, Together, hosted_by
from tests.faults import times
from tests.federation.worker_faults import WorkerFaults

ALL_FAULTS = (*MemberFault, *TrainerFault)
SOME_FAULTS = (
    MemberFault.FALSE_REFERENCE,
    MemberFault.WRONG_PROPOSAL,
    TrainerFault.LATE,
    TrainerFault.STRAY,
    TrainerFault.SELF_BAN,
)
ONE_ROUND = replace(ROOMY, rounds=1)
ABSTAINS = (
    "does not vote in round 1. Its vote journal started after the round's commitments had closed"
)


def test_separate_workers_decide_every_round(tmp_path: Path) -> None:
    together = Together(tmp_path, hosted_by(5)).play()
    assert together.ledger.state().stage is LedgerStage.FINISHED
    assert len(together.decided) == 3
    assert not together.ledger.bans()
    for place in together.places:
        assert place.worker is not None
        assert place.worker.is_finished
        assert not place.worker.can_act


@pytest.mark.parametrize("confirmations", [1, 3])
def test_blocks_that_are_not_final_are_not_acted_on(tmp_path: Path, confirmations: int) -> None:
    together = Together(tmp_path, hosted_by(3), ONE_ROUND, confirmations=confirmations)
    together.ledger.mine(confirmations)  # the block that opened the round is final
    # All commit in a block each, and the last of them closes the round.
    for number in range(3):
        together.step(number)
    announced = (together.ledger.domain, 1, EnvelopeKind.PAYLOAD)
    for number in range(3):
        together.step(number)
    assert not together.board.listed(*announced), "published before the inputs were closed"
    together.ledger.mine(confirmations)
    for number in range(3):
        together.step(number)
    assert together.board.listed(*announced)
    together.play()
    (event,) = together.decided
    assert len(event.ranking) == ROOMY.trainers


def test_a_round_closed_again_is_voted_on_by_new_inputs(tmp_path: Path) -> None:
    together = Together(tmp_path, hosted_by(2), ONE_ROUND)
    before = together.ledger.branch()
    for number in (0, 1, 0, 1):
        together.step(number)
    seats = together.worker(0).seats
    assert seats is not None
    assert seats.view is not None
    base = seats.view.inputs.closing.base
    # The chain takes the commitments back, and then has them in another order.
    together.ledger.become(before)
    for number in (1, 0):
        together.step(number)
    together.play()
    (event,) = together.decided
    assert event.base != base


def test_a_wrong_time_of_the_closing_block_is_read_again(tmp_path: Path) -> None:
    together = Together(tmp_path, hosted_by(2), ONE_ROUND)
    for number in (0, 1, 0, 1):
        together.step(number)
    for number in (0, 1):
        seats = together.worker(number).seats
        assert seats is not None
        assert seats.view is not None
        seats.view = replace(seats.view, closed_at=1e12)
    assert len(together.play().decided) == 1


def test_an_update_outlives_the_process_that_trained_it(tmp_path: Path) -> None:
    together = Together(tmp_path, hosted_by(2), ONE_ROUND)
    together.step(0)
    together.restart(0)
    together.step(0)
    trained = together.places[0].engine.trained
    assert trained
    assert set(trained.values()) == {1}
    together.play()
    assert len(together.decided[0].ranking) == ROOMY.trainers


def test_an_update_trained_elsewhere_is_stated_in_no_environment(tmp_path: Path) -> None:
    together = Together(tmp_path, hosted_by(2), ONE_ROUND)
    together.step(0)
    together.restart(0)
    place, other = together.places
    place.environment = replace(place.environment, torch="0.0.1+another")
    together.play()
    assert len(together.decided[0].ranking) == ROOMY.trainers, "the update is published"
    mail = together.board.listed(together.ledger.domain, 1, EnvelopeKind.ENVIRONMENT)
    assert {envelope.client for envelope in mail} <= set(other.clients)
    assert {envelope.body.environment for envelope in mail} == {other.environment}  # type: ignore[union-attr]


def test_an_update_that_the_disk_has_damaged_is_trained_again(tmp_path: Path) -> None:
    together = Together(tmp_path, hosted_by(2), ONE_ROUND)
    together.step(0)
    together.restart(0)
    kept = sorted(together.places[0].own.glob("*.update"))
    kept[0].write_bytes(kept[1].read_bytes())
    kept[1].write_bytes(b"")
    together.step(0)
    again = [client for client, n in together.places[0].engine.trained.items() if n == 2]
    assert again == sorted(int(path.name.split("-")[1]) for path in kept[:2])
    together.play()
    assert len(together.decided[0].ranking) == ROOMY.trainers, "its commitment is opened"


def test_a_worker_killed_at_every_envelope_still_ends_the_round(tmp_path: Path) -> None:
    together = Together(tmp_path, hosted_by(2), ONE_ROUND)
    for _ in range(200):
        together.step(0, left=1)  # it dies before it could say a second thing
        together.step(1)
        together.pass_time(0.5)
        if together.decided:
            break
    (event,) = together.decided
    assert len(event.ranking) == ROOMY.trainers
    assert not together.ledger.bans()


@pytest.mark.parametrize("knows", ["nothing", "another key", "another contract"])
@pytest.mark.parametrize("restarts", [1, 3])
def test_members_without_their_journal_sit_out_the_current_round(
    tmp_path: Path, restarts: int, knows: str, caplog: pytest.LogCaptureFixture
) -> None:
    together = Together(tmp_path, hosted_by(14), replace(ROOMY, rounds=2))
    for number in range(14):
        together.step(number)
    seat, other = together.ledger.opening(1).committee[:2]  # type: ignore[union-attr]
    lost = together.places[seat].journal
    lost.durable.clear()
    if knows == "another key":
        lost.durable |= together.places[other].journal.durable
    elif knows == "another contract":
        elsewhere = replace(together.ledger.domain, contract=Address(bytes(20)))
        lost.durable[first_round_key(elsewhere, seat)] = u64(0)
    for _ in range(restarts):
        together.restart(seat)
        together.step(seat)
    seats = together.worker(seat).seats
    assert seats is not None
    assert seats.abstaining == {seat}
    said = [one for one in caplog.messages if one.startswith(f"client {seat} {ABSTAINS}")]
    assert len(said) == restarts, "each start says so, once"
    while together.ledger.state().round == 1:
        together.play(1)
    mail = [
        e for kind in EnvelopeKind for e in together.board.listed(together.ledger.domain, 1, kind)
    ]
    kinds = {envelope.kind for envelope in mail if envelope.client == seat}
    assert kinds == {EnvelopeKind.PAYLOAD, EnvelopeKind.ENVIRONMENT}, "what is no vote, it may say"
    together.play()
    assert len(together.decided) == 2


@pytest.mark.parametrize("is_late", [True, False])
def test_a_fresh_member_abstains_only_after_the_window(
    tmp_path: Path, is_late: bool, caplog: pytest.LogCaptureFixture
) -> None:
    together = Together(tmp_path, hosted_by(14), replace(ROOMY, rounds=2))
    seat = together.ledger.opening(1).committee[0]  # type: ignore[union-attr]
    others = [number for number in range(14) if number != seat]
    for number in (*others, *others) if is_late else (seat, *others):
        together.step(number)
    if is_late:
        together.ledger.mine(ROOMY.commit_blocks + 1)
    for number in range(14):
        together.step(number)
    seats = together.worker(seat).seats
    assert seats is not None
    assert seats.abstaining == ({seat} if is_late else set())
    assert any(one.startswith(f"client {seat} {ABSTAINS}") for one in caplog.messages) is is_late
    missed = [one for one in caplog.messages if "round 1 took commitments in blocks" in one]
    assert len(missed) == is_late, "the worker that began late says so, once"


def test_an_unwritable_journal_is_reported_at_intervals_without_ending_workers(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    together = Together(tmp_path, hosted_by(14), ONE_ROUND)
    seat = together.ledger.opening(1).committee[0]  # type: ignore[union-attr]
    journal, mail, counts = (
        together.places[seat].journal,
        together.places[seat].mail,
        WorkerCounters(),
    )
    mail.held, turns = True, cycle(range(14))
    # It hears of a certificate of phase 1 when its disk is full: it cannot keep the moment.
    while len(together.board.listed(together.ledger.domain, 1, EnvelopeKind.REPLY)) < ROOMY.replies:
        if (number := next(turns)) == 0:
            together.pass_time()
        together.step(number)
    mail.held, journal.is_full = False, True
    with caplog.at_level(logging.WARNING, logger="clients.worker"):
        for _ in range(60):
            together.step(seat)
            counts.look(together.worker(seat))
            worker_status(together.worker(seat), counts, WorkerState.RUNNING, "0xabc")
            together.pass_time(0.25)
    assert len([one for one in caplog.messages if one.startswith("voting")]) == 1, "said once"
    assert 2 < together.worker(seat).failures.ongoing[WorkPart.VOTING].times < 15, "after pauses"
    assert not together.decided
    journal.is_full = False
    together.play()
    assert len(together.decided) == 1


def test_a_silent_mailbox_loses_no_mail(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    together = Together(tmp_path, hosted_by(3), ONE_ROUND)
    for number in range(3):
        together.step(number)
    mail = together.places[1].mail
    mail.fails = frozenset({EnvelopeKind.REPLY})
    with caplog.at_level(logging.WARNING, logger="clients.worker"):
        for _ in range(40):
            together.step(1)
            together.step(0)
            together.pass_time(0.1)
    assert len([one for one in caplog.messages if one.startswith("voting")]) == 1, "said once"
    mail.fails = frozenset()
    together.pass_time(4)
    together.step(1)
    seats = together.worker(1).seats
    assert seats is not None
    assert seats.view is not None
    board = together.board.listed(together.ledger.domain, 1, EnvelopeKind.PAYLOAD)
    assert set(seats.view.announced) == {envelope.client for envelope in board}


def test_a_primary_killed_after_a_lost_request_never_equivocates(tmp_path: Path) -> None:
    together = Together(tmp_path, hosted_by(14), ONE_ROUND)
    for _ in range(2):
        for number in range(14):
            together.step(number)
    opening = together.ledger.opening(1)
    assert opening is not None
    seats = together.worker(opening.committee[0]).seats
    assert seats is not None
    assert seats.view is not None
    primary = seats.view.primary(Phase.AGGREGATION, 0)
    slow = next(m for m in seats.view.inputs.participants.members if m != primary)
    together.places[slow].mail.loses = frozenset({EnvelopeKind.SCORES})
    together.places[primary].mail.loses = frozenset({EnvelopeKind.REQUEST})
    while not together.requests_of(primary):
        together.play(1)
    # Nobody has got the request, and a vector more has come: another record would be due now.
    together.places[slow].mail.loses = frozenset()
    together.restart(slow)
    together.step(slow)
    together.step(slow)
    together.restart(primary)
    together.step(primary)
    together.step(primary)
    assert len(together.requests_of(primary)) == 1
    together.places[primary].mail.loses = frozenset()
    together.play()
    assert len(together.decided) == 1
    assert together.decided[0].views[0] > 0, "its view has passed"


def test_a_round_that_nobody_decides_is_abandoned_once(tmp_path: Path) -> None:
    together = Together(tmp_path, hosted_by(5), replace(ONE_ROUND, deadline_blocks=30))
    for place in together.places:
        place.mail.held = True
    together.play()
    (event,) = together.ends
    assert isinstance(event, RoundAbandoned)
    opened = together.ledger.opening(1)
    assert opened is not None
    ended = together.ledger.outcomes(limit=1)[0].block_number
    assert 0 <= ended - opened.opened_block - 30 <= 2 * ROOMY.view_seconds * 4


@pytest.mark.parametrize("skew", [-400.0, -4.0, 4.0, 365 * 86400.0])
def test_a_wrong_clock_costs_no_more_than_its_owner(tmp_path: Path, skew: float) -> None:
    together = Together(tmp_path, hosted_by(5), ONE_ROUND)
    for place in together.places[::2]:
        place.skew = skew
    together.play()
    assert len(together.decided) == 1


def test_who_cannot_send_still_votes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    together = Together(tmp_path, hosted_by(2), ONE_ROUND)

    def unfunded(*_: object) -> object:
        raise ChainError("insufficient funds")

    for number in range(2):
        together.step(number)
    monkeypatch.setattr(together.ledger, "decide", unfunded)
    for _ in range(20):
        together.play(1)
    assert together.worker(0).failures.ongoing[WorkPart.SENDING].times > 1
    replies = together.board.listed(together.ledger.domain, 1, EnvelopeKind.REPLY)
    assert len(replies) >= ROOMY.replies
    assert together.ledger.state().stage is LedgerStage.OPEN
    monkeypatch.undo()
    together.play()
    assert len(together.decided) == 1


def test_an_equivocator_is_banned_and_its_worker_ends(tmp_path: Path) -> None:
    together = Together(tmp_path, hosted_by(14), ROOMY)
    seat = together.ledger.opening(1).committee[0]  # type: ignore[union-attr]
    together.corrupt(seat, WorkerFaults(of_members=MemberFault.EQUIVOCATING))
    together.play()
    assert {ban.client for ban in together.ledger.bans()} == {seat}
    worker = together.worker(seat)
    assert not worker.can_act
    assert len(together.ends) == 3


@pytest.mark.parametrize("fault", SOME_FAULTS if times(1, 2) == 1 else ALL_FAULTS)
def test_one_faulty_worker_does_not_stop_the_others(tmp_path: Path, fault: Any) -> None:
    together = Together(tmp_path, hosted_by(14), replace(ROOMY, rounds=1))
    seat = together.ledger.opening(1).committee[0]  # type: ignore[union-attr]
    if isinstance(fault, MemberFault):
        together.corrupt(seat, WorkerFaults(of_members=fault))
    else:
        together.corrupt(seat, WorkerFaults(of_trainers=fault))
    together.play()
    assert len(together.decided) == 1
    assert {ban.client for ban in together.ledger.bans()} <= {seat}
