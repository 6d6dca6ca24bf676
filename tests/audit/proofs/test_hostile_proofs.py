"""Proofs that somebody has changed: none is accepted, and none is met with a traceback."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledger.audit.proofs.documents import (
    PATH,
    PROOF,
    STATEMENT,
    parse_document,
    proof_bytes,
    proof_of,
    read_proof,
)
from ledger.audit.proofs.proof import (
    ClientProof,
    ClientVerdict,
    HeadPath,
    ProvenRole,
    RecordedBan,
    UpdateWeight,
    derive_statement,
)
from ledger.audit.proofs.recorded import TrustedContract, make_proof
from ledger.audit.proofs.verification import ProofVerification, StepName, TrustedHead, verify_proof
from ledger.audit.report import AuditOutcome
from ledger.protocol.documents.run import encode_run
from ledger.protocol.encoding import set_digest, sha256
from ledger.protocol.errors import EncodingError
from ledger.protocol.ledger_state import BanLink, RoundDecided
from ledger.protocol.types import ClientId
from tests.audit.proofs.mutations import FUZZ, changed, paths
from tests.audit.runs import CLIENTS, Run

ASKED = ((1, 3), (1, 0), (1, 9), (3, 1), (4, 2), (5, 12))
"""Clients and rounds: decided ones, an abandoned one, and some after a ban."""
AT_ONCE = 50
CASES = 2_000 * FUZZ


@pytest.fixture(scope="module")
def documents(honest: Run) -> list[tuple[int, ClientId, dict[str, Any]]]:
    found = []
    for number, index in ASKED:
        client = ClientId(index)
        proof = make_proof(honest.ledger, honest.blobs, number, client, whole=True)
        found.append((number, client, PROOF.write(proof)))
    return found


@settings(max_examples=CASES // AT_ONCE)
@given(seed=st.integers(0, 2**32 - 1))
def test_no_changed_proof_proves_anything_but_the_truth(
    documents: list[tuple[int, ClientId, dict[str, Any]]],
    newest: TrustedHead,
    facts: dict[int, TrustedContract],
    seed: int,
) -> None:
    rng = random.Random(seed)
    number, client, document = rng.choice(documents)
    places = list(paths(document))
    for path in rng.choices(places, k=AT_ONCE):
        found = _verified(changed(document, path, rng), number, client, rng.choice((newest, facts)))
        if found is not None and found.outcome is AuditOutcome.PASSED:
            stated = STATEMENT.write(found.statement)
            assert stated == document["statement"], (path, found.as_dict())


def _verified(
    document: Any, number: int, client: ClientId, trusted: TrustedHead | dict[int, TrustedContract]
) -> ProofVerification | None:
    try:
        trust = trusted[number] if isinstance(trusted, dict) else trusted
        found = verify_proof(proof_of(document), number, client, trust)
    except EncodingError:
        return None
    assert json.dumps(found.as_dict(), allow_nan=False)
    return found


def test_proof_of_another_round_answers_no_question(honest: Run, newest: TrustedHead) -> None:
    proof = make_proof(honest.ledger, honest.blobs, 1, ClientId(3), whole=True)
    for asked in ((2, 3), (1, 4)):
        found = verify_proof(proof, asked[0], ClientId(asked[1]), newest)
        assert failed(found) == [StepName.QUESTION]


def committee(run: Run, number: int) -> tuple[ClientId, ...]:
    opening = run.ledger.opening(number)
    assert opening is not None
    return opening.committee


def outsider(run: Run) -> ClientId:
    """Return a client that neither trains nor has a seat in round 5, and has no ban."""
    banned = {ban.client for ban in run.ledger.bans()}
    for client in set(map(ClientId, range(CLIENTS))) - banned:
        statement = make_proof(run.ledger, run.blobs, 5, client).statement
        if statement.role is ProvenRole.NOT_SAMPLED:
            return client
    raise AssertionError("all clients take part in round 5")


def test_what_comes_after_the_trusted_head_proves_nothing(honest: Run, newest: TrustedHead) -> None:
    """A prover goes on from the head with links of its own: a ban, and the round before again."""
    seats, client = committee(honest, 5), outsider(honest)
    true = make_proof(honest.ledger, honest.blobs, 5, client, whole=True)
    banned = replace(
        true,
        path=HeadPath(true.path.start, (*true.path.links, BanLink(1, client))),
        bans=(*true.bans, RecordedBan(1, client)),
    )
    found = verify_proof(restated(banned), 5, client, newest)
    assert found.statement.verdict is ClientVerdict.BANNED
    assert failed(found) == [StepName.BANS]
    before = true.path.ended(4)
    assert before is not None
    elected = (client, *seats[1:])
    again = replace(before, committee=set_digest(elected))
    start = true.path.heads[-2]
    path = HeadPath(start, (true.path.links[-1], again))
    found = verify_proof(restated(replace(true, path=path, committee=elected)), 5, client, newest)
    assert StepName.COMMITTEE in unproven(found)


def test_a_made_up_registry_changes_no_weight(honest: Run, newest: TrustedHead) -> None:
    # Client k has 10 + k samples.
    (event,) = honest.ledger.outcomes(1, descending=False)
    assert isinstance(event.event, RoundDecided)
    client, other_client = event.event.accepted
    true = make_proof(honest.ledger, honest.blobs, 1, client, whole=True)
    registry = list(true.document.registry)
    registry[client] = replace(registry[client], samples=registry[client].samples * 10)
    heavier = encode_run(replace(true.document, registry=tuple(registry)))
    found = verify_proof(restated(replace(true, configuration=heavier)), 1, client, newest)
    samples = 10 * (10 + client)
    assert found.statement.weight == UpdateWeight(samples, samples + 10 + other_client)
    # The path begins with the run's own configuration, and so is that of no other.
    # Its registry makes another salt, for which the client has signed nothing.
    assert unproven(found) == [StepName.CONFIGURATION, StepName.BANS, StepName.AUTHOR]
    other = restated(
        replace(true, configuration=heavier, path=replace(true.path, start=sha256(heavier)))
    )
    found = verify_proof(other, 1, client, newest)
    assert StepName.HEAD in unproven(found)


def test_an_omitted_or_invented_ban_is_named(honest: Run, newest: TrustedHead) -> None:
    accused = honest.ledger.bans()[0].client
    true = make_proof(honest.ledger, honest.blobs, 4, accused, whole=True)
    assert true.bans == (RecordedBan(3, accused),)
    left_out = restated(replace(true, bans=()))
    assert StepName.BANS in failed(verify_proof(left_out, 4, accused, newest))
    client = outsider(honest)
    first = make_proof(honest.ledger, honest.blobs, 1, client, whole=True)
    assert first.bans == ()
    fifth = make_proof(honest.ledger, honest.blobs, 5, client, whole=True)
    made_up = restated(replace(fifth, bans=(*fifth.bans, RecordedBan(2, client))))
    assert StepName.BANS in failed(verify_proof(made_up, 5, client, newest))


def test_another_head_another_contract_and_another_chain_prove_nothing(
    honest: Run, facts: dict[int, TrustedContract]
) -> None:
    proof = make_proof(honest.ledger, honest.blobs, 1, ClientId(3), whole=True)
    elsewhere = replace(facts[1], domain=replace(facts[1].domain, chain_id=5))
    assert failed(verify_proof(proof, 1, ClientId(3), elsewhere)) == [StepName.CONTRACT]
    fork = replace(facts[1], genesis_hash=bytes(32))
    assert failed(verify_proof(proof, 1, ClientId(3), fork)) == [StepName.CONTRACT]
    code = replace(facts[1], code_doubt="it is not the artefact's")
    assert failed(verify_proof(proof, 1, ClientId(3), code)) == [StepName.CODE]
    sizes = replace(facts[1], deployment=replace(facts[1].deployment, replies=4))
    assert failed(verify_proof(proof, 1, ClientId(3), sizes)) == [StepName.DEPLOYMENT]


def test_a_signature_for_another_contract_is_no_signature(honest: Run, newest: TrustedHead) -> None:
    proof = make_proof(honest.ledger, honest.blobs, 1, ClientId(3), whole=True)
    other = replace(proof, chain_id=7)
    assert failed(verify_proof(other, 1, ClientId(3), newest)) == [StepName.AUTHOR]
    assert proof.signature is not None
    none = replace(proof, signature=bytes(65))
    assert failed(verify_proof(none, 1, ClientId(3), newest)) == [StepName.AUTHOR]


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "not a JSON document"),
        (b"\xff", "not a JSON document"),
        (b"[" * 5_000, "nested more than"),
        (b'{"round": NaN}', "NaN is not a number"),
        (b'{"round": 1, "round": 2}', "a key twice"),
        (b"[]", "is not a map"),
        (b"{}", "missing or unknown"),
        (b'"' + b"a" * 3_000 + b'"', "is not a map"),
    ],
)
def test_what_is_no_proof_is_refused_with_a_short_sentence(data: bytes, why: str) -> None:
    with pytest.raises(EncodingError, match=why) as refused:
        read_proof(data)
    assert len(str(refused.value)) < 600


def test_an_enormous_document_is_refused_before_it_is_read() -> None:
    with pytest.raises(EncodingError, match="has 11 bytes; at most 10"):
        parse_document(b"[" * 11, 10)


def restated(proof: ClientProof) -> ClientProof:
    """Return a proof whose statement follows from it, as a prover would send it."""
    return proof_of(PROOF.write(replace(proof, statement=derive_statement(replace(proof)))))


def unproven(found: ProofVerification) -> list[StepName]:
    return [step.name for step in found.steps if step.is_ok is not True]


def failed(found: ProofVerification) -> list[StepName]:
    return [step.name for step in found.steps if step.is_ok is False]


# What a proof's document may hold: each field is refused by its name where it cannot be.


DIGEST = "0x" + "11" * 32
LARGEST = str(2**96 - 1)


@pytest.fixture(scope="module")
def document(honest: Run) -> dict[str, Any]:
    proof = make_proof(honest.ledger, honest.blobs, 4, ClientId(1))
    written: dict[str, Any] = PROOF.write(proof)
    return written


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("format", "cmfl-round-bundle", "must be 'cmfl-client-proof'"),
        ("version", 2, "proof has protocol version 2; this program needs version 3"),
        ("version", True, "version: is True; must be 3"),
        ("chain_id", 2**64, "chain_id: is not a number from 0 to below 18446744073709551616"),
        ("address", "0x" + "ab" * 20, "has a wrong EIP-55 checksum"),
        ("address", "0xab", "is not 0x and 40 hex digits"),
        ("genesis_hash", "0x11", "genesis_hash: is not 0x and hex digits of 32 bytes"),
        ("configuration", "0x80", "fields .* are missing or not known"),
        ("round", 0, "round 0 is not one of the run's 5"),
        ("client", 14, "client 14 is not one of the run's 14"),
        ("committee", [1, 2, 3, 4], "committee of 4 is not of 5"),
        ("committee", [1, 2, 3, 4, 4], "a client comes twice"),
        ("bans", [[4, 2]], "a ban in round 4 is not before round 4"),
        ("commitments", [[14, DIGEST]], "client 14 is not one of the run's 14"),
        ("commitments", [[1, DIGEST], [1, DIGEST]], "a client comes twice"),
        ("payload", 7, "is not 0x and hex digits of 32 bytes"),
        ("signature", "0x11", "signature: is not 0x and hex digits of 65 bytes"),
        ("siblings", [DIGEST] * 17, "siblings: is not a list of at most 16 items"),
        ("committed_at", {}, "committed_at: fields .* are missing"),
        ("decision", None, "record is given|siblings is given"),
        ("record", "0x" + "00" * 1_000_001, "record: is not 0x and hex digits of at most 10"),
    ],
)
def test_impossible_field_is_refused(
    document: dict[str, Any], name: str, value: object, why: str
) -> None:
    with pytest.raises(EncodingError, match=why):
        proof_of(document | {name: value})


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("ranking", ["1", "2", "3", "4"], "a ranking of 4 is not one of 5 to 7"),
        ("ranking", ["5", "4", "3", "2", "1"], "not strictly ascending"),
        ("ranking", [*map(str, range(4)), LARGEST], "has a distance that is not finite"),
        ("ranking", ["0", "1", "2", "3", str(14)], "client 14 is not one of the run's 14"),
        ("ranking", ["0", "1", "2", "3", str(1 << 32)], "a client comes twice"),
        ("ranking", ["01"] * 5, "decision.ranking.0: is not a decimal string below"),
        ("threshold_bits", "1", "threshold_bits"),
        ("views", ["0"], "decision.views: is not a list of 2 items"),
        ("signers", ["0", str(2**256)], "decision.signers.1: is not a decimal string below"),
    ],
)
def test_a_decision_that_no_contract_can_have_taken_is_refused(
    document: dict[str, Any], name: str, value: object, why: str
) -> None:
    with pytest.raises(EncodingError, match=why):
        proof_of(document | {"decision": document["decision"] | {name: value}})


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("verdict", "thanked", "statement.verdict: is not one of used, "),
        ("dropout", 9, "statement.dropout: is not one of 1, 2, 3"),
        ("dropout", True, "statement.dropout: is not one of 1, 2, 3"),
        ("weight", {"samples": 1, "total": 2, "share": 0.25}, "weight.share: is 0.25; must be"),
        ("has_committed", 1, "statement.has_committed: is not true or false"),
    ],
)
def test_inconsistent_statement_is_refused(
    document: dict[str, Any], name: str, value: object, why: str
) -> None:
    with pytest.raises(EncodingError, match=why):
        proof_of(document | {"statement": document["statement"] | {name: value}})


def test_a_distance_that_differs_from_its_bits_is_refused(document: dict[str, Any]) -> None:
    rank = document["statement"]["rank"]
    for other, why in (
        (rank | {"distance": 0.5}, "statement.rank.distance: is 0.5; must be "),
        (
            rank | {"distance_bits": str(0x7FF << 52)},
            "statement.rank.distance_bits: is not a decimal string below",
        ),
    ):
        with pytest.raises(EncodingError, match=why):
            proof_of(document | {"statement": document["statement"] | {"rank": other}})


@pytest.mark.parametrize(
    ("link", "why"),
    [
        ({"kind": "forgotten"}, "links.0: kind is 'forgotten'; must be one of"),
        ({"kind": ["banned"]}, "links.0: kind is"),
        ([], "links.0: kind is None"),
        ({"kind": "banned", "round": 1}, "links.0: fields .* are missing or unknown"),
    ],
)
def test_what_is_no_link_of_heads_is_refused(link: object, why: str) -> None:
    with pytest.raises(EncodingError, match=why):
        PATH.read({"start": DIGEST, "links": [link]})


def test_links_of_all_three_kinds_survive_a_round_trip(honest: Run) -> None:
    path = make_proof(honest.ledger, honest.blobs, 5, ClientId(0), whole=True).path
    assert {one["kind"] for one in PATH.write(path)["links"]} == {"decided", "abandoned", "banned"}
    assert PATH.read(PATH.write(path)) == path


def test_a_document_of_many_faults_is_refused_by_its_first(document: dict[str, Any]) -> None:
    """However many keys or items are wrong, one of them is named, in a short sentence."""
    links = [{"kind": "banned", "round": 1, "client": -1}] * 100_000
    for other in (
        document | dict.fromkeys(map(str, range(100_000)), 1),
        document | {"path": {"start": DIGEST, "links": links}},
        document | {"commitments": [[-1, DIGEST]] * 12_288},
    ):
        with pytest.raises(EncodingError) as refused:
            proof_of(other)
        assert len(str(refused.value)) < 600


def test_a_proof_is_written_again_byte_for_byte(honest: Run) -> None:
    for number, client in ((1, 3), (1, 0), (3, 1), (4, 2)):
        data = proof_bytes(make_proof(honest.ledger, honest.blobs, number, ClientId(client)))
        assert proof_bytes(read_proof(data)) == data
