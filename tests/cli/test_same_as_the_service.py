"""What `cmfl ... --json` prints is what the service answers, but for the block it speaks of."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from api.settings import Settings
from tests.api.conftest import deployments, read, serving
from tests.cli.conftest import ROUNDS, SHARED, succeeds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

pytestmark = SHARED


@pytest.fixture(scope="module")
def answered(home: Path) -> Iterator[Callable[..., dict[str, Any]]]:
    with serving(Settings(home=home)) as http:
        root = deployments(http)[0]["links"]["self"]

        def answer(path: str, **query: Any) -> dict[str, Any]:
            told = read(http, f"{root}/{path}", **query)
            assert told.pop("as_of")
            return dict(told)

        yield answer


def test_a_list_of_rounds(home: Path, answered: Callable[..., dict[str, Any]]) -> None:
    listed = ("rounds", "list", "--home", home, "--json")
    assert succeeds(*listed).json == answered("rounds")
    assert succeeds(*listed, "--full").json == answered("rounds", full="true")
    first = answered("rounds", order="oldest", limit=2)
    assert succeeds(*listed, "--oldest", "--limit", 2).json == first
    onward = {"order": "oldest", "limit": 2, "cursor": first["next_cursor"]}
    following = ("--oldest", "--limit", 2, "--cursor", first["next_cursor"])
    assert succeeds(*listed, *following).json == answered("rounds", **onward)
    for role in ("any", "trained", "served", "accepted"):
        asked = answered("rounds", client=1, role=role, status="decided")
        given = ("--client", 1, "--role", role, "--status", "decided")
        assert succeeds(*listed, *given).json == asked


@pytest.mark.parametrize("number", range(1, ROUNDS + 1))
def test_a_round(home: Path, answered: Callable[..., dict[str, Any]], number: int) -> None:
    shown = succeeds("rounds", "show", number, "--home", home, "--json").json
    assert shown == answered(f"rounds/{number}", full="true")
    told = succeeds("rounds", "explain", number, "--home", home, "--json").json
    assert told == answered(f"rounds/{number}/explanation")
    for part in ("updates", "committee", "aggregation", "scores", "votes"):
        own = answered(f"rounds/{number}/{part}")
        where = shown["parts"] if part in {"updates", "committee"} else shown["parts"][part]
        assert {name: where[name] for name in own.keys() & where.keys()}.items() <= own.items()


def test_clients(home: Path, answered: Callable[..., dict[str, Any]]) -> None:
    listed = ("clients", "list", "--home", home, "--json")
    assert succeeds(*listed, "--limit", 100).json == answered("clients", limit=100)
    assert succeeds(*listed, "--limit", 3).json == answered("clients", limit=3)
    for client in (0, 13):
        shown = succeeds("clients", "show", client, "--home", home, "--json").json
        assert shown == answered(f"clients/{client}")
        rounds = succeeds("clients", "rounds", client, "--home", home, "--json").json
        assert rounds == answered(f"clients/{client}/rounds")
