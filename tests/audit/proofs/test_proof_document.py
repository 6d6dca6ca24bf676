"""What a proof's document may hold: each field is refused by its name where it cannot be."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from ledger.audit.proofs.json_documents import PathDocument, path_dict, validate_document
from ledger.audit.proofs.proof_document import as_dict, proof_bytes, proof_of, read_proof
from ledger.audit.proofs.proof_maker import make_proof
from ledger.protocol.errors import EncodingError
from ledger.protocol.types import ClientId

if TYPE_CHECKING:
    from tests.audit.runs import Run

DIGEST = "0x" + "11" * 32
LARGEST = str(2**96 - 1)


@pytest.fixture(scope="module")
def document(honest: Run) -> dict[str, Any]:
    return as_dict(make_proof(honest.ledger, honest.blobs, 4, ClientId(1)))


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("format", "cmfl-round-bundle", "format: Input should be 'cmfl-client-proof'"),
        ("version", 2, "proof has protocol version 2; this program needs version 3"),
        ("version", True, "version: Input should be 3"),
        ("chain_id", 2**64, "chain_id: Input should be less than"),
        ("address", "0x" + "ab" * 20, "has another EIP-55 checksum"),
        ("address", "0xab", "is not 0x and 40 hex digits"),
        ("genesis_hash", "0x11", "genesis_hash: is not 0x and hex digits of 32 bytes"),
        ("configuration", "0x80", "fields .* are missing or not known"),
        ("round", 0, "round 0 is none of the run's 5"),
        ("client", 14, "client 14 is none of the run's 14"),
        ("committee", [1, 2, 3, 4], "committee of 4 is not of 5"),
        ("committee", [1, 2, 3, 4, 4], "a client comes twice"),
        ("bans", [[4, 2]], "a ban in round 4 is not before round 4"),
        ("commitments", [[14, DIGEST]], "client 14 is none of the run's 14"),
        ("commitments", [[1, DIGEST], [1, DIGEST]], "a client comes twice"),
        ("payload", 7, "is not 0x and hex digits of 32 bytes"),
        ("signature", "0x11", "signature: is not 0x and hex digits of 65 bytes"),
        ("siblings", [DIGEST] * 17, "siblings: Tuple should have at most 16 items"),
        ("committed_at", {}, "committed_at: fields .* are missing"),
        ("decision", None, "record is given|siblings is given"),
        ("record", "0x" + "00" * 1_000_001, "record: is not 0x and hex digits of at most 10"),
    ],
)
def test_a_field_that_cannot_be_is_refused_by_name(
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
        ("ranking", ["0", "1", "2", "3", str(14)], "client 14 is none of the run's 14"),
        ("ranking", ["0", "1", "2", "3", str(1 << 32)], "a client comes twice"),
        ("ranking", ["01"] * 5, "decision.ranking.0: is not a decimal string below"),
        ("threshold_bits", "1", "threshold_bits"),
        ("views", ["0"], "decision.views.1: Field required"),
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
        ("verdict", "thanked", "statement.verdict: Input should be 'used', "),
        ("dropout", 9, "statement.dropout: Input should be 1, 2 or 3"),
        ("dropout", True, "contradicts itself"),
        ("weight", {"samples": 1, "total": 2, "share": 0.25}, "contradicts itself"),
        ("has_committed", 1, "statement.has_committed: Input should be a valid boolean"),
    ],
)
def test_a_statement_that_contradicts_itself_is_refused(
    document: dict[str, Any], name: str, value: object, why: str
) -> None:
    with pytest.raises(EncodingError, match=why):
        proof_of(document | {"statement": document["statement"] | {name: value}})


def test_a_distance_that_differs_from_its_bits_is_refused(document: dict[str, Any]) -> None:
    rank = document["statement"]["rank"]
    for other, why in (
        (rank | {"distance": 0.5}, "contradicts itself"),
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
        ({"kind": "forgotten"}, "links.0: Input tag 'forgotten'"),
        ({"kind": ["banned"]}, "links.0: Input tag"),
        ([], "links.0: Input should be a valid dictionary"),
        ({"kind": "banned", "round": 1}, "links.0.banned: fields .* are missing or unknown"),
        (
            {"kind": "banned", "round": 2**64, "client": 1},
            "links.0.banned.round: Input should be less than",
        ),
        (
            {"kind": "banned", "round": 1, "client": 2**32},
            "links.0.banned.client: Input should be less than",
        ),
    ],
)
def test_what_is_no_link_of_heads_is_refused(link: object, why: str) -> None:
    with pytest.raises(EncodingError, match=why):
        validate_document(PathDocument, {"start": DIGEST, "links": [link]})


def test_links_of_all_three_kinds_survive_a_round_trip(honest: Run) -> None:
    path = make_proof(honest.ledger, honest.blobs, 5, ClientId(0), whole=True).path
    assert {one["kind"] for one in path_dict(path)["links"]} == {"decided", "abandoned", "banned"}
    assert validate_document(PathDocument, path_dict(path)).path() == path


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
