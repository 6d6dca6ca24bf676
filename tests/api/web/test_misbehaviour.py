"""Which clients were banned, refused or left out, and why: one answer at every door."""

from __future__ import annotations

import csv
import io
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest

import cmfl
from ledger.protocol.errors import ConfigurationError
from tests.api.conftest import ROUNDS, read, refused
from tests.api.web.conftest import run_address, show
from tests.cmfl.commands.conftest import refusal, succeeds

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = pytest.mark.xdist_group("web")
FIRST, LAST = 1, ROUNDS - 2
RANGE = {"from": FIRST, "to": LAST}
OPTIONS = ("--from", FIRST, "--to", LAST)


@pytest.fixture(scope="module")
def entries(client: httpx.Client, root: str) -> list[dict[str, Any]]:
    """Return the service's answer for all rounds but the last two."""
    told = read(client, f"{root}/evidence", limit=100, **RANGE)
    assert (told["scanned"], told["next_cursor"]) == (LAST, None)
    found: list[dict[str, Any]] = told["evidence"]
    assert {entry["kind"] for entry in found} == {"ban", "refused_scores", "incident", "dropout"}
    whole = read(client, f"{root}/evidence", limit=100)["evidence"]
    assert found == [entry for entry in whole if entry["round"] <= LAST] != whole
    return found


def shown(page: Page) -> list[tuple[int, int]]:
    rows = page.locator("section[aria-labelledby=part-misbehaviour] tbody tr").all()
    cells = [row.locator("th, td").all_inner_texts() for row in rows]
    return [(int(round_), int(client)) for round_, client, *_ in cells]


def test_command_request_python_and_page_give_one_answer(
    page: Page, client: httpx.Client, root: str, home: Path, entries: list[dict[str, Any]]
) -> None:
    for place in (("--home", home), ("--api", client.base_url)):
        assert succeeds("evidence", *OPTIONS, "--json", *place).json["evidence"] == entries
    text = client.get(f"{root}/evidence", params={**RANGE, "format": "csv"}).text
    assert succeeds("evidence", *OPTIONS, "--csv", "--home", home).out == text
    assert all(row["reason"] for row in csv.DictReader(io.StringIO(text)))
    for kind in ("ban", "refused_scores", "incident", "dropout"):
        own = [each for each in entries if each["kind"] == kind]
        named = [(each["round"], each["client"]) for each in own]
        only = succeeds("evidence", *OPTIONS, "--kind", kind, "--json", "--home", home).json
        assert only["evidence"] == own
        table = cmfl.open(home).table("evidence", rounds=(FIRST, LAST), kind=kind)
        assert sorted((row["round"], row["client"]) for row in table) == sorted(named)
        show(page, f"{run_address(root)}?from={FIRST}&to={LAST}&kind={kind}")
        assert shown(page) == named
    show(page, f"{run_address(root)}?from={FIRST}&to={LAST}")
    assert shown(page) == [(entry["round"], entry["client"]) for entry in entries]


def test_a_ban_leads_to_both_signed_statements(
    page: Page, root: str, entries: list[dict[str, Any]]
) -> None:
    ban = next(entry for entry in entries if entry["kind"] == "ban")
    show(page, f"{run_address(root)}?to={LAST}&kind=ban")
    page.get_by_role("link", name="both signed statements").first.click()
    page.wait_for_selector(f"h1:has-text('Client {ban['client']} ')")
    proof = page.locator("section[aria-labelledby=part-both-signed-statements] tbody tr").all()
    titles = [row.locator("code").last.get_attribute("title") for row in proof]
    assert titles == [one["signature"] for one in ban["ban"]["statements"]]


def test_every_list_takes_a_range(
    client: httpx.Client, root: str, home: Path, tmp_path: Path
) -> None:
    numbers = set(range(FIRST, LAST + 1))
    full = read(client, f"{root}/rounds", limit=100, **RANGE, full=True)["rounds"]
    listed = succeeds("rounds", "list", *OPTIONS, "--json", "--home", home).json["rounds"]
    assert {entry["round"] for entry in full} == {entry["round"] for entry in listed} == numbers
    own = succeeds("clients", "rounds", 3, *OPTIONS, "--json", "--home", home).json
    assert read(client, f"{root}/clients/3/rounds", **RANGE)["rounds"] == own["rounds"] != []
    for name in ("rounds", "updates", "participation"):
        asked = {**RANGE, "format": "csv", "table": name, "order": "oldest"}
        text = client.get(f"{root}/rounds", params=asked).text
        printed = ("--home", home, "--output", tmp_path / name)
        succeeds("export", "table", name, *OPTIONS, *printed)
        assert (tmp_path / name).read_text() == text
        rows = list(csv.DictReader(io.StringIO(text)))
        assert {int(row["round"]) for row in rows} == numbers
        assert len(cmfl.open(home).table(name, rounds=(FIRST, LAST))) == len(rows)


def test_ranges_kinds_and_tables_that_are_none_are_refused(
    page: Page, client: httpx.Client, root: str, home: Path
) -> None:
    rule = f"must be the first and the last of the {ROUNDS} rounds that have opened"
    for first, last in ((5, 2), (5, 77)):
        sentence = f"rounds {first}..{last}: {rule}"
        for words in (("evidence",), ("rounds", "list"), ("clients", "rounds", 3)):
            asked = (*words, "--from", first, "--to", last)
            assert refusal(*asked, "--home", home) == sentence
            assert refusal(*asked, "--api", client.base_url).endswith(sentence)
        for path in ("evidence", "rounds", "clients/3/rounds"):
            answer = client.get(f"{root}/{path}?from={first}&to={last}")
            assert refused(answer, 422, "request-invalid")["detail"] == sentence
        with pytest.raises(ConfigurationError, match=re.escape(sentence)):
            cmfl.open(home).table("updates", rounds=(first, last))
        show(page, f"{run_address(root)}?from={first}&to={last}")
        alert = page.locator("section[aria-labelledby=part-misbehaviour] [role=alert]")
        assert alert.inner_text() == sentence
    assert "'theft'" in refusal("evidence", "--kind", "theft", "--home", home)
    refused(client.get(f"{root}/evidence?kind=theft"), 422, "request-invalid")
    refused(client.get(f"{root}/rounds?table=updates"), 422, "request-invalid")
    run = cmfl.open(home)
    for name, kind in (("votes", None), ("evidence", "theft")):
        with pytest.raises(ConfigurationError, match="must be one of"):
            run.table(name, kind=kind)  # type: ignore[arg-type]
