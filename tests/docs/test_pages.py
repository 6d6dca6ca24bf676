"""The pages beside the protocol: links and file names lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCS = [*(ROOT / "docs").glob("*.md"), *(ROOT / "docs" / "protocol").glob("*.md")]
PAGES = sorted([*DOCS, ROOT / "CHANGELOG.md", ROOT / "CONTRIBUTING.md"])
MOST_WORDS = 40

each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)


@each_page
def test_every_link_leads_to_a_file(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)(?:#[\w-]*)?\)", page.read_text("utf-8")):
        assert (page.parent / target).exists(), target


@each_page
def test_every_file_named_is_there(page: Path) -> None:
    named = re.findall(r"`([\w./-]+/[\w./-]*)`", page.read_text("utf-8"))
    assert all((ROOT / path).exists() for path in named if "NAME" not in path), [
        path for path in named if "NAME" not in path and not (ROOT / path).exists()
    ]


def test_the_index_names_every_page() -> None:
    index = (ROOT / "docs" / "index.md").read_text("utf-8")
    assert all(f"{page.name})" in index for page in PAGES if page.name != "index.md")


def test_the_glossary_has_few_words_in_no_two_rows() -> None:
    rows = re.findall(
        r"^\| (?!word |---)(.*?) \|",
        (ROOT / "docs" / "glossary.md").read_text("utf-8"),
        re.MULTILINE,
    )
    assert 0 < len(rows) <= MOST_WORDS
    words = [word for row in rows for word in row.split(", ")]
    assert len(set(words)) == len(words)
