"""A run decides what the paper says, survives every fault, and is the same however it is cut."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from clients.adversaries.faults import MemberFault, TrainerFault
from clients.training.jobs import evaluate
from ledger.audit.engine import audit
from ledger.chain.contract.codec import DecideCall
from ledger.protocol import ledger_state
from ledger.protocol.encoding import sha256, word_client, word_distance
from ledger.protocol.errors import ChainError
from ledger.protocol.inputs import drawn_committee, primary_seat
from ledger.protocol.parameters import majority
from ledger.protocol.rules.selection import elect
from ledger.protocol.signing import is_signed_by
from ledger.protocol.types import (
    ClientId,
    Digest,
    DropoutReason,
    IncidentKind,
    Phase,
    RefusalReason,
    VoteKind,
)
from tests.clients.played import FIVE_MEMBERS, Played, Player, playing
from tests.seeds import first_that_shows

# Its first round is abandoned; in the other two every fault of a member is noticed.
ALL_FAULTS = (
    *FIVE_MEMBERS,
    "seed=6",
    "protocol.rounds=3",
    "protocol.deadline_blocks=6",
    "malice.members.silent=2",
    "malice.members.equivocating=2",
    "malice.members.false-scores=1",
    "malice.members.wrong-proposal=1",
    "malice.trainers.not-finite=1",
    "malice.trainers.silent=1",
)

TWO_ROUNDS = ("protocol.rounds=2",)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Played]:
    """One run with all faults, played at one go; nobody may change it."""
    with playing(tmp_path_factory.mktemp("whole")) as player:
        yield player.play(*ALL_FAULTS)


@pytest.fixture(scope="module")
def two_rounds(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Player]:
    """A home with a finished run of two rounds, of which every test takes a copy."""
    with playing(tmp_path_factory.mktemp("two")) as player:
        player.play(*TWO_ROUNDS)
        yield player


@pytest.fixture
def finished(two_rounds: Player, tmp_path: Path) -> Player:
    """A finished run in a home of its own; its chain is the one of the other copies."""
    shutil.copytree(two_rounds.home / "runs", tmp_path / "runs")
    return replace(two_rounds, home=tmp_path)


def model_before(played: Played, number: int) -> Digest:
    decided = (played.decided(earlier) for earlier in range(number - 1, 0, -1))
    return next((e.model for e in decided if e), played.ledger.deployment().model)


def floats(played: Played, digest: Digest) -> NDArray[np.float32]:
    return np.frombuffer(played.blobs.get(digest), dtype="<f4")


def misbehaving(played: Played, fault: MemberFault) -> set[ClientId]:
    return {c for c, found in played.population.member_faults.items() if found is fault}


@pytest.mark.parametrize("strategy", [1, 2])
def test_a_round_can_be_recomputed_from_chain_and_blobs(player: Player, strategy: int) -> None:
    settings = (f"protocol.strategy={strategy}", "protocol.rounds=2")
    played = player.play(*settings, "malice.attack=back-gradient", "malice.malicious_rate=0.3")
    participants = played.participants(2)
    committee, trainers = participants.committee, participants.trainers
    event = played.decided(2)
    assert event is not None
    payloads = played.record(2).payloads()
    assert set(payloads) == set(played.commitments(2)) == {*trainers, *committee}
    updates = {c: floats(played, payload).astype(np.float64) for c, payload in payloads.items()}
    table = {
        (k, c): float(((updates[k] - updates[c]) ** 2).sum()) for k in updates for c in committee
    }
    distances = {k: float(np.mean([table[k, c] for c in committee])) for k in trainers}
    order = sorted(trainers, key=lambda k: (distances[k], k))
    assert [word_client(word) for word in event.ranking] == order
    published = [word_distance(word) for word in event.ranking]
    # Sums of 650 squares in another order: relative 1e-9, as an auditor allows.
    np.testing.assert_allclose(published, [distances[k] for k in order], rtol=1e-9)
    accepted = order[:3] if strategy == 1 else order[-3:]
    assert list(event.accepted) == accepted
    # The middle 4 of 6: places floor((6 - 4) / 2) = 1 to 4. Strategy III draws.
    stand = order[: max(4, len(accepted))] if strategy == 3 else order[1:5]
    assert event.next_committee == elect(stand, 4, event.next_seed)
    samples = {k: played.population.data.sample_counts[k] for k in accepted}
    step = np.zeros(650)
    for k in sorted(accepted):
        step = step + (samples[k] / sum(samples.values())) * updates[k]
    model = floats(played, model_before(played, 2)).astype(np.float64) - 1.0 * step
    assert event.model == sha256(model.astype("<f4").tobytes())


def test_every_certificate_carries_the_primary_and_a_quorum(player: Player) -> None:
    played = player.play(*FIVE_MEMBERS, "protocol.rounds=3")
    for recorded in played.ledger.outcomes(10):
        event = recorded.event
        assert isinstance(event, ledger_state.RoundDecided)
        opening = played.opening(event.round)
        call = played.ledger.call_of(recorded.transaction_hash)
        assert isinstance(call, DecideCall)
        for phase, certificate in zip(Phase, call.certificates, strict=True):
            place = primary_seat(opening.seed, phase, certificate.view, 5)
            assert event.primaries[phase - 1] == opening.committee[place]
            assert certificate.signers.bit_count() == len(certificate.replies) == majority(5) == 3
            assert not certificate.signers >> place & 1


def test_false_scores_are_refused_and_kept_as_evidence(player: Player) -> None:
    played = player.play("malice.members.false-scores=4", "seed=1")
    liars = misbehaving(played, MemberFault.FALSE_SCORES)
    honest = player.play(*TWO_ROUNDS, name="honest")
    caught = 0
    for record in played.records():
        committee = played.opening(record.round).committee
        lying = liars.intersection(committee)
        if len(committee) - len(lying) < majority(4):
            continue
        caught += len(lying)
        assert {entry.signed.scores.member for entry in record.refused} == lying
        assert {signed.scores.member for signed in record.scores} == set(committee) - lying
        for entry in record.refused:
            assert entry.reason is RefusalReason.FALSE_DISTANCE
            member = played.population.signers[entry.signed.scores.member]
            scores, signature = entry.signed.scores, entry.signed.signature
            assert is_signed_by(member.address, played.domain, scores, signature)
    assert caught > 0
    assert all(not record.refused for record in honest.records())


def test_a_silent_primary_is_replaced_by_the_next_view(player: Player) -> None:
    def play(seed: int) -> Played:
        fault = ("malice.members.silent=1", "protocol.rounds=14")
        return player.play(*FIVE_MEMBERS, f"seed={seed}", *fault, name=f"run-{seed}")

    def shows_both(played: Played) -> bool:
        incidents = [i for record in played.records() for i in played.incidents(record.round)]
        return {incident.phase for incident in incidents} == set(Phase)

    played = first_that_shows(shows_both, play, first=7)
    assert all(row.decided for row in played.rows)
    (silent,) = misbehaving(played, MemberFault.SILENT)
    for record in played.records():
        opening = played.opening(record.round)
        signed = {claim.scores.member for claim in record.scores}
        assert signed == set(opening.committee) - {silent}
        for incident in played.incidents(record.round):
            found = (incident.kind, incident.member, incident.votes)
            assert found == (IncidentKind.SILENT, silent, ())
            place = primary_seat(opening.seed, incident.phase, incident.view, 5)
            assert opening.committee[place] == silent
            event = played.decided(record.round)
            assert event is not None
            assert event.views[incident.phase - 1] > incident.view


def test_a_wrong_proposal_is_named_with_its_request_as_proof(player: Player) -> None:
    played = player.play(*FIVE_MEMBERS, "malice.members.wrong-proposal=4")
    assert all(row.decided for row in played.rows)
    wrong = misbehaving(played, MemberFault.WRONG_PROPOSAL)
    incidents = [(r, i) for r in played.records() for i in played.incidents(r.round)]
    assert incidents
    for record, incident in incidents:
        assert incident.kind is IncidentKind.WRONG_PROPOSAL
        assert incident.member in wrong
        (request,) = incident.votes
        signer = played.population.signers[incident.member]
        assert request.vote.kind is VoteKind.REQUEST
        assert request.vote.round == record.round
        assert is_signed_by(signer.address, played.domain, request.vote, request.signature)
    assert played.ledger.bans() == ()


def test_an_equivocating_member_is_banned_and_cannot_commit_any_more(player: Player) -> None:
    played = player.play(*FIVE_MEMBERS, "malice.members.equivocating=2")
    culprits = misbehaving(played, MemberFault.EQUIVOCATING)
    bans = played.ledger.bans()
    assert bans
    for ban in bans:
        assert ban.client in culprits
        assert played.ledger.client(ban.client).banned_in == ban.round
        assert any(ban.client in row.served for row in played.rows if row.round <= ban.round)
        # In the round itself a ban voids nothing; from the next one on the client is out.
        for row in played.rows[ban.round :]:
            assert ban.client not in played.commitments(row.round)
            assert ban.client not in {*row.trained, *row.accepted}


def test_equivocation_of_the_last_round_is_reported_too(player: Player) -> None:
    played = player.play(*FIVE_MEMBERS, "malice.members.equivocating=6", "protocol.rounds=1")
    kind = IncidentKind.EQUIVOCATION
    incidents = [i for i in played.incidents(1) if i.kind is kind]
    assert incidents
    for incident in incidents:
        first, second = incident.votes
        assert first.vote != second.vote
        assert first.vote.slot == second.vote.slot
        address = played.population.signers[incident.member].address
        assert is_signed_by(address, played.domain, first.vote, first.signature)
        assert is_signed_by(address, played.domain, second.vote, second.signature)
    assert played.ledger.state().stage is ledger_state.LedgerStage.FINISHED
    assert {ban.client for ban in played.ledger.bans()} == {i.member for i in incidents}


def test_too_many_silent_members_only_cost_the_round(player: Player) -> None:
    # With four members a quorum is all three others of the primary: one silent member is too many.
    played = player.play("malice.members.silent=3", "protocol.deadline_blocks=6", "seed=1")
    assert [row.round for row in played.rows] == [1, 2, 3, 4, 5]
    assert {row.decided for row in played.rows} == {True, False}
    silent = misbehaving(played, MemberFault.SILENT)
    for row in played.rows:
        assert row.decided == (not silent.intersection(row.served))
        if row.decided:
            continue
        event = played.abandoned(row.round)
        assert event is not None
        assert (row.accepted, row.views) == ((), None)
        assert model_after(played, row.round) == model_before(played, row.round)
        assert event.next_committee == drawn_committee(event.next_seed, 12, 4, ())
        opened, ended = block_of_opening(played, row.round), block_of_end(played, row.round)
        assert ended - opened >= 6


def test_unusable_updates_are_left_out_and_named_with_the_reason(player: Player) -> None:
    # Ten trainers, so that five remain for the next committee whoever is left out.
    played = player.play(
        "protocol.clients=20",
        "protocol.active_rate=0.75",
        "protocol.committee_rate=0.333333",
        "malice.trainers.not-finite=1",
        "malice.trainers.wrong-length=1",
        "malice.trainers.silent=1",
    )
    reasons = {
        TrainerFault.NOT_FINITE: DropoutReason.PAYLOAD_MALFORMED,
        TrainerFault.WRONG_LENGTH: DropoutReason.PAYLOAD_MALFORMED,
        TrainerFault.SILENT: DropoutReason.NO_COMMITMENT,
    }
    expected = {c: reasons[fault] for c, fault in played.population.trainer_faults.items()}
    named: set[ClientId] = set()
    assert len(expected) == 3
    for row in played.rows:
        event = played.decided(row.round)
        assert event is not None
        active = {*row.trained, *row.served}
        dropouts = {d.client: d.reason for d in played.record(row.round).dropouts}
        assert dropouts == {c: reason for c, reason in expected.items() if c in active}
        named |= dropouts.keys()
        ranked = {word_client(word) for word in event.ranking}
        assert ranked == set(row.trained) - dropouts.keys()
        silent = {c for c, reason in dropouts.items() if reason is DropoutReason.NO_COMMITMENT}
        assert set(played.commitments(row.round)) == active - silent
    assert named == set(expected)


def test_all_faults_at_once_do_not_stop_a_run(player_on_file: Player) -> None:
    played = player_on_file.play(
        *ALL_FAULTS, "protocol.rounds=8", "malice.attack=same-value", "malice.malicious_rate=0.2"
    )
    assert [row.round for row in played.rows] == list(range(1, 9))
    assert played.ledger.state().stage is ledger_state.LedgerStage.FINISHED
    assert audit(played.ledger, played.blobs).outcome == "passed"


def told(played: Played) -> list[object]:
    """Return all that a run decided, but for what is signed: that is bound to its contract."""
    events = [recorded.event for recorded in played.ledger.outcomes(1000, descending=False)]
    return [
        (e.ranking, e.accepted, e.model, e.views, e.signers, e.next_seed)
        if isinstance(e, ledger_state.RoundDecided)
        else (e.round, e.next_committee, e.next_seed)
        for e in events
        if isinstance(e, ledger_state.RoundDecided | ledger_state.RoundAbandoned)
    ]


def test_equal_configurations_decide_the_same(whole: Played, player: Player) -> None:
    first, second = (player.play(*ALL_FAULTS, name=name) for name in ("first", "second"))
    assert told(whole) == told(first) == told(second)
    assert whole.measured() == first.measured() == second.measured()
    # A head binds signatures, which are for one contract on one chain.
    assert first.head == whole.head
    assert second.head != whole.head
    assert told(player.play(*ALL_FAULTS, "seed=1", name="third")) != told(first)


@pytest.mark.slow
@pytest.mark.usefixtures("forked_children")
def test_the_number_of_workers_changes_nothing(whole: Played, player: Player) -> None:
    played = player.play(*ALL_FAULTS, "machine.workers=2")
    assert told(played) == told(whole)
    assert played.measured() == whole.measured()


@pytest.mark.parametrize(("after", "chain"), [(True, "player"), (False, "player_on_file")])
def test_a_run_cut_at_any_transaction_decides_the_same(
    whole: Played, request: pytest.FixtureRequest, after: bool, chain: str
) -> None:
    player: Player = request.getfixturevalue(chain)
    cuts = 0
    while player.cut(*ALL_FAULTS, left=1, after=after):
        cuts += 1
    resumed = player.play(*ALL_FAULTS)
    assert cuts > 2 * len(whole.rows)
    assert resumed.ledger.bans()
    assert told(resumed) == told(whole)
    assert resumed.measured() == whole.measured()
    assert len(resumed.ledger.outcomes(100)) == 3
    assert audit(resumed.ledger, resumed.blobs).outcome == "passed"


def test_rows_say_what_chain_and_blobs_say(player: Player) -> None:
    played = player.play(*ALL_FAULTS, "malice.attack=back-gradient", "malice.malicious_rate=0.2")
    lines = [json.loads(line) for line in player.metrics().splitlines()]
    assert lines == [json.loads(json.dumps(asdict(row))) for row in played.rows]
    malicious, test = played.population.malicious, played.population.data.test
    for row in played.rows:
        participants = played.participants(row.round)
        committee, trained = participants.committee, participants.trainers
        event = played.decided(row.round)
        accepted = event.accepted if event else ()
        assert (row.served, row.trained, row.accepted) == (committee, trained, accepted)
        assert row.views == (event.views if event else None)
        counts = (row.malicious_trained, row.malicious_served, row.malicious_accepted)
        assert counts == tuple(
            len(malicious.intersection(those)) for those in (trained, committee, accepted)
        )
        vector = floats(played, model_after(played, row.round))
        found = evaluate(played.population.model, vector, test, played.population.data.collate)
        assert found.correct is not None
        assert row.accuracy == found.correct / found.samples
        assert row.loss == found.loss / found.samples
        assert row.floor == np.bincount(test.y).max() / len(test.y)


@pytest.mark.parametrize(
    "damage",
    [
        lambda _: b"",
        lambda rows: rows.splitlines(keepends=True)[0],
        lambda rows: rows + rows.splitlines(keepends=True)[-1],
        lambda rows: rows.replace(b'"round": 2', b'"round": 7'),
        lambda rows: b"".join(reversed(rows.splitlines(keepends=True))),
        lambda _: b"[" * 100_000 + b"\n",
        None,
    ],
)
def test_damaged_rows_are_made_again_from_chain_and_blobs(finished: Player, damage: Any) -> None:
    rows, path = finished.metrics(), finished.home / "runs" / "run" / "metrics.jsonl"
    if damage is None:
        path.unlink()
    else:
        path.write_bytes(damage(rows))
    finished.play(*TWO_ROUNDS)
    assert finished.metrics() == rows


def test_another_configuration_is_refused_and_leaves_the_recorded_one(finished: Player) -> None:
    path = finished.home / "runs" / "run" / "config.toml"
    before = path.read_bytes()
    with pytest.raises(ChainError, match="has another configuration"):
        finished.play(*TWO_ROUNDS, "seed=1")
    assert path.read_bytes() == before
    assert finished.play(*TWO_ROUNDS).rows == []


def model_after(played: Played, number: int) -> Digest:
    return model_before(played, number + 1)


def block_of_end(played: Played, number: int) -> int:
    ended = [
        recorded.block_number
        for recorded in played.ledger.round_events(number)
        if isinstance(recorded.event, ledger_state.RoundDecided | ledger_state.RoundAbandoned)
    ]
    return ended[0]


def block_of_opening(played: Played, number: int) -> int:
    if number > 1:
        return block_of_end(played, number - 1)
    head = played.ledger.chain.head().number
    opened = [
        recorded.block_number
        for recorded in played.ledger.recorded_in(0, head)
        if isinstance(recorded.event, ledger_state.LedgerOpened)
    ]
    return opened[0]
