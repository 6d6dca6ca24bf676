"""What is held against clients, with the statements it rests on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ledger.protocol.signing import is_signed_by
from ledger.protocol.types import ClientId, Phase, Scores, Vote, VoteKind
from tests.api.conftest import CLIENTS, read, refused
from tests.api.test_rounds import Truth, digest, truth  # noqa: F401 - a fixture

if TYPE_CHECKING:
    import httpx


def test_all_that_rounds_hold_against_clients_is_listed(client: httpx.Client, root: str) -> None:
    told = read(client, f"{root}/evidence", limit=100, order="oldest")
    found: dict[str, list[tuple[int, int]]] = {"ban": [], "refused_scores": [], "incident": []}
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


def test_a_bans_two_statements_are_the_clients_own(
    client: httpx.Client,
    root: str,
    truth: Truth,  # noqa: F811
) -> None:
    bans = [e for e in read(client, f"{root}/evidence", limit=100)["evidence"] if e["ban"]]
    for entry in bans:
        ban = entry["ban"]
        first, second = ban["statements"]
        assert first != second
        address = truth.client(entry["client"]).address
        one = truth.round(entry["round"])
        for said in (first, second):
            about = digest(said["base"]), digest(said["set"])
            if said["kind"] == "Scores":
                claims = [
                    Scores(one.round, ClientId(entry["client"]), *about, digest(said["digest"]))
                ]
                statements: list[Scores | Vote] = [*claims]
            else:
                kind = VoteKind(said["kind"])
                statements = [
                    Vote(kind, one.round, phase, view, *about, digest(said["result"]))
                    for phase in Phase
                    for view in range(6)
                ]
            signature = bytes.fromhex(said["signature"][2:])
            assert any(
                is_signed_by(address, truth.domain, statement, signature)
                for statement in statements
            )
        assert ban["signed_twice"]["name"] in {"request", "reply", "scores"}


def test_evidence_against_one_client(client: httpx.Client, root: str) -> None:
    whole = read(client, f"{root}/evidence", limit=100)["evidence"]
    for number in {entry["client"] for entry in whole}:
        own = read(client, f"{root}/evidence", limit=100, client=number)["evidence"]
        assert own == [entry for entry in whole if entry["client"] == number]
    refused(client.get(f"{root}/evidence?client={CLIENTS}"), 404, "client-not-found")
