"""Every claim of the pages about properties and threats names a test that is there."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

from tests.contracts.test_gas_ceilings import CEILINGS

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "docs" / name for name in ("properties.md", "threat-model.md")]
NAMED = re.compile(r"`(tests/[\w/]+\.py)(?:::(\w+))?`")
NOT_COVERED = "not covered"

each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)


@cache
def functions(path: Path) -> frozenset[str]:
    return frozenset(
        re.findall(r"^(?:async )?def (test_\w+)\(", path.read_text("utf-8"), re.MULTILINE)
    )


def missing(text: str) -> list[str]:
    """Return the tests that a text names and that are not there."""
    return [
        f"{path}::{name}"
        for path, name in NAMED.findall(text)
        if not (ROOT / path).exists() or (name and name not in functions(ROOT / path))
    ]


def claims(text: str) -> list[list[str]]:
    """Return the cells of every row of a table whose last column is `test`."""
    found, in_table = [], False
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        if not line.startswith("|"):
            in_table = False
        elif cells[-1] == "test":
            in_table = True
        elif in_table and not line.startswith("| ---"):
            found.append(cells)
    return found


@each_page
def test_every_test_that_is_named_is_there(page: Path) -> None:
    assert missing(page.read_text("utf-8")) == []


def test_every_test_of_a_slow_machine_is_there() -> None:
    words = (ROOT / ".ci" / "slow_tests").read_text("utf-8").split()
    assert [word for word in words if not (ROOT / word).exists()] == []


@each_page
def test_every_claim_names_a_test_or_admits_none(page: Path) -> None:
    found = claims(page.read_text("utf-8"))
    assert len(found) > 30
    bare = [cells[0] for cells in found if not NAMED.search(cells[-1]) and cells[-1] != NOT_COVERED]
    assert bare == []


def test_a_test_that_is_not_there_is_noticed() -> None:
    assert missing("`tests/docs/test_named_tests.py::test_nothing_of_the_kind`") != []
    assert missing("`tests/docs/test_no_such_file.py`") != []
    assert claims("| cannot | test |\n| --- | --- |\n| fly |  |\n") == [["fly", ""]]


def test_a_property_is_always_tested() -> None:
    page = PAGES[0].read_text("utf-8")
    assert NOT_COVERED not in page


def test_the_page_has_the_ceilings_of_gas() -> None:
    page = PAGES[0].read_text("utf-8")
    rows = re.findall(r"^\| `?(\w+)`? \|.* ([\d,]+) \|$", page, re.MULTILINE)
    assert {name: int(gas.replace(",", "")) for name, gas in rows} == CEILINGS
