"""The protocol gives what independent tools gave (`tests/vectors/protocol-v3.json`)."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from ledger.distances import fast_distances, fast_server_step
from ledger.protocol import encoding, inputs, signing
from ledger.protocol.encoding import RegisteredClient
from ledger.protocol.errors import ParametersError
from ledger.protocol.inputs import primary_seat, round_closing
from ledger.protocol.judgement import sets_of, weights_of
from ledger.protocol.ledger_state import (
    AbandonmentLink,
    BanLink,
    DecisionLink,
    Deployment,
    MinedCommitment,
    registry_batches,
)
from ledger.protocol.parameters import Parameters, parts_per_million, replies_needed
from ledger.protocol.rules.direction import (
    clip_factors,
    crowding_of,
    direction_distances,
    displacement,
    exact_norm,
    length_factors,
    quantile_place,
    travel_weight,
)
from ledger.protocol.rules.distance import (
    DIRECTION,
    Distances,
    ServerStep,
    plain_distances,
    plain_server_step,
)
from ledger.protocol.rules.selection import aggregate, elect, mean_distances, rank
from ledger.protocol.types import (
    NO_DIGEST,
    PROTOCOL_VERSION,
    AcceptanceForm,
    Address,
    Beacon,
    ClientId,
    Commitment,
    Digest,
    Domain,
    Phase,
    Quorum,
    Scores,
    Vote,
    VoteKind,
)

COMMITTED = Path(__file__).parents[1] / "vectors" / "protocol-v3.json"
VECTORS = json.loads(Path(os.environ.get("CMFL_VECTORS", COMMITTED)).read_text())
BELOW_TWO = AcceptanceForm(3)
TESTED = {"version", "commitments"}


def cases(key: str) -> pytest.MarkDecorator:
    TESTED.add(key)
    return pytest.mark.parametrize("case", VECTORS[key], ids=range(len(VECTORS[key])))


STEPS = pytest.mark.parametrize("step", [plain_server_step, fast_server_step()])


def raw(text: str) -> bytes:
    return bytes.fromhex(text.removeprefix("0x"))


def digest(text: str) -> Digest:
    return Digest(raw(text))


def clients(values: list[int]) -> tuple[ClientId, ...]:
    return tuple(ClientId(value) for value in values)


def floats(values: list[str]) -> NDArray[np.float64]:
    return np.array([float.fromhex(value) for value in values])


def test_no_kind_of_vector_is_left_untested() -> None:
    assert set(VECTORS) == TESTED
    assert VECTORS["version"] == PROTOCOL_VERSION
    assert all(VECTORS[key] for key in TESTED)


@cases("sampling")
def test_sampling_from_the_seed(case: dict[str, Any]) -> None:
    excluded = clients(case["committee"] + case["banned"])
    sampled = inputs.sample_trainers(
        digest(case["seed"]), case["clients"], excluded, case["trainers"]
    )
    assert list(sampled) == case["expected"]


@cases("sizes")
def test_sizes_of_a_round(case: dict[str, Any]) -> None:
    rates: dict[str, Any] = {
        f"{name}_ppm": parts_per_million(name, case[f"{name}_rate"])
        for name in ("active", "committee", "aggregation")
    }
    if case["refused"]:
        with pytest.raises(ParametersError):
            Parameters(clients=case["clients"], rounds=1, dimension=1, **rates)
        return
    sizes = Parameters(clients=case["clients"], rounds=1, dimension=1, **rates)
    found = (sizes.active, sizes.members, sizes.trainers, sizes.accepted)
    assert found == (case["active"], case["members"], case["trainers"], case["accepted"])


@cases("replies")
def test_replies_that_decide(case: dict[str, Any]) -> None:
    for quorum in Quorum:
        assert replies_needed(case["members"], quorum) == case[quorum.value]


@cases("rounds")
def test_a_rounds_distances_ranking_selection_and_election(case: dict[str, Any]) -> None:
    expected = case["expected"]
    assert case["scoring"] == "mean"
    combined = mean_distances(np.array([floats(row) for row in case["distances"]]))
    assert [value.hex() for value in combined.tolist()] == expected["distance"]

    ranking = rank(zip(clients(case["trainers"]), combined.tolist(), strict=True))
    assert [encoding.word_client(word) for word in ranking] == expected["ranking"]
    assert [f"0x{word:064x}" for word in ranking] == expected["ranking_words"]
    assert encoding.ranking_digest(ranking) == digest(expected["ranking_digest"])
    for form in (AcceptanceForm.FIRST, AcceptanceForm.LAST):
        _, accepted, candidates = sets_of(sizes_of(form, case), ranking)
        assert list(accepted) == expected[f"strategy_{int(form)}"]
        assert list(candidates) == expected["next_committee"]


def sizes_of(form: AcceptanceForm, case: dict[str, Any]) -> Deployment:
    trainers, size = len(case["trainers"]), case.get("accepted_size", len(case["trainers"]))
    share = 10**6 * size // trainers
    sizes = (trainers, trainers, len(case["members"]), share, form, 1, 1, 3, 1)
    return Deployment(NO_DIGEST, NO_DIGEST, *sizes, Beacon.NONE, NO_DIGEST)


@cases("strategy_3")
@pytest.mark.parametrize("computed_by", [plain_distances, fast_distances()])
def test_a_round_of_strategy_3(computed_by: Distances, case: dict[str, Any]) -> None:
    updates = {ClientId(int(key)): vector(row) for key, row in case["updates"].items()}
    travel = None if case["model_s"] is None else travel_of(case)
    trainers, counted = clients(case["trainers"]), clients(case["counted"])
    assert counted == tuple(c for c in clients(case["members"]) if updates[c].any())

    found = computed_by(DIRECTION, travel, updates, counted)
    column = {client: place for place, client in enumerate(sorted(updates))}
    for key, expected in case["expected_distances"].items():
        client = ClientId(int(key))
        c, f = (float.fromhex(case[name].get(key, "0x1p0")) for name in "cf")
        for row, claim in zip(found, floats(expected).tolist(), strict=True):
            truth = float(row[column[client]])
            assert abs(claim - truth) <= 1e-9 * truth + 1e-9 * f * c**5

    combined = mean_distances(found[:, [column[client] for client in trainers]])
    ranking = rank(zip(trainers, combined.tolist(), strict=True))
    assert [encoding.word_client(word) for word in ranking] == case["expected_ranking"]
    _, accepted, candidates = sets_of(sizes_of(BELOW_TWO, case), ranking)
    assert list(accepted) == case["expected_accepted"]
    assert list(candidates) == case["expected_candidates"]
    elected = elect(candidates, len(case["members"]), digest(case["next_seed"]))
    assert list(elected) == case["expected_committee"]


@cases("strategy_3")
def test_the_parts_of_a_distance_of_strategy_3(case: dict[str, Any]) -> None:
    updates = {ClientId(int(key)): vector(row) for key, row in sorted(case["updates"].items())}
    clients_with_length = [client for client in sorted(updates) if updates[client].any()]
    units = np.array([unit(updates[client]) for client in clients_with_length])
    travel = None if case["model_s"] is None else travel_of(case)
    along = units @ unit(travel) if travel is not None and travel.any() else np.zeros(len(units))
    assert travel_weight(along) == pytest.approx(float.fromhex(case["b"]), rel=1e-9)
    crowding = crowding_of(units @ units.T, along)
    assert crowding.base == pytest.approx(float.fromhex(case["base"]), rel=1e-9)
    for name, values in (("crowding", crowding.values), ("c", crowding.excess)):
        expected = [float.fromhex(case[name][str(client)]) for client in clients_with_length]
        assert values.tolist() == pytest.approx(expected, rel=1e-9, abs=1e-15), name
    factors = length_factors(np.array([exact_norm(updates[client]) for client in sorted(updates)]))
    expected_factors = [float.fromhex(case["f"][str(client)]) for client in sorted(updates)]
    assert factors.tolist() == pytest.approx(expected_factors, rel=1e-12)
    margins = 1e-9 * factors
    margins[[updates[client].any() for client in sorted(updates)]] *= crowding.excess**5
    assert direction_distances(updates, travel).margins == pytest.approx(margins, rel=1e-6)


@STEPS
@cases("strategy_3")
def test_the_model_of_strategy_3_bit_for_bit(case: dict[str, Any], step: ServerStep) -> None:
    updates = {ClientId(int(key)): vector(row) for key, row in case["updates"].items()}
    accepted = clients(case["expected_accepted"])
    norms = sorted(exact_norm(update) for update in updates.values())
    assert norms[quantile_place(len(norms))].hex() == case["expected_bound"]

    weights = weights_of(BELOW_TWO, (), accepted)
    assert set(weights.values()) == {1}
    chosen = {client: updates[client] for client in accepted}
    model = vector(case["model_t"])
    result = aggregate(model, chosen, weights, case["eta"], clip_factors(chosen, updates), step)
    if case["expected_model"] is None:
        assert not np.isfinite(result).all()
    else:
        assert encoding.vector_bytes(result) == raw(case["expected_model"])


def vector(text: str) -> NDArray[np.float32]:
    return np.frombuffer(raw(text), dtype="<f4")


def unit(row: NDArray[np.float32]) -> NDArray[np.float64]:
    return row.astype(np.float64) / exact_norm(row)


def travel_of(case: dict[str, Any]) -> NDArray[np.float32]:
    return displacement(vector(case["model_s"]), vector(case["model_t"]))


@STEPS
@cases("aggregation")
def test_the_aggregate_bit_for_bit(case: dict[str, Any], step: ServerStep) -> None:
    model = np.frombuffer(raw(case["model"]), dtype="<f4")
    count = len(case["samples"])
    if isinstance(case["updates"], list):
        rows = [np.frombuffer(raw(row), dtype="<f4") for row in case["updates"]]
    else:
        rows = [generated_update(row, len(model)) for row in range(count)]
    joined = b"".join(row.tobytes() for row in rows)
    assert hashlib.sha256(joined).hexdigest() == case["updates_sha256"]
    updates = {ClientId(index): row for index, row in enumerate(rows)}
    samples = {ClientId(index): value for index, value in enumerate(case["samples"])}
    result = encoding.vector_bytes(aggregate(model, updates, samples, case["eta"], step=step))
    assert hashlib.sha256(result).hexdigest() == case["expected_sha256"]
    if case["expected"] is not None:
        assert result == raw(case["expected"])


def generated_update(row: int, dimension: int) -> NDArray[np.float32]:
    """Return the stated formula of updates that are too long to list."""
    column = np.arange(dimension, dtype=np.int64)
    base = ((row * 7919 + column * 104729) % 20011 - 10005) / 3001
    return (base * 10.0 ** ((row % 7) - 3)).astype(np.float32)


def test_commitments_and_their_running_digest() -> None:
    running = NO_DIGEST
    for case in VECTORS["commitments"]:
        client = ClientId(case["client"])
        commitment = encoding.commitment_of(client, digest(case["payload"]))
        assert commitment == digest(case["commitment"])
        running = encoding.commitments_digest(running, client, commitment)
        assert running == digest(case["expected"])


@cases("closing")
def test_the_closing_block_and_the_base(case: dict[str, Any]) -> None:
    mined = [
        MinedCommitment(entry["block"], ClientId(entry["client"]), digest(entry["commitment"]))
        for entry in case["commitments"]
    ]
    expected = set(clients(case["active"])) - set(clients(case["banned_when_opened"]))
    end = case["opened_block"] + case["commit_blocks"]
    closing = round_closing(end, expected, case["final_block"], mined)
    if case["expected_closing_block"] is None:
        assert closing is None
        assert case["expected_base"] is None
        return
    assert closing is not None
    assert closing.block == case["expected_closing_block"]
    assert closing.base == digest(case["expected_base"])


@cases("reveal")
def test_the_reveal(case: dict[str, Any]) -> None:
    ranked = clients(case["ranked"])
    payloads = dict(zip(ranked, map(digest, case["payloads"]), strict=True))
    assert encoding.reveal_of(payloads, ranked) == digest(case["expected"])


@cases("seeds")
def test_seeds(case: dict[str, Any]) -> None:
    config, seed, reveal, beacon = (digest(case[k]) for k in ("config", "seed", "reveal", "beacon"))
    assert encoding.first_seed(config, beacon) == digest(case["expected_first"])
    assert encoding.next_seed(seed, reveal, beacon) == digest(case["expected_next"])
    after = encoding.seed_after_abandoned(seed, beacon)
    assert after == digest(case["expected_after_abandoned"])


def before(case: dict[str, Any]) -> tuple[int, Digest, Digest]:
    return case["round"], digest(case["seed"]), digest(case["commitments"])


@cases("heads")
def test_the_head_after_a_decision(case: dict[str, Any]) -> None:
    (one, other), signers = case["views"], [int(bitmap, 16) for bitmap in case["signers"]]
    incidents = digest(case["incidents"])
    votes = encoding.votes_digest((one, other), (signers[0], signers[1]), incidents)
    sets = digest(case["accepted_digest"]), digest(case["next_committee_digest"])
    link = DecisionLink(*before(case), *sets, digest(case["result"]), votes)
    assert link.head_after(digest(case["head"])) == digest(case["expected"])


@cases("abandoned_heads")
def test_the_head_after_an_abandoned_round(case: dict[str, Any]) -> None:
    committee = digest(case["drawn_committee_digest"])
    link = AbandonmentLink(*before(case), committee)
    assert link.head_after(digest(case["head"])) == digest(case["expected"])


@cases("ban_heads")
def test_the_head_after_a_ban(case: dict[str, Any]) -> None:
    link = BanLink(case["round"], ClientId(case["client"]))
    assert link.head_after(digest(case["head"])) == digest(case["expected"])


@cases("registry_digest")
def test_the_digest_of_a_registry(case: dict[str, Any]) -> None:
    registry = [
        RegisteredClient(Address(raw(address)), samples) for address, samples in case["registry"]
    ]
    found, _ = registry_batches([encoding.registry_word(client) for client in registry])
    assert found == digest(case["expected"])


@cases("primary")
def test_the_primary_of_a_view(case: dict[str, Any]) -> None:
    phase, committee = Phase(case["phase"]), case["committee"]
    place = primary_seat(digest(case["seed"]), phase, case["view"], len(committee))
    assert place == case["expected_position"]
    assert committee[place] == case["expected_client"]


@cases("set_digest")
def test_the_digest_of_a_set(case: dict[str, Any]) -> None:
    assert encoding.set_digest(clients(case["clients"])) == digest(case["expected"])


@cases("aggregation_result")
def test_the_aggregation_result(case: dict[str, Any]) -> None:
    opening = encoding.ResultPreimage(
        digest(case["model"]),
        digest(case["updates_root"]),
        digest(case["scores_root"]),
        digest(case["ranking_digest"]),
        digest(case["reveal"]),
        digest(case["record"]),
    )
    assert encoding.aggregation_result(opening) == digest(case["expected"])


@cases("drawn_committee")
def test_a_drawn_committee(case: dict[str, Any]) -> None:
    committee = inputs.drawn_committee(
        digest(case["seed"]), case["clients"], case["members"], clients(case["banned"])
    )
    assert list(committee) == case["expected"]


@cases("merkle")
def test_merkle_roots_and_proofs(case: dict[str, Any]) -> None:
    types = {"updates": encoding.UPDATE_LEAF, "scores": encoding.SCORES_LEAF}[case["kind"]]
    assert list(types) == case["types"]
    leaves = [tuple(leaf_value(value) for value in leaf) for leaf in case["leaves"]]
    assert encoding.merkle_root(types, leaves) == digest(case["expected_root"])
    for leaf, siblings in zip(leaves, case["proofs"], strict=False):
        proof = encoding.merkle_proof(types, leaves, leaf)
        assert [f"0x{sibling.hex()}" for sibling in proof] == siblings
        assert encoding.root_from_proof(types, leaf, proof) == digest(case["expected_root"])


def leaf_value(value: object) -> object:
    """Return a leaf's field: hex is a digest, a decimal string a number too big for JSON."""
    if not isinstance(value, str):
        return value
    return digest(value) if value.startswith("0x") else int(value)


def domain_in(named: dict[str, Any]) -> Domain:
    contract = Address(raw(named["verifyingContract"]))
    return Domain(named["chainId"], contract, digest(named["salt"]))


@cases("eip712")
def test_typed_data_and_signatures(case: dict[str, Any]) -> None:
    domain = domain_in(case["domain"])
    assert case["domain"]["name"] == signing.NAME
    assert case["domain"]["version"] == signing.VERSION
    fields = ",".join(f"{kind} {name}" for name, kind in map(type_and_name, case["fields"]))
    assert signing.TYPES[case["primaryType"]] == fields
    message = message_of(case["primaryType"], case["message"])
    assert signing.typed_digest(domain, message) == digest(case["expected_digest"])
    signer = signing.KeySigner(raw(case["private_key"]))
    assert signing.sign(signer, domain, message) == raw(case["expected_signature"])
    assert signer.address == Address(raw(case["signer"]))
    assert signing.is_signed_by(signer.address, domain, message, raw(case["expected_signature"]))


@cases("domain")
def test_the_salt_of_a_domain(case: dict[str, Any]) -> None:
    parts = (digest(case[name]) for name in ("config", "registry", "beacon"))
    salt = encoding.domain_salt(*parts)
    assert salt == digest(case["expected_salt"])
    domain = Domain(case["chain_id"], Address(raw(case["contract"])), salt)
    assert signing.domain_separator(domain) == digest(case["expected_separator"])


def type_and_name(field: list[str]) -> tuple[str, str]:
    name, kind = field
    return name, kind


def message_of(kind: str, fields: dict[str, Any]) -> signing.Message:
    number = fields["round"]
    if kind == "Commitment":
        return Commitment(number, ClientId(fields["client"]), digest(fields["commitment"]))
    base = digest(fields["base"])
    if kind == "Scores":
        claimed = digest(fields["clients"]), digest(fields["digest"])
        return Scores(number, ClientId(fields["member"]), base, *claimed)
    where = (number, Phase(fields["phase"]), fields["view"], base)
    return Vote(VoteKind(kind), *where, digest(fields["set"]), digest(fields["result"]))
