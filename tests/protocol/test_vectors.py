"""The protocol gives what independent tools gave (`tests/vectors/protocol-v1.json`).

The environment variable CMFL_VECTORS names another file of the same form to read instead.
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ledger.protocol import encoding, merkle, sampling, signing
from ledger.protocol.aggregation import aggregate
from ledger.protocol.consensus import primary_place
from ledger.protocol.election import elect
from ledger.protocol.errors import ParametersError
from ledger.protocol.parameters import Parameters
from ledger.protocol.scoring import committee_distances, spread_threshold
from ledger.protocol.selection import rank, select
from ledger.protocol.types import (
    Address,
    ClientId,
    Commitment,
    Digest,
    Domain,
    Phase,
    Scores,
    Scoring,
    Strategy,
    Vote,
    VoteKind,
)

COMMITTED = Path(__file__).parents[1] / "vectors" / "protocol-v1.json"
VECTORS = json.loads(Path(os.environ.get("CMFL_VECTORS", COMMITTED)).read_text())


def cases(key: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("case", VECTORS[key], ids=range(len(VECTORS[key])))


def digest(text: str) -> Digest:
    return Digest(bytes.fromhex(text[2:]))


def clients(values: list[int]) -> tuple[ClientId, ...]:
    return tuple(ClientId(value) for value in values)


def floats(values: list[str]) -> np.ndarray[Any, np.dtype[np.float64]]:
    return np.array([float.fromhex(value) for value in values])


def test_no_kind_of_vector_is_left_untested() -> None:
    tested = {"version", "sampling", "sizes", "rounds", "aggregation", "primary", "set_digest"}
    tested |= {"merkle", "eip712", "commitments", "aggregation_result"}
    tested |= {"first_committee", "redrawn_committee"}
    assert set(VECTORS) == tested
    assert VECTORS["version"] == encoding.PROTOCOL_VERSION


@cases("sampling")
def test_sampling_from_the_seed(case: dict[str, Any]) -> None:
    committee = clients(case["committee"])
    sampled = sampling.sample_trainers(
        digest(case["seed"]), case["clients"], committee, case["trainers"]
    )
    assert list(sampled) == case["expected"]


@cases("sizes")
def test_sizes_of_a_round(case: dict[str, Any]) -> None:
    def parameters() -> Parameters:
        return Parameters(
            clients=case["clients"],
            active_rate=case["active_rate"],
            committee_rate=case["committee_rate"],
            aggregation_rate=case["aggregation_rate"],
            rounds=1,
            dimension=1,
        )

    if case["refused"]:
        with pytest.raises(ParametersError):
            parameters()
        return
    sizes = parameters()
    found = (sizes.active, sizes.members, sizes.trainers, sizes.accepted)
    assert found == (case["active"], case["members"], case["trainers"], case["accepted"])


@cases("rounds")
def test_a_rounds_distances_ranking_selection_and_election(case: dict[str, Any]) -> None:
    expected = case["expected"]
    distances = np.array([floats(row) for row in case["distances"]])
    combined = committee_distances(distances, Scoring(case["scoring"]))
    assert [value.hex() for value in combined.tolist()] == expected["distance"]

    ranking = rank(zip(clients(case["trainers"]), combined.tolist(), strict=True))
    assert [encoding.word_client(word) for word in ranking] == expected["ranking"]
    assert [f"0x{word:064x}" for word in ranking] == expected["ranking_words"]
    assert encoding.ranking_digest(ranking) == digest(expected["ranking_digest"])

    others = [np.delete(floats(row), place) for place, row in enumerate(case["member_distances"])]
    threshold = spread_threshold(others)
    assert threshold.hex() == expected["threshold"]
    for strategy, name in (
        (Strategy.NEAREST, "strategy_1"),
        (Strategy.FARTHEST, "strategy_2"),
        (Strategy.WITHIN_SPREAD, "strategy_3"),
    ):
        bits = encoding.float_bits(threshold)
        chosen = select(ranking, strategy, case["accepted_size"], bits)
        assert list(chosen) == expected[name]
    assert list(elect(ranking, len(case["members"]))) == expected["next_committee"]


@cases("aggregation")
def test_the_aggregate_bit_for_bit(case: dict[str, Any]) -> None:
    model = np.frombuffer(digest(case["model"]), dtype="<f4")
    count = len(case["samples"])
    if isinstance(case["updates"], list):
        rows = [np.frombuffer(digest(row), dtype="<f4") for row in case["updates"]]
    else:
        rows = [generated_update(row, len(model)) for row in range(count)]
    joined = b"".join(row.tobytes() for row in rows)
    assert hashlib.sha256(joined).hexdigest() == case["updates_sha256"]
    updates = {ClientId(index): row for index, row in enumerate(rows)}
    samples = {ClientId(index): value for index, value in enumerate(case["samples"])}
    result = encoding.vector_bytes(aggregate(model, updates, samples, case["eta"]))
    assert hashlib.sha256(result).hexdigest() == case["expected_sha256"]
    if case["expected"] is not None:
        assert result == digest(case["expected"])


def generated_update(row: int, dimension: int) -> np.ndarray[Any, np.dtype[np.float32]]:
    """Return the stated formula of updates that are too long to list."""
    column = np.arange(dimension, dtype=np.int64)
    base = ((row * 7919 + column * 104729) % 20011 - 10005) / 3001
    return (base * 10.0 ** ((row % 7) - 3)).astype(np.float32)


@cases("primary")
def test_the_primary_of_a_view(case: dict[str, Any]) -> None:
    phase, committee = Phase(case["phase"]), case["committee"]
    place = primary_place(digest(case["seed"]), phase, case["view"], len(committee))
    assert place == case["expected_position"]
    assert committee[place] == case["expected_client"]


@cases("set_digest")
def test_the_digest_of_a_set(case: dict[str, Any]) -> None:
    assert encoding.set_digest(clients(case["clients"])) == digest(case["expected"])


@cases("merkle")
def test_merkle_roots_and_proofs(case: dict[str, Any]) -> None:
    types = {"updates": merkle.UPDATE_LEAF, "scores": merkle.SCORES_LEAF}[case["kind"]]
    assert list(types) == case["types"]
    leaves = [tuple(leaf_value(value) for value in leaf) for leaf in case["leaves"]]
    assert merkle.root(types, leaves) == digest(case["expected_root"])
    for leaf, siblings in zip(leaves, case["proofs"], strict=False):
        proof = merkle.proof(types, leaves, leaf)
        assert [f"0x{sibling.hex()}" for sibling in proof] == siblings
        assert merkle.is_proven(types, leaf, proof, digest(case["expected_root"]))


def leaf_value(value: object) -> object:
    """Return a leaf's field: hex is a digest, a decimal string a number too big for JSON."""
    if not isinstance(value, str):
        return value
    return digest(value) if value.startswith("0x") else int(value)


@cases("eip712")
def test_typed_data_and_signatures(case: dict[str, Any]) -> None:
    domain = Domain(case["domain"]["chainId"], Address(digest(case["domain"]["verifyingContract"])))
    assert case["domain"]["name"] == signing.NAME
    assert case["domain"]["version"] == signing.VERSION
    message = message_of(case["primaryType"], case["message"])
    assert signing.typed_digest(domain, message) == digest(case["expected_digest"])
    signer = signing.KeySigner(digest(case["private_key"]))
    assert signing.sign(signer, domain, message) == digest(case["expected_signature"])
    assert signer.address == Address(digest(case["signer"]))
    assert signing.is_signed_by(signer.address, domain, message, digest(case["expected_signature"]))


def message_of(kind: str, fields: dict[str, Any]) -> signing.Message:
    if kind == "Commitment":
        return Commitment(fields["round"], ClientId(fields["client"]), digest(fields["payload"]))
    if kind == "Scores":
        return Scores(fields["round"], ClientId(fields["member"]), digest(fields["digest"]))
    numbers = (fields["round"], Phase(fields["phase"]), fields["view"], fields["timestamp"])
    return Vote(VoteKind(kind), *numbers, digest(fields["set"]), digest(fields["result"]))


def test_the_running_digest_of_commitments() -> None:
    running = Digest(bytes(32))
    for case in VECTORS["commitments"]:
        running = encoding.commitments_digest(
            running, ClientId(case["client"]), digest(case["payload"])
        )
        assert running == digest(case["expected"])


@cases("aggregation_result")
def test_the_aggregation_result(case: dict[str, Any]) -> None:
    result = encoding.aggregation_result(
        digest(case["model"]),
        digest(case["updates_root"]),
        digest(case["scores_root"]),
        digest(case["ranking_digest"]),
        int(case["threshold_bits"]),
    )
    assert result == digest(case["expected"])


@cases("first_committee")
def test_the_first_committee(case: dict[str, Any]) -> None:
    committee = sampling.first_committee(digest(case["config"]), case["clients"], case["members"])
    assert list(committee) == case["expected"]


@cases("redrawn_committee")
def test_the_committee_after_an_abandoned_round(case: dict[str, Any]) -> None:
    committee = sampling.redrawn_committee(
        digest(case["seed"]), case["clients"], case["members"], clients(case["banned"])
    )
    assert list(committee) == case["expected"]
