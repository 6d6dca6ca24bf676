"""Pages hold every entry once, in order, and their cursors cannot be carried elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.history.pages import (
    MAX_CURSOR,
    MAX_SCANNED,
    CursorError,
    decode_cursor,
    encode_cursor,
    page_width,
)
from ledger.history.queries import RoundQuery
from ledger.history.status import AskedRole, RoundStatus
from ledger.protocol.types import ClientId
from tests.api.conftest import CLIENTS, ROUNDS, read, refused

if TYPE_CHECKING:
    import httpx


def walk(http: httpx.Client, path: str, entries: str, **parameters: Any) -> list[Any]:
    """Return all entries, page by page."""
    found: list[Any] = []
    for _ in range(100):
        page = read(http, path, **parameters)
        assert len(page[entries]) <= parameters["limit"]
        found += page[entries]
        if page["next_cursor"] is None:
            return found
        parameters["cursor"] = page["next_cursor"]
    raise AssertionError("the walk does not end")


def numbers(found: list[Any]) -> list[int]:
    return [entry["round"] for entry in found]


@pytest.mark.parametrize("limit", [1, 2, 4, ROUNDS, 100])
def test_both_walks_hold_every_round_once(client: httpx.Client, root: str, limit: int) -> None:
    oldest = numbers(walk(client, f"{root}/rounds", "rounds", limit=limit, order="oldest"))
    newest = numbers(walk(client, f"{root}/rounds", "rounds", limit=limit, order="newest"))
    assert oldest == list(range(1, ROUNDS + 1))
    assert newest == oldest[::-1]


def test_clients_are_walked_by_index(client: httpx.Client, root: str) -> None:
    for limit in (1, 5, CLIENTS, 100):
        found = walk(client, f"{root}/clients", "clients", limit=limit)
        assert [entry["client"] for entry in found] == list(range(CLIENTS))


def test_a_page_tells_how_much_it_looked_at(client: httpx.Client, root: str) -> None:
    assert MAX_SCANNED >= ROUNDS
    assert read(client, f"{root}/rounds", status="open")["scanned"] == ROUNDS
    assert read(client, f"{root}/rounds", limit=3)["scanned"] == 3


def test_rounds_are_found_by_what_a_client_did_in_them(client: httpx.Client, root: str) -> None:
    rounds = read(client, f"{root}/rounds", full="true", limit=100)["rounds"]
    for number in (0, 3, 7):
        found = {
            role: [
                entry["round"]
                for entry in read(client, f"{root}/rounds", client=number, role=role)["rounds"]
            ]
            for role in AskedRole
        }
        for one in rounds:
            updates = {entry["client"]: entry for entry in one["parts"]["updates"]}
            members = {entry["client"]: entry for entry in one["parts"]["committee"]}
            update, member = updates.get(number, {}), members.get(number, {})
            expected = {
                AskedRole.ANY: bool(update or member),
                AskedRole.TRAINED: bool(update),
                AskedRole.ACCEPTED: update.get("outcome") == "accepted",
                AskedRole.NOT_ACCEPTED: update.get("outcome") == "not_accepted",
                AskedRole.DROPPED_OUT: update.get("outcome") == "dropped_out",
                AskedRole.MEMBER: bool(member),
                AskedRole.SERVED: bool(member) and not member["empty_seat"],
                AskedRole.REFUSED: member.get("scores") == "refused",
                AskedRole.VOTED: bool(member.get("voted")),
            }
            for role, is_so in expected.items():
                assert (one["round"] in found[role]) == is_so, (number, one["round"], role)


def test_rounds_are_found_by_view_block_and_time(client: httpx.Client, root: str) -> None:
    rounds = read(client, f"{root}/rounds", limit=100)["rounds"]
    late = [one["round"] for one in rounds if one["views"] and max(one["views"]) >= 1]
    assert late, "some round needed a second view"
    assert [
        one["round"] for one in read(client, f"{root}/rounds", view_min=1, limit=100)["rounds"]
    ] == late
    first, last = rounds[6]["ended"], rounds[2]["ended"]
    for names, key in ((("since_block", "until_block"), "number"), (("since", "until"), "time")):
        asked = dict(zip(names, (first[key], last[key]), strict=True))
        within = [one for one in rounds if first[key] <= one["ended"][key] <= last[key]]
        assert within == rounds[2:7] or key == "time", "rounds can share a second, not a block"
        told = read(client, f"{root}/rounds", limit=100, **asked)
        assert [one["round"] for one in told["rounds"]] == [one["round"] for one in within]
    nothing = read(client, f"{root}/rounds", since_block=2**32 - 1)
    assert (nothing["rounds"], nothing["next_cursor"]) == ([], None)


def test_a_pages_work_is_bounded() -> None:
    assert page_width(RoundQuery("rounds"), 20, 12_288) == 20
    assert page_width(RoundQuery("rounds", status=RoundStatus.OPEN), 20, 12_288) == 200
    assert (
        page_width(RoundQuery("rounds", client=ClientId(1), role=AskedRole.ACCEPTED), 20, 12_288)
        == 200
    )
    # Who was sampled needs a key of every client: 200,000 of them for a page.
    assert page_width(RoundQuery("rounds", client=ClientId(1)), 20, 1_000) == 200
    assert page_width(RoundQuery("rounds", client=ClientId(1)), 20, 12_288) == 16


@pytest.mark.parametrize("limit", ["0", "101", "-1", "1e2", "1.0", "+5", " 5", "05", "x", "", "٣"])
def test_limits_out_of_range_are_refused_not_clamped(
    client: httpx.Client, root: str, limit: str
) -> None:
    for path in ("rounds", "clients", "clients/0/rounds"):
        told = refused(
            client.get(f"{root}/{path}", params={"limit": limit}), 422, "request-invalid"
        )
        assert told["errors"][0]["name"] == "limit"


def test_the_default_limit_is_twenty(client: httpx.Client, root: str) -> None:
    assert read(client, f"{root}/rounds") == read(client, f"{root}/rounds", limit=20)


@pytest.mark.parametrize(
    "cursor", ["", "A", "AQ", "%00", "AQAAAAKHGfi3lW8gD0c", "=" * 20, "A" * MAX_CURSOR, "é"]
)
def test_what_is_no_cursor_is_refused(client: httpx.Client, root: str, cursor: str) -> None:
    for path in ("rounds", "clients", "clients/0/rounds"):
        answer = client.get(f"{root}/{path}", params={"cursor": cursor})
        refused(answer, 400, "cursor-invalid")


def test_an_overlong_cursor_is_refused(client: httpx.Client, root: str) -> None:
    answer = client.get(f"{root}/rounds", params={"cursor": "A" * (MAX_CURSOR + 1)})
    refused(answer, 422, "request-invalid")


def test_a_cursor_is_bound_to_its_query(client: httpx.Client, root: str) -> None:
    cursor = read(client, f"{root}/rounds", limit=2)["next_cursor"]
    others: list[dict[str, Any]] = [{"order": "oldest"}, {"status": "decided"}, {"client": 1}]
    for other in others:
        answer = client.get(f"{root}/rounds", params={"cursor": cursor, **other})
        refused(answer, 400, "cursor-invalid")
    for path in ("clients", "clients/0/rounds"):
        answer = client.get(f"{root}/{path}", params={"cursor": cursor})
        refused(answer, 400, "cursor-invalid")
    assert read(client, f"{root}/rounds", cursor=cursor, limit=5)["rounds"]


@given(position=st.integers(0, 2**32 - 1), scope=st.text(max_size=20))
def test_a_cursor_leads_back_to_its_position(position: int, scope: str) -> None:
    cursor = encode_cursor(position, scope)
    assert len(cursor) <= MAX_CURSOR
    assert decode_cursor(cursor, scope, last=2**32 - 1) == position
    with pytest.raises(CursorError):
        decode_cursor(cursor, scope + "x", last=2**32 - 1)


@given(place=st.integers(0, 22), letter=st.sampled_from("ABCXYZabcxyz0189-_=+/é "))
def test_every_altered_cursor_is_refused(place: int, letter: str) -> None:
    cursor = encode_cursor(7, "rounds")
    altered = cursor[:place] + letter + cursor[place + 1 :]
    if altered == cursor:
        return
    with pytest.raises(CursorError):
        decode_cursor(altered, "rounds", last=2**32 - 1)


def test_a_cursor_beyond_the_end_is_refused() -> None:
    with pytest.raises(CursorError, match="nothing that is there"):
        decode_cursor(encode_cursor(8, "rounds"), "rounds", last=7)
    with pytest.raises(CursorError, match="nothing that is there"):
        decode_cursor(encode_cursor(0, "rounds"), "rounds", last=7, first=1)
