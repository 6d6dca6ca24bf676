"""What became of every client of the honest run, proven by a head and by the contract."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ledger.audit.proofs.documents import STATEMENT, proof_bytes, read_proof
from ledger.audit.proofs.proof import ClientVerdict, CutOff, Rank, ScoresTaken, UpdateWeight, stated
from ledger.audit.proofs.recorded import TrustedContract, make_proof, read_trusted_contract
from ledger.audit.proofs.verification import Caveat, StepName, TrustedHead, verify_proof
from ledger.audit.report import AuditOutcome
from ledger.protocol.documents.record import encode_record
from ledger.protocol.encoding import commitments_chain, float_from_bits, word_client
from ledger.protocol.errors import BlobMissingError, ConfigurationError
from ledger.protocol.ledger_state import RoundDecided
from ledger.protocol.types import AcceptanceForm, ClientId, Digest, DropoutReason
from ledger.storage.blobs import MemoryBlobs
from tests.audit.runs import CLIENTS, PARAMETERS, Deviation, Run


def decided(run: Run, number: int) -> RoundDecided:
    events = [one.event for one in run.ledger.round_events(number)]
    return next(event for event in events if isinstance(event, RoundDecided))


def client_with(run: Run, number: int, **said: object) -> ClientId:
    """Return the first client of whose round a statement has these values: a seed deals roles."""
    for client in map(ClientId, range(CLIENTS)):
        statement = make_proof(run.ledger, run.blobs, number, client).statement
        if all(getattr(statement, name) == value for name, value in said.items()):
            return client
    raise AssertionError(f"round {number} has no client with {said}")


def test_every_client_is_proven_by_the_head_and_the_contract(
    honest: Run, newest: TrustedHead, facts: dict[int, TrustedContract]
) -> None:
    for number in (1, 3, 5):
        for client in map(ClientId, range(CLIENTS)):
            proof = make_proof(honest.ledger, honest.blobs, number, client, whole=True)
            read = read_proof(proof_bytes(proof))
            assert read == proof
            for trusted in (newest, facts[number]):
                found = verify_proof(read, number, client, trusted)
                assert found.outcome is AuditOutcome.PASSED, found.as_dict()
                assert found.statement == proof.statement


def test_short_proof_spans_two_rounds(honest: Run, facts: dict[int, TrustedContract]) -> None:
    proof = make_proof(honest.ledger, honest.blobs, 5, ClientId(0))
    rounds = [link.round for link in proof.path.links]
    assert rounds == [4, 4, 5]
    assert verify_proof(proof, 5, ClientId(0), facts[5]).outcome is AuditOutcome.PASSED


def test_a_used_update_has_rank_distance_and_exact_weight(honest: Run) -> None:
    # Client k has 10 + k samples, and the first two of five are accepted.
    event = decided(honest, 1)
    first, second = event.accepted
    said = make_proof(honest.ledger, honest.blobs, 1, second).statement
    assert said.verdict is ClientVerdict.USED
    bits = event.ranking[1] >> 32
    assert said.rank == Rank(1, 5, bits, accepted=True)
    assert said.cut_off == CutOff(AcceptanceForm.FIRST, 2, bits)
    assert said.weight == UpdateWeight(10 + second, 20 + first + second)
    assert STATEMENT.write(said)["rank"]["distance"] == float_from_bits(bits)


@pytest.mark.parametrize(
    ("number", "reason", "caveat"),
    [
        (1, DropoutReason.PAYLOAD_MALFORMED, Caveat.MALFORMED_CERTIFIED),
        (1, DropoutReason.NO_COMMITMENT, None),
        (4, DropoutReason.PAYLOAD_MISSING, Caveat.ABSENCE_CERTIFIED),
    ],
)
def test_a_dropout_has_the_recorded_reason_and_its_unprovable_part(
    honest: Run,
    facts: dict[int, TrustedContract],
    number: int,
    reason: DropoutReason,
    caveat: Caveat | None,
) -> None:
    client = client_with(honest, number, dropout=reason)
    proof = make_proof(honest.ledger, honest.blobs, number, client)
    found = verify_proof(proof, number, client, facts[number])
    assert found.statement.verdict is ClientVerdict.DROPPED_OUT
    assert found.statement.has_committed is (reason is not DropoutReason.NO_COMMITMENT)
    assert found.caveats == (() if caveat is None else (caveat,))


def test_other_clients_were_rejected_unsampled_banned_or_in_abandoned_rounds(honest: Run) -> None:
    last = word_client(decided(honest, 1).ranking[-1])
    assert client_with(honest, 1, verdict=ClientVerdict.NOT_USED) not in decided(honest, 1).accepted
    assert make_proof(honest.ledger, honest.blobs, 1, last).statement.rank is not None
    assert client_with(honest, 1, verdict=ClientVerdict.NOT_SAMPLED, has_committed=False) >= 0
    assert client_with(honest, 4, verdict=ClientVerdict.BANNED) == honest.ledger.bans()[0].client
    assert client_with(honest, 3, verdict=ClientVerdict.ABANDONED) >= 0


@pytest.mark.parametrize(("strategy", "clips"), [(1, False), (2, False), (3, True)])
def test_a_file_states_what_its_maker_stated(tmp_path: Path, strategy: int, *, clips: bool) -> None:
    run = Run.on_revm(tmp_path, replace(PARAMETERS, strategy=strategy))
    run.play()
    client = decided(run, 1).accepted[0]
    made = make_proof(run.ledger, run.blobs, 1, client)
    sentence = stated(1, client, made.statement)
    assert stated(1, client, read_proof(proof_bytes(made)).statement) == sentence
    assert ("two fifths of the round's updates" in sentence) is clips


def test_an_open_round_is_proven_by_the_contract_only(tmp_path: Path) -> None:
    run = Run.on_revm(tmp_path)
    run.commit({run.trainers[0]: run.word(run.trainers[0])})
    for client in (run.trainers[0], run.trainers[1]):
        proof = read_proof(proof_bytes(make_proof(run.ledger, run.blobs, 1, client)))
        assert proof.statement.verdict is ClientVerdict.OPEN
        assert proof.statement.has_committed is (client == run.trainers[0])
        found = verify_proof(proof, 1, client, read_trusted_contract(run.ledger, 1))
        assert found.outcome is AuditOutcome.PASSED
        head = TrustedHead(run.ledger.state().head)
        assert verify_proof(proof, 1, client, head).outcome is AuditOutcome.INCOMPLETE
    open_yet = make_proof(run.ledger, run.blobs, 1, run.trainers[0])
    run.play()
    # It says what was true, and is not any more.
    late = verify_proof(open_yet, 1, open_yet.client, read_trusted_contract(run.ledger, 1))
    assert late.outcome is AuditOutcome.FAILED


def test_without_record_proof_says_so(honest: Run, facts: dict[int, TrustedContract]) -> None:
    blobs = MemoryBlobs()
    blobs.put(honest.blobs.get(honest.ledger.deployment().config))
    scores = {
        ClientVerdict.DROPPED_OUT: None,
        ClientVerdict.USED: None,
        ClientVerdict.MEMBER: ScoresTaken.UNKNOWN,
    }
    for verdict, taken in scores.items():
        client = client_with(honest, 1, verdict=verdict)
        proof = make_proof(honest.ledger, blobs, 1, client)
        found = verify_proof(proof, 1, client, facts[1])
        assert found.outcome is AuditOutcome.PASSED
        assert Caveat.RECORD_LACKING in found.caveats
        assert found.statement.scores is taken
    with pytest.raises(BlobMissingError):
        make_proof(honest.ledger, MemoryBlobs(), 1, ClientId(0))


def test_another_record_is_named(honest: Run, facts: dict[int, TrustedContract]) -> None:
    client = client_with(honest, 1, dropout=DropoutReason.PAYLOAD_MALFORMED)
    true = make_proof(honest.ledger, honest.blobs, 1, client)
    record = true.recorded
    assert record is not None
    others = tuple(
        entry if entry.client == client else replace(entry, reason=DropoutReason.PAYLOAD_MISSING)
        for entry in record.dropouts
    )
    for other, steps in (
        (record, []),
        (replace(record, dropouts=others), [StepName.RECORD]),
        (replace(record, scores=record.scores[1:]), [StepName.RECORD, StepName.SCORES_ROOT]),
    ):
        proof = replace(true, record=encode_record(other))
        found = verify_proof(proof, 1, client, facts[1])
        assert [step.name for step in found.steps if step.is_ok is not True] == steps


def test_an_unopened_round_or_unknown_client_has_no_proof(honest: Run) -> None:
    for number in (0, 6):
        with pytest.raises(ConfigurationError, match=f"round {number} has not opened"):
            make_proof(honest.ledger, honest.blobs, number, ClientId(0))
    with pytest.raises(ConfigurationError, match="there is no client 14; the run has 14"):
        make_proof(honest.ledger, honest.blobs, 1, ClientId(14))


def test_nothing_is_proven_without_trusted_head_on_path(honest: Run, newest: TrustedHead) -> None:
    short = make_proof(honest.ledger, honest.blobs, 1, ClientId(3))
    for trusted in (None, newest):
        found = verify_proof(short, 1, ClientId(3), trusted)
        assert found.outcome is AuditOutcome.INCOMPLETE
        assert found.sentence.startswith("NOT PROVEN: ")
    own = TrustedHead(decided(honest, 1).head)
    assert verify_proof(short, 1, ClientId(3), own).outcome is AuditOutcome.PASSED


def test_open_block_contradicts_nothing(honest: Run, facts: dict[int, TrustedContract]) -> None:
    proof = make_proof(honest.ledger, honest.blobs, 1, ClientId(3))
    round_ = facts[1].round
    end = replace(round_.events[-1], event=decided(honest, 2))
    events = round_.events[:-1]
    other = replace(facts[1], round=replace(round_, events=(*events, end)))
    assert verify_proof(proof, 1, ClientId(3), other).outcome is AuditOutcome.FAILED
    found = verify_proof(proof, 1, ClientId(3), replace(other, is_final=False))
    assert found.outcome is AuditOutcome.INCOMPLETE
    assert Caveat.NOT_FINAL in found.caveats
    behind = replace(facts[1], round=replace(round_, events=events), is_final=False)
    assert verify_proof(proof, 1, ClientId(3), behind).outcome is AuditOutcome.INCOMPLETE


@pytest.mark.parametrize(
    ("changes", "form", "limit"),
    [
        ({"strategy": 2}, AcceptanceForm.LAST, "the last 3 were accepted, from distance "),
        ({"strategy": 3}, AcceptanceForm.BELOW_TWO, "at a distance below 2 were accepted"),
    ],
)
def test_cut_off_is_of_strategy(
    tmp_path: Path, changes: dict[str, Any], form: AcceptanceForm, limit: str
) -> None:
    run = Run.on_revm(tmp_path, replace(PARAMETERS, **changes)).play()
    event, trusted = decided(run, 1), read_trusted_contract(run.ledger, 1)
    edge = event.accepted[0 if form is AcceptanceForm.LAST else -1]
    bits = {word_client(word): word >> 32 for word in event.ranking}
    for client in bits:
        found = verify_proof(make_proof(run.ledger, run.blobs, 1, client), 1, client, trusted)
        assert found.outcome is AuditOutcome.PASSED
        cut_off = CutOff(form, len(event.accepted), bits[edge])
        assert found.statement.cut_off == cut_off
        assert limit in found.sentence
        is_used = client in event.accepted
        assert (found.statement.verdict is ClientVerdict.USED) is is_used


def test_a_record_of_commitments_outside_the_closing_block_is_named(tmp_path: Path) -> None:
    """The head binds what a committee colludes in; only the chain's blocks show that it did."""
    late = Deviation(base=lambda _base, run: cut(run))
    run = Run.on_revm(tmp_path)
    record = run.prepare(Deviation(record=lambda found, run: replace(found, base=cut(run))))
    run.conclude(record, late)
    client = run.ledger.opening(1)
    assert client is not None
    member = client.committee[0]
    proof = make_proof(run.ledger, run.blobs, 1, member, whole=True)
    by_chain = verify_proof(proof, 1, member, read_trusted_contract(run.ledger, 1))
    assert StepName.CLOSING in [s.name for s in by_chain.steps if s.is_ok is False]
    by_head = verify_proof(proof, 1, member, TrustedHead(run.ledger.state().head))
    assert Caveat.CLOSING_CERTIFIED in by_head.caveats


def first_of(run: Run) -> list[tuple[ClientId, Digest]]:
    """Return all but the last commitment of a round, in the chain's order."""
    mined = run.ledger.commitments(1)
    return [(one.client, one.commitment) for one in mined[:-1]]


def cut(run: Run) -> Digest:
    return commitments_chain(first_of(run))
