"""What the page computes by itself is what the protocol computes, and nothing altered passes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from ledger.history.answers_parts import AnsweredRound
from ledger.history.answers_rounds import full_round
from ledger.history.history import FoldedHistory
from ledger.protocol.rules.selection import candidates
from tests.api.conftest import ROUNDS, read, rounds_that_are
from tests.api.web.conftest import run_address, show
from tests.audit.honest import honest_run
from tests.audit.runs import Run

if TYPE_CHECKING:
    from playwright.sync_api import Page, Route


pytestmark = pytest.mark.xdist_group("web")

CHECKED = """async ([round, before, contract]) => {
  const { roundChecks } = await import("/dashboard/js/checks.js");
  return roundChecks(round, before, contract);
}"""
ALTERED = """async ([round, before, contract, paths]) => {
  const { roundChecks, tally } = await import("/dashboard/js/checks.js");
  const unseen = [];
  for (const path of paths) {
    const copy = structuredClone(round);
    const inner = path.slice(0, -1).reduce((value, key) => value[key], copy);
    inner[path.at(-1)] = otherThan(inner[path.at(-1)]);
    if (tally(roundChecks(copy, before, contract)).differs === 0) unseen.push(path.join("."));
  }
  return unseen;
  function otherThan(value) {
    if (typeof value === "number") return value + 1;
    if (/^[0-9]+$/.test(value)) return String(BigInt(value) ^ 1n);
    if (!value.startsWith("0x")) return value === "accepted" ? "not_accepted" : "accepted";
    return value.slice(0, -1) + (value.endsWith("0") ? "1" : "0");
  }
}"""


def asked(client: httpx.Client, root: str, number: int) -> list[Any]:
    """Return a round's answer, the head before it, and what the contract has fixed."""
    deployment = read(client, root)
    before = read(client, f"{root}/rounds/{number - 1}")["head"] if number > 1 else None
    told = read(client, f"{root}/rounds/{number}", full=True)
    return [told, before or deployment["config"], deployment["contract"]]


def test_every_recomputed_value_matches(page: Page, client: httpx.Client, root: str) -> None:
    show(page, "#/words")
    seen: set[str] = set()
    for number in range(1, ROUNDS + 1):
        checks = page.evaluate(CHECKED, asked(client, root, number))
        decided = number in rounds_that_are(client, root, "decided")
        assert {one["outcome"] for one in checks} <= {"matches"} | ({"open"} - {decided and "open"})
        seen |= {one["name"] for one in checks if one["outcome"] == "matches"}
    assert {"head", "result", "updates_root", "scores_root", "commitment", "next_seed"} <= seen


@pytest.fixture
def drawn(tmp_path: Path) -> Iterator[Run]:
    run = honest_run(tmp_path, strategy=3)
    with run.chain:
        yield run


@pytest.mark.parametrize("name", ["honest", "drawn"])
def test_strays_late_words_bans_and_abandonment_make_nothing_red(
    page: Page, request: pytest.FixtureRequest, name: str
) -> None:
    run = request.getfixturevalue(name)
    history = FoldedHistory.of(run.ledger, run.blobs)
    fixed = history.fixed
    contract = {
        "beacon": fixed.beacon.value,
        "form": {"name": fixed.form.name.lower()},
        "commit_blocks": fixed.commit_blocks,
        "replies": fixed.replies,
    }
    before, in_the_middle = f"0x{fixed.config.hex()}", set()
    show(page, "#/words")
    for number in range(1, fixed.rounds + 1):
        one = history.round(number)
        assert one is not None
        if one.decided is not None:
            middle = candidates(one.decided.ranking, (), fixed.members, by_lot=False)
            in_the_middle.add(one.decided.next_committee == middle)
        told = full_round(AnsweredRound.of(history, one))
        checks = page.evaluate(CHECKED, [told, before, contract])
        wrong = [one for one in checks if one["outcome"] != "matches"]
        assert wrong == [], f"round {number}"
        before = told["head"] or ""
        if number == 2:
            came = [one["client"] for one in told["parts"]["commitments"]]
            assert len(came) == told["committed"] + 2, "one stray in time, and one that is late"
    assert in_the_middle == ({True} if name == "honest" else {True, False})


def test_whatever_is_altered_in_answer_differs(page: Page, client: httpx.Client, root: str) -> None:
    number = max(rounds_that_are(client, root, "decided"))
    told, before, contract = asked(client, root, number)
    paths = [
        *([name] for name in ("seed", "base", "reveal", "model", "next_seed", "head")),
        ["record", "digest"],
        *(
            ["parts", "aggregation", name]
            for name in (
                *("set", "model", "updates_root", "scores_root"),
                *("ranking_digest", "reveal", "result"),
            )
        ),
        ["parts", "scores", "clients_digest"],
        ["parts", "scores", "claims", 0, "digest"],
        ["parts", "scores", "claims", 0, "member"],
        ["parts", "votes", "certificates", 1, "view"],
        ["parts", "next_committee", 0, "client"],
        *(["parts", "commitments", 0, name] for name in ("client", "commitment", "block")),
        ["committed"],
        *(
            ["parts", "votes", "certificates", phase, name]
            for phase in (0, 1)
            for name in ("base", "set", "result")
        ),
        *(
            ["parts", "updates", place, name]
            for place, update in enumerate(told["parts"]["updates"])
            if update["rank"] is not None
            for name in ("client", "outcome", "commitment", "payload", "rank", "distance_bits")
        ),
    ]
    show(page, "#/words")
    assert page.evaluate(ALTERED, [told, before, contract, paths]) == []


def test_a_tampered_answer_is_shown_red(page: Page, client: httpx.Client, root: str) -> None:
    number = max(rounds_that_are(client, root, "decided"))
    told = read(client, f"{root}/rounds/{number}", full=True)
    ranked = next(one for one in told["parts"]["updates"] if one["rank"] == 0)
    ranked["payload"] = f"0x{'5c' * 32}"

    def tamper(route: Route) -> None:
        route.fulfill(status=200, content_type="application/json", body=json.dumps(told))

    place = run_address(root)
    show(page, f"{place}/rounds/{number}")
    verdict = page.locator(".verdict").first
    assert "good" in str(verdict.get_attribute("class"))
    assert int(str(verdict.get_attribute("data-matches"))) > 20

    page.route(f"**{root}/rounds/{number}?full=true", tamper)
    page.reload()
    page.wait_for_selector(".verdict.bad")
    differing = page.locator("tr.check.differs")
    named = {row.get_attribute("data-check") for row in differing.all()}
    assert {"updates_root", "reveal", "commitment"} <= named
    assert page.locator(".verdict").first.get_attribute("role") == "alert"

    show(page, f"{place}/rounds/{number}/clients/{ranked['client']}")
    assert "✗ The last hash is not the updates root." in page.locator("main").inner_text()
