"""The page that maps the paper to code, contract and events is true and complete."""

from __future__ import annotations

import json
import re
from importlib import import_module, resources
from pathlib import Path
from typing import Any, NamedTuple

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "explanation" / "paper-map.md"
HEAD = "| paper | label | function | contract | event |\n"
PAPER = Path(__file__).parents[3] / "shared" / "paper" / "cmfl.tex"
ARTEFACT = resources.files("contracts") / "artifacts" / "committee_ledger.json"
ABI: list[dict[str, Any]] = json.loads(ARTEFACT.read_text())["abi"]
TRANSACTIONS = {
    entry["name"]
    for entry in ABI
    if entry["type"] == "function" and entry["stateMutability"] != "view"
}
EVENTS = {entry["name"] for entry in ABI if entry["type"] == "event"}


class Row(NamedTuple):
    """A row of the page; a cell is empty where there is nothing."""

    paper: str
    label: str
    function: str
    contract: str
    event: str

    @property
    def dotted(self) -> str:
        is_named = self.function.partition(".")[0] in {"ledger", "clients", "tests"}
        return self.function if is_named else f"ledger.protocol.{self.function}"


def rows_of(page: str) -> tuple[Row, ...]:
    lines = page.split(HEAD, 1)[1].splitlines()[1:]
    table = lines[: next((n for n, line in enumerate(lines) if line[:1] != "|"), None)]
    return tuple(Row(*(cell.strip(" `") for cell in line.strip("|").split("|"))) for line in table)


PAPER_MAP = rows_of(PAGE.read_text("utf-8"))
each_row = pytest.mark.parametrize("row", PAPER_MAP, ids=lambda row: row.paper)


def resolved(dotted: str) -> object:
    """Return what a dotted name stands for: a module's attribute, or an attribute of that."""
    parts = dotted.split(".")
    for length in range(len(parts) - 1, 0, -1):
        try:
            found: object = import_module(".".join(parts[:length]))
        except ModuleNotFoundError as error:
            if error.name != ".".join(parts[:length]):
                raise
            continue
        for name in parts[length:]:
            found = getattr(found, name)
        return found
    raise ModuleNotFoundError(dotted)


@each_row
def test_every_name_stands_for_something_that_can_be_called(row: Row) -> None:
    if row.dotted.startswith("clients."):
        pytest.importorskip("torch")
    assert callable(resolved(row.dotted))


def test_the_map_names_every_transaction_and_event() -> None:
    assert {row.contract for row in PAPER_MAP} - {""} == TRANSACTIONS
    assert {row.event for row in PAPER_MAP} - {""} == EVENTS


def test_the_papers_equations_strategies_and_algorithms_are_all_there() -> None:
    labels = {"localUpdate2", "aggregation", "globalUpdate", "computeScore", "selection"}
    labels |= {"election", "CommitteeConsensus", "algorithm_CCP", "voting", "algorithm_CMFL"}
    assert {row.label for row in PAPER_MAP} - {""} == labels
    assert all("ours" in row.paper for row in PAPER_MAP if not row.label)


@pytest.mark.skipif(not PAPER.exists(), reason="the paper's source, shared/paper, is not here")
def test_every_label_is_in_the_papers_source() -> None:
    labels = set(re.findall(r"\\label\{([^}]*)\}", PAPER.read_text()))
    assert {row.label for row in PAPER_MAP} - {""} <= labels
