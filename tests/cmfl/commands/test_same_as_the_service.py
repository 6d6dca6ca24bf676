"""What `cmfl ... --json` prints, of a home or by `--api`, is what the service answers.

But for the block that it speaks of.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.api.conftest import deployments, read
from tests.cmfl.commands.conftest import ROUNDS, SHARED, first_decided, succeeds

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import httpx

pytestmark = SHARED


@pytest.fixture(scope="module")
def answered(service: httpx.Client) -> Callable[..., dict[str, Any]]:
    root = deployments(service)[0]["links"]["self"]

    def answer(path: str, **query: Any) -> dict[str, Any]:
        told = read(service, f"{root}/{path}", **query)
        assert told.pop("as_of")
        return dict(told)

    return answer


@pytest.fixture(scope="module")
def printed(home: Path, service: httpx.Client) -> Callable[..., dict[str, Any]]:
    """Return what a command prints of the home, which must be what it prints by `--api`."""

    def both(*arguments: object) -> dict[str, Any]:
        own: dict[str, Any] = succeeds(*arguments, "--home", home, "--json").json
        assert succeeds(*arguments, "--api", service.base_url, "--json").json == own
        return own

    return both


def test_a_list_of_rounds(
    printed: Callable[..., dict[str, Any]], answered: Callable[..., dict[str, Any]]
) -> None:
    listed = ("rounds", "list")
    assert printed(*listed) == answered("rounds")
    assert printed(*listed, "--full") == answered("rounds", full="true")
    first = answered("rounds", order="oldest", limit=2)
    assert printed(*listed, "--oldest", "--limit", 2) == first
    onward = {"order": "oldest", "limit": 2, "cursor": first["next_cursor"]}
    following = ("--oldest", "--limit", 2, "--cursor", first["next_cursor"])
    assert printed(*listed, *following) == answered("rounds", **onward)
    asked = answered("rounds", client=1, role="served", status="decided")
    assert printed(*listed, "--client", 1, "--role", "served", "--status", "decided") == asked


@pytest.mark.parametrize("number", range(1, ROUNDS + 1))
def test_a_round(
    printed: Callable[..., dict[str, Any]], answered: Callable[..., dict[str, Any]], number: int
) -> None:
    shown = printed("rounds", "show", number)
    assert shown == answered(f"rounds/{number}", full="true")
    assert printed("rounds", "explain", number) == answered(f"rounds/{number}/explanation")
    for part in ("updates", "committee", "aggregation", "scores", "votes"):
        own = answered(f"rounds/{number}/{part}")
        where = shown["parts"] if part in {"updates", "committee"} else shown["parts"][part]
        assert {name: where[name] for name in own.keys() & where.keys()}.items() <= own.items()


def test_a_digest(home: Path, answered: Callable[..., dict[str, Any]]) -> None:
    number = first_decided(home)
    record = answered(f"rounds/{number}")["record"]["digest"]
    found = succeeds("rounds", "show", record, "--home", home, "--json").json
    assert found == answered(f"digests/{record}")
    assert [one["round"] for one in found["items"]] == [number]


def test_clients(
    printed: Callable[..., dict[str, Any]], answered: Callable[..., dict[str, Any]]
) -> None:
    assert printed("clients", "list", "--limit", 3) == answered("clients", limit=3)
    for client in (0, 13):
        assert printed("clients", "show", client) == answered(f"clients/{client}")
        assert printed("clients", "rounds", client) == answered(f"clients/{client}/rounds")
