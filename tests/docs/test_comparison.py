"""The page of comparison is dated, and every project on it has sources that do not move."""

from __future__ import annotations

import re
from pathlib import Path

PAGE = (Path(__file__).parents[2] / "docs" / "comparison.md").read_text("utf-8")
SOURCES = dict(re.findall(r"^\[([\w-]+)\]: (https://\S+)$", PAGE, re.MULTILINE))
CITED = re.findall(r"\]\[([\w-]+)\]", PAGE)
PROJECTS = {
    "Flower": "flower",
    "NVIDIA FLARE": "nvflare",
    "OpenFL": "openfl",
    "pfl-research": "pfl",
    "ByzFL": "byzfl",
    "Psyche": "psyche",
    "Templar": "templar",
    "gensyn-audit": "gensyn",
    "OpenVerifiableLLM": "ovl",
    "Verathos": "verathos",
    "SparkDistill": "sparkdistill",
}
OURS = "CMFL ledger"
FIXED = re.compile(
    r"https://(github\.com/[\w.-]+/[\w.-]+/((blob|tree)/[0-9a-f]{40}(/.*)?|pull/\d+|releases/tag/v?\d[\w.]*)"
    r"|pypi\.org/project/[\w-]+/[\d.]+/|arxiv\.org/abs/[\d.]+|www\.nature\.com/articles/[\w-]+)"
)


def section(title: str) -> str:
    """Return the text below a heading, up to the next one."""
    return PAGE.split(f"\n## {title}\n", 1)[1].split("\n## ", 1)[0]


def test_the_page_is_dated_and_begins_with_where_others_are_better() -> None:
    assert re.search(r"reading: 20\d\d-\d\d\b", PAGE)
    assert re.findall(r"^## (.*)$", PAGE, re.MULTILINE)[0] == "Where the others are better"


def test_every_project_has_a_row_a_paragraph_and_sources() -> None:
    for project, prefix in PROJECTS.items():
        assert re.search(rf"^\| {project}[ \d.]* \|", section("Table"), re.MULTILINE), project
        assert f"\n**{project}.** " in section("One by one"), project
        assert f"\n| {project} | " in section("Sources"), project
        assert any(re.match(rf"{prefix}(-|$)", name) for name in CITED), project
    assert f"\n| {OURS} | " in section("Table")
    assert f"\n**{OURS}.** " in section("One by one")


def test_every_row_of_the_table_is_dated_within_the_reading() -> None:
    reading = re.search(r"reading: (20\d\d-\d\d)\b", PAGE)
    assert reading is not None
    rows = re.findall(r"^\| (?!project |---)(.+) \|$", section("Table"), re.MULTILINE)
    assert len(rows) == len(PROJECTS) + 1
    for row in rows:
        dated = re.fullmatch(r"(20\d\d-\d\d)-\d\d", row.split(" | ")[-1])
        assert dated is not None, row
        assert dated[1] <= reading[1], row


def test_every_source_is_cited_and_names_a_version_or_commit() -> None:
    assert set(CITED) == set(SOURCES)
    assert [address for address in SOURCES.values() if not FIXED.fullmatch(address)] == []


def test_an_address_that_moves_is_no_source() -> None:
    assert not FIXED.fullmatch("https://github.com/adap/flower/blob/main/README.md")
    assert not FIXED.fullmatch("https://pypi.org/project/flwr/")
    assert not FIXED.fullmatch("https://github.com/adap/flower/releases/latest")
