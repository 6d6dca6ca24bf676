"""The documentation site builds strictly; the pages name files and tests that exist."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.contracts.test_gas_ceilings import CEILINGS

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), ROOT / "tests" / "README.md"])
PROPERTIES = ROOT / "docs" / "reference" / "properties.md"
FOLDERS = ("api", "benchmarks", "clients", "cmfl", "contracts", "docs", "ledger", "tests", ".ci")
GENERATED = {"commands.md", "rest.md", "contract.md"}  # by docs/site_hooks.py
TEST = re.compile(r"`(tests/[\w/]+\.py)(?:::(\w+))?`")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the site's folder; `mkdocs build --strict` checks links, headings and navigation."""
    folder = tmp_path_factory.mktemp("site")
    settings = yaml.safe_load((ROOT / "mkdocs.yml").read_text("utf-8"))
    # Without the search's index: a quarter of the time.
    settings["plugins"].remove("search")
    (api,) = (one["mkdocstrings"] for one in settings["plugins"] if "mkdocstrings" in one)
    api["handlers"]["python"]["paths"] = [str(ROOT)]
    settings |= {"docs_dir": str(ROOT / "docs"), "hooks": [str(ROOT / "docs" / "site_hooks.py")]}
    (folder / "mkdocs.yml").write_text(yaml.safe_dump(settings))
    # Not --quiet, with which no warning counts for --strict.
    options = ("--strict", "--config-file", folder / "mkdocs.yml", "--site-dir", folder)
    build = (sys.executable, "-m", "mkdocs", "build", *options)
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    ended = subprocess.run(
        build, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return folder


def test_the_reference_has_commands_routes_and_functions(site: Path) -> None:
    assert "cmfl audit" in (site / "reference" / "commands.html").read_text("utf-8")
    assert "/v1/blobs/{digest}" in (site / "reference" / "rest.html").read_text("utf-8")
    assert "commit_updates" in (site / "reference" / "contract.html").read_text("utf-8")
    assert "min_delta" in (site / "reference" / "configuration.html").read_text("utf-8")


def test_an_old_address_leads_to_the_new_page(site: Path) -> None:
    assert "../project/contributing.html" in (site / "guides" / "engineer.html").read_text("utf-8")


def test_no_page_loads_anything_from_another_host(site: Path) -> None:
    foreign = re.compile(r'<(?:script|link|img)[^>]+(?:src|href)="https?:[^"]+"')
    assert [page.name for page in site.rglob("*.html") if foreign.search(page.read_text())] == []


def _is_there(path: Path) -> bool:
    """Whether the path is in a fresh clone: an old folder may hold compiled files alone."""
    return path.is_file() or any(one.suffix != ".pyc" for one in path.rglob("*") if one.is_file())


def test_links_outside_of_the_site_and_named_files_lead_somewhere() -> None:
    missing = []
    for page in PAGES:
        text = page.read_text("utf-8")
        linked = re.findall(r"\]\(([^)#:]+)(?:#[\w-]*)?\)", text)
        linked = [one for one in linked if Path(one).name not in GENERATED]
        missing += [(page.name, one) for one in linked if not (page.parent / one).exists()]
        named = re.findall(rf"`((?:{'|'.join(map(re.escape, FOLDERS))})/[\w./-]*)`", text)
        named = [one for one in named if page.name != "CHANGELOG.md" and "NAME" not in one]
        missing += [(page.name, one) for one in named if not _is_there(ROOT / one)]
    assert missing == []


def test_every_named_test_exists() -> None:
    named = TEST.findall(PROPERTIES.read_text("utf-8"))
    named += [(word, "") for word in (ROOT / ".ci" / "slow_tests").read_text("utf-8").split()]
    assert [
        (path, name)
        for path, name in named
        if not (ROOT / path).exists()
        or (name and f"def {name}(" not in (ROOT / path).read_text("utf-8"))
    ] == []


def test_every_claim_names_a_test_or_admits_that_it_has_none() -> None:
    properties, threats = PROPERTIES.read_text("utf-8").split("\n## Threats\n")
    for part, admitted in ((properties, set()), (threats, {"not covered"})):
        tables = re.findall(r"^\|.* \| test \|\n\| --- .*\n((?:\|.*\n)+)", part, re.MULTILINE)
        rows = [row.strip(" |").rpartition(" | ") for table in tables for row in table.splitlines()]
        assert len(rows) > 30
        assert [row for row in rows if not TEST.search(row[2]) and row[2] not in admitted] == []


def test_the_page_of_properties_has_the_ceilings_of_gas() -> None:
    rows = re.findall(
        r"^\| `?(\w+)`? \|.* ([\d,]+) \|$", PROPERTIES.read_text("utf-8"), re.MULTILINE
    )
    assert {name: int(gas.replace(",", "")) for name, gas in rows} == CEILINGS


def test_the_readme_is_short_and_has_a_picture() -> None:
    text = (ROOT / "README.md").read_text("utf-8")
    assert len(text.split()) <= 1_200
    assert re.search(r"!\[[^\]]+\]\([^)]+\)", text)
