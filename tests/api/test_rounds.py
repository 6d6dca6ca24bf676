"""What is told of a round is what chain and blobs hold of it."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import httpx
import pytest

from ledger.chain.contract.deploy import connect
from ledger.chain.contract.ledger import read_manifest
from ledger.chain.embedded.reader import EmbeddedReader
from ledger.history.history import FoldedHistory
from ledger.history.round import HistoryRound
from ledger.protocol import encoding
from ledger.protocol.encoding import RegisteredClient, checksum
from ledger.protocol.signing import is_signed_by
from ledger.protocol.types import ClientId, Digest, Domain, Phase, Scores, Vote, VoteKind
from ledger.storage.blobs import FolderBlobs
from tests.api.conftest import CLIENTS, MEMBERS, ROUNDS, TRAINERS, read, refused, rounds_that_are


class Truth:
    """The same rounds, read without the service."""

    def __init__(self, home: Path, chain: EmbeddedReader) -> None:
        manifest = read_manifest(home / "runs" / "first" / "deployment.json")
        self.ledger = connect(chain, manifest)
        self.registry = self.ledger.registry()
        self.domain: Domain = manifest.domain()
        self.chain = chain
        self.history = FoldedHistory.of(self.ledger, FolderBlobs(home / "blobs"))

    def round(self, number: int) -> HistoryRound:
        one = self.history.round(number)
        assert one is not None
        return one

    def client(self, client: int) -> RegisteredClient:
        return self.registry[client]


@pytest.fixture(scope="module")
def truth(home: Path) -> Iterator[Truth]:
    with EmbeddedReader.open(home / "chain.sqlite") as chain:
        yield Truth(home, chain)


@pytest.fixture(scope="module")
def decided(client: httpx.Client, root: str) -> list[int]:
    found = rounds_that_are(client, root, "decided")
    assert found, "the run decides some rounds"
    return found


@pytest.fixture(scope="module")
def abandoned(client: httpx.Client, root: str) -> list[int]:
    found = rounds_that_are(client, root, "abandoned")
    assert found, "and abandons some"
    return found


def digest(text: str) -> Digest:
    return Digest(bytes.fromhex(text.removeprefix("0x")))


def test_every_round_is_told_in_numbers(client: httpx.Client, root: str, truth: Truth) -> None:
    for number in range(1, ROUNDS + 1):
        told, history = read(client, f"{root}/rounds/{number}"), truth.round(number)
        assert told["status"] == history.status
        assert told["seed"] == f"0x{history.seed.hex()}"
        assert (told["trainers"], told["members"]) == (TRAINERS, MEMBERS)
        assert told["committed"] == len(history.counted)
        end = history.end
        assert end is not None
        assert history.ended is not None
        if history.decided is not None:
            assert told["base"] == f"0x{history.decided.base.hex()}"
            assert told["reveal"] == f"0x{history.decided.reveal.hex()}"
            assert told["record"] == {
                "digest": f"0x{history.decided.record.hex()}",
                "available": True,
            }
        else:
            assert (told["base"], told["reveal"], told["record"]) == (None, None, None)
        assert told["head"] == f"0x{end.head.hex()}"
        assert told["next_seed"] == f"0x{end.next_seed.hex()}"
        assert told["as_of"]["number"] == told["ended"]["number"] == history.ended.block_number
        assert told["ended"]["time"] == truth.chain.block(history.ended.block_number).timestamp


def test_trainers_have_their_fate(
    client: httpx.Client, root: str, truth: Truth, decided: list[int]
) -> None:
    outcomes, reasons = set(), set()
    for number in decided:
        told, history = read(client, f"{root}/rounds/{number}/updates"), truth.round(number)
        assert [entry["client"] for entry in told["updates"]] == list(history.trainers)
        assert history.decided is not None
        for entry in told["updates"]:
            outcomes.add(entry["outcome"])
            word = history.commitments.get(entry["client"])
            assert entry["commitment"] == (f"0x{word.hex()}" if word else None)
            if word is not None:
                opened = encoding.commitment_of(entry["client"], digest(entry["payload"]))
                assert opened == word, "the payload is the one that was committed to"
            if entry["outcome"] == "dropped_out":
                assert entry["rank"] is None
                reasons.add((entry["reason"]["code"], entry["reason"]["name"]))
                assert (entry["reason"]["name"] == "no_commitment") == (word is None)
                continue
            assert entry["reason"] is None
            ranked = history.decided.ranking[entry["rank"]]
            assert encoding.word_client(ranked) == entry["client"]
            assert entry["distance"] == encoding.word_distance(ranked)
            assert encoding.float_bits(entry["distance"]) == int(entry["distance_bits"])
            chosen = entry["client"] in history.decided.accepted
            assert entry["outcome"] == ("accepted" if chosen else "not_accepted")
    assert outcomes == {"accepted", "dropped_out"}, "strategy 3 accepts every honest update"
    assert reasons == {(1, "no_commitment"), (3, "payload_malformed")}


def test_abandoned_round_has_no_ranking(
    client: httpx.Client, root: str, abandoned: list[int]
) -> None:
    told = read(client, f"{root}/rounds/{abandoned[0]}/updates")["updates"]
    assert {entry["outcome"] for entry in told} == {"undecided"}
    assert {entry["distance"] for entry in told} == {None}
    assert any(entry["commitment"] for entry in told)
    assert {entry["payload"] for entry in told} == {None}, "there is no record that opens it"


def test_every_vote_is_signed_for_what_the_answer_says(
    client: httpx.Client, root: str, truth: Truth, decided: list[int]
) -> None:
    for number in decided:
        told, history = read(client, f"{root}/rounds/{number}/votes"), truth.round(number)
        assert told["replies_needed"] == truth.history.fixed.replies == 3
        base = read(client, f"{root}/rounds/{number}")["base"]
        assert {c["base"] for c in told["certificates"]} == {base}
        assert [c["phase"] for c in told["certificates"]] == ["aggregation", "election"]
        for phase, certificate in zip(Phase, told["certificates"], strict=True):
            signed = [(VoteKind.REQUEST, certificate["primary"])]
            signed += [(VoteKind.REPLY, reply) for reply in certificate["replies"]]
            assert len(signed) > told["replies_needed"]
            for kind, one in signed:
                assert history.committee[one["place"]] == one["client"]
                assert is_signed(truth, number, phase, kind, certificate, one)
                other = certificate | {"base": certificate["set"]}
                assert not is_signed(truth, number, phase, kind, other, one)


def is_signed(
    truth: Truth,
    number: int,
    phase: Phase,
    kind: VoteKind,
    certificate: dict[str, Any],
    one: dict[str, Any],
) -> bool:
    vote = Vote(
        kind,
        number,
        phase,
        certificate["view"],
        digest(certificate["base"]),
        digest(certificate["set"]),
        digest(certificate["result"]),
    )
    address = truth.client(one["client"]).address
    return is_signed_by(address, truth.domain, vote, bytes.fromhex(one["signature"][2:]))


def opening(told: dict[str, Any]) -> encoding.ResultPreimage:
    return encoding.ResultPreimage(**{name: digest(text) for name, text in told.items()})


def test_score_claims_are_signed_and_give_the_recorded_root(
    client: httpx.Client, root: str, truth: Truth, decided: list[int]
) -> None:
    for number in decided:
        told = read(client, f"{root}/rounds/{number}/scores")
        assert told["record"]["available"]
        counted = [claim for claim in told["claims"] if claim["counted"]]
        leaves: list[encoding.Leaf] = [(c["member"], digest(c["digest"])) for c in counted]
        root_of = encoding.merkle_root(encoding.SCORES_LEAF, leaves)
        assert told["scores_root"] == f"0x{root_of.hex()}"
        assert encoding.set_digest(told["clients"]) == digest(told["clients_digest"])
        for claim in told["claims"]:
            assert (claim["reason"] is None) == claim["counted"]
            assert claim["vector"] is None
            scores = Scores(
                number,
                ClientId(claim["member"]),
                digest(told["base"]),
                digest(told["clients_digest"]),
                digest(claim["digest"]),
            )
            signature = bytes.fromhex(claim["signature"][2:])
            address = truth.client(claim["member"]).address
            assert is_signed_by(address, truth.domain, scores, signature)


def test_a_liar_is_named_with_its_lie(client: httpx.Client, root: str, decided: list[int]) -> None:
    claims = [
        (claim, told["clients"])
        for number in decided
        for told in [read(client, f"{root}/rounds/{number}/scores")]
        for claim in told["claims"]
    ]
    refused_claims = [(claim, clients) for claim, clients in claims if not claim["counted"]]
    assert refused_claims
    for claim, clients in refused_claims:
        assert claim["reason"] == {"code": 6, "name": "false_distance"}
        assert claim["named"] in clients
    assert {claim["named"] for claim, _ in claims if claim["counted"]} == {None}


def test_committee_is_listed_by_places(client: httpx.Client, root: str, truth: Truth) -> None:
    for number in range(1, ROUNDS + 1):
        told, history = read(client, f"{root}/rounds/{number}/committee"), truth.round(number)
        assert [member["client"] for member in told["committee"]] == list(history.committee)
        assert [member["place"] for member in told["committee"]] == list(range(MEMBERS))
        for member in told["committee"]:
            assert member["address"] == checksum(truth.client(member["client"]).address)
            word = history.commitments.get(member["client"])
            assert member["commitment"] == (f"0x{word.hex()}" if word else None)
            assert not member["empty_seat"]
        if number < ROUNDS:
            after = read(client, f"{root}/rounds/{number + 1}/committee")["committee"]
            shown = [member["client"] for member in told["next_committee"]]
            assert shown == [member["client"] for member in after]


def test_weights_sum_to_one(
    client: httpx.Client, root: str, truth: Truth, decided: list[int]
) -> None:
    for number in decided:
        told, history = read(client, f"{root}/rounds/{number}/aggregation"), truth.round(number)
        assert history.decided is not None
        assert [entry["client"] for entry in told["accepted"]] == list(history.decided.accepted)
        weights = [entry["weight"] for entry in told["accepted"]]
        shares = [Fraction(int(w["numerator"]), int(w["denominator"])) for w in weights]
        assert sum(shares) == 1
        assert [w["value"] for w in weights] == [float(share) for share in shares]
        assert told["form"] == {"code": 3, "name": "below_two"}
        bound = {
            name: told[name]
            for name in ("model", "updates_root", "scores_root", "ranking_digest", "reveal")
        }
        bound |= {"record": told["record"]["digest"]}
        result = encoding.aggregation_result(opening(bound))
        certificates = read(client, f"{root}/rounds/{number}/votes")["certificates"]
        assert [c["result"] for c in certificates] == [told["result"]] * 2
        assert told["result"] == f"0x{result.hex()}", "all that it binds is told"


@pytest.mark.parametrize("part", ["", "/updates", "/scores", "/votes", "/committee"])
def test_round_that_has_not_opened_is_not_found(client: httpx.Client, root: str, part: str) -> None:
    for number in (ROUNDS + 1, 2**32 - 1):
        told = refused(client.get(f"{root}/rounds/{number}{part}"), 404, "round-not-found")
        assert told["detail"] == f"round {number} has not opened; the newest is {ROUNDS}"
        assert told["instance"] == f"{root}/rounds/{number}{part}"


def test_address_needs_a_correct_checksum(client: httpx.Client, root: str, address: str) -> None:
    deployments = root.rpartition("/")[0]
    told = read(client, f"{deployments}/{address.lower()}")
    assert told["address"] == address
    wrong = address[:2] + address[2:].swapcase()
    refused(client.get(f"{deployments}/{wrong}"), 422, "request-invalid")


# What is held against clients, with the statements it rests on.


def test_all_that_rounds_hold_against_clients_is_listed(client: httpx.Client, root: str) -> None:
    told = read(client, f"{root}/evidence", limit=100, order="oldest")
    found: dict[str, list[tuple[int, int]]] = {"ban": [], "refused_scores": [], "incident": []}
    dropouts = found["dropout"] = []
    for entry in told["evidence"]:
        found[entry["kind"]].append((entry["round"], entry["client"]))
    rounds = read(client, f"{root}/rounds", full="true", order="oldest")["rounds"]
    assert told["scanned"] == len(rounds)
    assert found["ban"] == [(one["round"], banned) for one in rounds for banned in one["banned"]]
    assert found["ban"]
    committees = [(one["round"], one["parts"]["committee"]) for one in rounds]
    refusals = [
        (t, m["client"]) for t, members in committees for m in members for _ in m["refused"]
    ]
    assert sorted(found["refused_scores"]) == sorted(refusals)
    assert found["refused_scores"]
    assert len(found["incident"]) == sum(len(one["parts"]["votes"]["incidents"]) for one in rounds)
    assert found["incident"]
    updates = [(one["round"], each) for one in rounds for each in one["parts"]["updates"]]
    out = [(t, each["client"]) for t, each in updates if each["outcome"] == "dropped_out"]
    seats = [(t, each) for t, members in committees for each in members if not each["empty_seat"]]
    assert sorted(dropouts) == sorted(out + [(t, m["client"]) for t, m in seats if m["reason"]])
    assert out


def test_evidence_against_one_client(client: httpx.Client, root: str) -> None:
    whole = read(client, f"{root}/evidence", limit=100)["evidence"]
    for number in {entry["client"] for entry in whole}:
        own = read(client, f"{root}/evidence", limit=100, client=number)["evidence"]
        assert own == [entry for entry in whole if entry["client"] == number]
    refused(client.get(f"{root}/evidence?client={CLIENTS}"), 404, "client-not-found")
