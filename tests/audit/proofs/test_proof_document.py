"""What a proof's document may hold: each field is refused by its name where it cannot be."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from ledger.audit.proofs.paths import path_dict, path_of
from ledger.audit.proofs.proof_document import as_dict, proof_of
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
        ("format", "cmfl-round-bundle", "is not cmfl-client-proof version 2"),
        ("version", 1, "is not cmfl-client-proof version 2"),
        ("version", True, "version is not of type int"),
        ("chain_id", 2**64, "is not a whole number of 64 bits"),
        ("address", "0x" + "ab" * 20, "has another EIP-55 checksum"),
        ("address", "0xab", "is not 0x and 40 hex digits"),
        ("genesis_hash", "0x11", "is not 32 bytes"),
        ("genesis_hash", DIGEST.upper(), "is not 0x and hex digits"),
        ("configuration", "0x80", "fields .* are missing or not known"),
        ("round", 0, "round 0 is none of the run's 5"),
        ("round", 6, "round 6 is none of the run's 5"),
        ("client", 14, "client 14 is none of the run's 14"),
        ("client", -1, "is not a whole number of 32 bits"),
        ("committee", [1, 2, 3, 4], "committee of 4 is not of 5"),
        ("committee", [1, 2, 3, 4, 4], "a client comes twice"),
        ("committee", [0] * 161, "is not a list of at most 160"),
        ("bans", [[4, 2]], "a ban in round 4 is not before round 4"),
        ("bans", [[1, 2, 3]], "is not a list of 2"),
        ("commitments", [[14, DIGEST]], "client 14 is none of the run's 14"),
        ("commitments", [[1, DIGEST], [1, DIGEST]], "a client comes twice"),
        ("payload", 7, "is not 0x and hex digits of 32 bytes"),
        ("signature", "0x11", "is not 65 bytes"),
        ("siblings", [DIGEST] * 17, "is not a list of at most 16"),
        ("committed_at", {}, "committed_at: fields .* are missing"),
        ("decision", None, "record is given|siblings is given"),
        ("record", "0x" + "00" * 1_000_001, "is not 0x and hex digits of 1000000 bytes"),
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
        ("ranking", ["01"] * 5, "is not a decimal string"),
        ("threshold_bits", "1", "threshold_bits 1, where none is used"),
        ("threshold_bits", str(0x7FF << 52), "are not of a finite number"),
        ("views", ["0"], "is not a list of 2"),
        ("signers", ["0", str(2**256)], "is not a whole number of 256 bits"),
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
        ("verdict", "thanked", "verdict 'thanked' is none of used, "),
        ("dropout", 9, "dropout 9 is none of 1, 2, 3"),
        ("dropout", True, "dropout True is none of 1, 2, 3"),
        ("weight", {"samples": 1, "total": 0, "share": 0.5}, "total 0 is not above 0"),
        ("weight", {"samples": 1, "total": 2, "share": 0.25}, "contradicts itself"),
        ("has_committed", 1, "has_committed is not of type bool"),
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
        (rank | {"distance_bits": str(0x7FF << 52)}, "is not the pattern of a finite number"),
    ):
        with pytest.raises(EncodingError, match=why):
            proof_of(document | {"statement": document["statement"] | {"rank": other}})


@pytest.mark.parametrize(
    ("link", "why"),
    [
        ({"kind": "forgotten"}, "is no link of heads"),
        ({"kind": ["banned"]}, "is no link of heads"),
        ([], "is no link of heads"),
        ({"kind": "banned", "round": 1}, "are missing or not known"),
        ({"kind": "banned", "round": 2**64, "client": 1}, "is not a whole number of 64 bits"),
        ({"kind": "banned", "round": 1, "client": 2**32}, "is not a whole number of 32 bits"),
    ],
)
def test_what_is_no_link_of_heads_is_refused(link: object, why: str) -> None:
    with pytest.raises(EncodingError, match=why):
        path_of({"start": DIGEST, "links": [link]})


def test_links_of_all_three_kinds_survive_a_round_trip(honest: Run) -> None:
    path = make_proof(honest.ledger, honest.blobs, 5, ClientId(0), whole=True).path
    assert {one["kind"] for one in path_dict(path)["links"]} == {"decided", "abandoned", "banned"}
    assert path_of(path_dict(path)) == path
