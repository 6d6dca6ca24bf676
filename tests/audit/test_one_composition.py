"""Proofs, bundles, history, REST and audit of one run agree on each client, under each strategy."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import pytest

from clients.configuration.loading import load
from ledger.audit.engine import audit
from ledger.audit.proofs.bundle_verification import verify_bundle
from ledger.audit.proofs.documents import PROOF, proof_bytes, proof_of, read_proof
from ledger.audit.proofs.proof import ClientProof, ClientStatement, ClientVerdict, CommittedDecision
from ledger.audit.proofs.recorded import make_bundle, make_proof, read_trusted_contract
from ledger.audit.proofs.verification import StepName, TrustedHead, verify_proof
from ledger.audit.report import AuditOutcome
from ledger.audit.report_text import readable
from ledger.history.answers_parts import AnsweredRound
from ledger.history.answers_rounds import full_round
from ledger.history.history import FoldedHistory
from ledger.history.round import HistoryRound, ScoresOutcome, UpdateOutcome
from ledger.protocol.encoding import set_digest, sha256, vector_bytes
from ledger.protocol.errors import EncodingError
from ledger.protocol.parameters import Parameters
from ledger.protocol.types import Beacon, ClientId
from tests.audit.runs import CLIENTS, DIMENSION, PARAMETERS, Deviation, Payloads, Run
from tests.faults import times

RULES = {"strategy", "distance", "reference", "scoring", "threshold", "clip", "election"}
AGREEING = {1: 7, 2: 5, 4: 3, 5: 7}
"""Trainers whose updates point one way, of seven: more than a committee of five, five, fewer."""
OUTCOMES = {
    ClientVerdict.USED: UpdateOutcome.ACCEPTED,
    ClientVerdict.NOT_USED: UpdateOutcome.NOT_ACCEPTED,
    ClientVerdict.DROPPED_OUT: UpdateOutcome.DROPPED_OUT,
}


def robust() -> dict[str, Any]:
    """Return the rules of the preset `robust`."""
    shown = load("robust").protocol
    known = RULES.intersection(field.name for field in fields(Parameters))
    return {name: getattr(shown, name) for name in known}


def pointing(payloads: Payloads, run: Run) -> Payloads:
    """Let some trainers, and all members, send updates that point one way; the others oppose."""
    way = np.linspace(1, 2, DIMENSION)
    opposed = set(run.trainers[AGREEING[run.round] :])

    def update(client: ClientId) -> bytes:
        noise = np.random.default_rng([run.round, client]).normal(scale=0.05, size=DIMENSION)
        made = (-1 if client in opposed else 1) * way * (1 + noise)
        return vector_bytes(made.astype(np.float32))

    return {client: update(client) for client in payloads}


@dataclass(frozen=True)
class Played:
    """A run of one strategy, with the answers of its history."""

    run: Run
    history: FoldedHistory
    rounds: dict[int, HistoryRound]


@pytest.fixture(
    scope="module",
    params=[
        pytest.param({"strategy": 1, "beacon": Beacon.BLOCK}, id="1"),
        pytest.param({"strategy": 2, "beacon": Beacon.BLOCK}, id="2"),
        pytest.param({**robust(), "beacon": Beacon.BLOCK}, id="3"),
        pytest.param({**robust(), "beacon": Beacon.NONE}, id="3-without-a-beacon"),
    ],
)
def played(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Played:
    run = (
        Run.on_revm(tmp_path_factory.mktemp("run"), replace(PARAMETERS, **request.param))
        .play(Deviation(payloads=pointing))
        .play(Deviation(payloads=pointing))
    )
    run.ban(run.committee[0])
    run.abandon()
    run.play(Deviation(payloads=pointing, withheld=lambda run: run.trainers[:1])).play(
        Deviation(payloads=pointing)
    )
    history = FoldedHistory.of(run.ledger, run.blobs)
    found = {number: history.round(number) for number in range(1, 6)}
    return Played(run, history, {n: one for n, one in found.items() if one is not None})


def test_the_audit_passes(played: Played) -> None:
    report = audit(played.run.ledger, played.run.blobs)
    assert report.outcome is AuditOutcome.PASSED, readable(report)


def test_a_lot_follows_more_exactly_and_fewer_accepted_than_seats(played: Played) -> None:
    decided = [one.decided for one in played.rounds.values() if one.decided is not None]
    surplus = {np.sign(len(one.accepted) - len(one.next_committee)) for one in decided}
    assert surplus == ({-1, 0, 1} if played.run.parameters.strategy == 3 else {-1})


def test_every_client_of_every_round_is_proven(played: Played) -> None:
    run, newest = played.run, TrustedHead(played.run.ledger.state().head)
    for number in played.rounds:
        facts = read_trusted_contract(run.ledger, number)
        forms = ((newest, True), (facts, True), (facts, False))
        for client in map(ClientId, range(CLIENTS)):
            for form in range(times(1, len(forms))):  # each client has each form in some round
                trusted, whole = forms[(number + client + form) % len(forms)]
                made = make_proof(run.ledger, run.blobs, number, client, whole=whole)
                read = read_proof(proof_bytes(made))
                found = verify_proof(read, number, client, trusted)
                assert found.outcome is AuditOutcome.PASSED, found.sentence


def test_a_proof_has_the_next_seed_exactly_where_it_draws(played: Played) -> None:
    run, newest = played.run, TrustedHead(played.run.ledger.state().head)
    for number, one in played.rounds.items():
        if one.decided is None:
            continue
        true = PROOF.write(make_proof(run.ledger, run.blobs, number, ClientId(0), whole=True))
        is_drawn = len(one.decided.accepted) > len(one.decided.next_committee)
        assert (true["decision"]["next_seed"] is not None) is is_drawn
        other = None if is_drawn else f"0x{bytes(32).hex()}"
        with pytest.raises(EncodingError, match="next_seed must be "):
            proof_of(true | {"decision": true["decision"] | {"next_seed": other}})
        if is_drawn:
            wrong = replace(proof_of(true), decision=drawing_others(proof_of(true)))
            found = verify_proof(wrong, number, ClientId(0), newest)
            failed = [step.name for step in found.steps if step.is_ok is False]
            assert failed == [StepName.DECISION]


def drawing_others(proof: ClientProof) -> CommittedDecision:
    """Return the decision with the first other seed that draws another committee."""
    assert proof.decision is not None
    for place in range(100):
        other = replace(proof.decision, next_seed=sha256(bytes([place])))
        if replace(proof, decision=other).sets != proof.sets:
            return other
    raise AssertionError("every seed draws the same committee")


def test_every_round_passes_from_its_bundle(played: Played) -> None:
    run, newest = played.run, TrustedHead(played.run.ledger.state().head)
    for number in played.rounds:
        bundle = make_bundle(run.ledger, run.blobs, number, whole=True)
        for trusted in (newest, read_trusted_contract(run.ledger, number)):
            found = verify_bundle(bundle, run.blobs, trusted)
            assert found.outcome is AuditOutcome.PASSED, (number, found.as_dict())


def test_proof_history_and_rest_say_the_same_of_every_client(played: Played) -> None:
    run, history = played.run, played.history
    for number, one in played.rounds.items():
        rest = full_round(AnsweredRound.of(history, one))["parts"]
        updates = {entry["client"]: entry for entry in rest["updates"]}
        members = {entry["client"]: entry for entry in rest["committee"]}
        for client in map(ClientId, range(CLIENTS)):
            said = make_proof(run.ledger, run.blobs, number, client).statement
            part = history.documented(one).part(client)
            assert (part is None) is (client not in {**updates, **members})
            if part is None:
                assert said.role.value in {"not sampled", "banned"}
            elif client in updates and one.decided is not None:
                assert OUTCOMES[said.verdict] is part.outcome
                assert updates[client]["outcome"] == part.outcome
                placed = (part.rank, part.distance_bits)
                assert placed == ranked(said)
                bits = updates[client]["distance_bits"]
                assert placed == (updates[client]["rank"], None if bits is None else int(bits))
            elif client in members and one.decided is not None:
                counted = part.scores is ScoresOutcome.COUNTED
                assert counted is (said.scores is not None and said.scores.value == "counted")
                assert members[client]["scores"] == part.scores


def test_proof_history_and_rest_name_the_same_committee(played: Played) -> None:
    run, history = played.run, played.history
    for number, one in played.rounds.items():
        end, rest = one.end, full_round(AnsweredRound.of(history, one))["parts"]
        assert end is not None
        following = [entry["client"] for entry in rest["next_committee"]]
        assert following == list(end.next_committee)
        if number + 1 in played.rounds:
            assert played.rounds[number + 1].committee == end.next_committee
        proof = make_proof(run.ledger, run.blobs, number, ClientId(0))
        if one.decided is not None:
            accepted, elected = proof.sets
            assert accepted == one.decided.accepted
            assert set_digest(elected) == set_digest(end.next_committee)
            assert [entry["client"] for entry in rest["aggregation"]["accepted"]] == list(accepted)


def ranked(said: ClientStatement) -> tuple[int | None, int | None]:
    return (None, None) if said.rank is None else (said.rank.place, said.rank.distance_bits)
