"""The documentation site builds strictly, has every page, and the README is one screen."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
README_WORDS = 1_200


def settings_without_search() -> dict[str, Any]:
    """Return the site's settings, but for the search's index: a quarter of the time, no warning."""
    settings: dict[str, Any] = yaml.safe_load((ROOT / "mkdocs.yml").read_text("utf-8"))
    search, reference = settings["plugins"]
    assert search == "search"
    reference["mkdocstrings"]["handlers"]["python"]["paths"] = [str(ROOT)]
    own = {"docs_dir": str(ROOT / "docs"), "hooks": [str(ROOT / "docs" / "site_hooks.py")]}
    return settings | own | {"plugins": [reference]}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    settings = folder / "mkdocs.yml"
    settings.write_text(yaml.safe_dump(settings_without_search()))
    # Not --quiet, with which no warning counts for --strict.
    options = ("--strict", "--config-file", settings, "--site-dir", folder)
    build = (sys.executable, "-m", "mkdocs", "build", *options)
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    ended = subprocess.run(
        build, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return folder


def test_the_site_has_a_page_for_each_file(site: Path) -> None:
    pages = [path.relative_to(ROOT / "docs") for path in (ROOT / "docs").rglob("*.md")]
    for page in pages:
        name = "index.html" if page.name in {"index.md", "README.md"} else f"{page.stem}.html"
        assert (site / page.parent / name).exists(), page


def test_the_reference_has_commands_routes_and_functions(site: Path) -> None:
    assert "cmfl audit" in (site / "reference" / "commands.html").read_text("utf-8")
    assert "/v1/blobs/{digest}" in (site / "reference" / "rest.html").read_text("utf-8")
    assert "commit_updates" in (site / "reference" / "contract.html").read_text("utf-8")


def test_no_page_loads_anything_from_another_host(site: Path) -> None:
    for page in site.rglob("*.html"):
        loaded = re.findall(
            r'<(?:script|link|img)[^>]+(?:src|href)="(https?:[^"]+)"', page.read_text()
        )
        assert loaded == [], page


def test_the_readme_is_short_and_has_a_picture() -> None:
    text = (ROOT / "README.md").read_text("utf-8")
    assert len(text.split()) <= README_WORDS
    picture = re.search(r"!\[[^\]]+\]\(([^)]+)\)", text)
    assert picture
    assert (ROOT / picture[1]).exists()


def test_every_link_of_the_readme_leads_to_a_file() -> None:
    for target in re.findall(
        r"\]\(([^)#:]+)(?:#[\w-]*)?\)", (ROOT / "README.md").read_text("utf-8")
    ):
        assert (ROOT / target).exists(), target
