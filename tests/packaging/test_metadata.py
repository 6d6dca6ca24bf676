"""Metadata of the package: versions, authors, requirements and pins agree."""

from __future__ import annotations

import re
import runpy
from collections.abc import Iterator
from functools import cache
from importlib.metadata import distributions
from pathlib import Path

import pytest
import yaml
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

from ledger.io.extras import EXTRAS
from tests.packaging.environments import relative_links
from tests.packaging.metadata import (
    NAME,
    PACKAGES,
    ROOT,
    core,
    distribution_of,
    every_requirement,
    extra,
    names,
    project,
    third_party_imports,
)

PINS = {
    canonicalize_name(name): Version(version)
    for name, version in re.findall(
        r"^([\w.-]+)==(\S+)$", (ROOT / "constraints.txt").read_text("utf-8"), re.MULTILINE
    )
}
BY_OTHERS = {"vyper", "click", "pandas", "IPython", "datasets", "flwr"}
"""Modules that only others install: the contract's compiler, what Typer stands on, and what is used
where the user has it."""
UPPER_BOUNDS = {"llvmlite", "vyper"}
"""Packages of which a later version is known to break: LLVM's dialect, the artefact's compiler."""


def test_the_classifiers_name_the_pythons_of_the_matrix() -> None:
    prefix = "Programming Language :: Python :: 3."
    minors = [c.removeprefix(prefix) for c in project()["classifiers"] if c.startswith(prefix)]
    makefile = (ROOT / "Makefile").read_text("utf-8")
    matrix = re.search(r"^MATRIX \?= (.*)$", makefile, re.MULTILINE)
    assert matrix is not None
    assert matrix[1].split() == [f"3.{minor}" for minor in minors]
    assert SpecifierSet(project()["requires-python"]) == SpecifierSet(f">=3.{minors[0]}")


def test_the_citation_names_this_version_and_the_paper() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))
    assert citation["version"] == project()["version"]
    assert f"\n| 3 | {citation['version']} |" in (ROOT / "CHANGELOG.md").read_text("utf-8")
    assert citation["license"] == project()["license"]
    assert citation["authors"] == project()["authors"]
    (paper,) = citation["references"]
    assert [author["family-names"] for author in paper["authors"]] == [
        "Che", "Li", "Chen", "He", "Zheng",
    ]  # fmt: skip


def test_the_long_description_has_links_that_work_on_an_index(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    describe = runpy.run_path(str(ROOT / "setup.py"))["long_description"]
    assert relative_links(describe()) == []
    assert relative_links("[a](a.md) <img src='b.png'>\n[c]: d.md") == ["a.md", "b.png", "d.md"]
    monkeypatch.setitem(describe.__globals__, "ROOT", tmp_path)
    (tmp_path / "README.md").write_text("![P](p.png)[page](docs/a.md#b) [MIT](MIT)", "utf-8")
    metadata = tmp_path / "pyproject.toml"
    metadata.write_text('[project]\nversion = "1"\nurls = {}', "utf-8")
    assert describe() == "page (`docs/a.md`) MIT"
    metadata.write_text(
        '[project]\nversion = "1"\nurls = {Repository = "https://host/us"}', "utf-8"
    )
    assert describe() == (
        "![P](https://host/us/raw/v1/p.png)[page](https://host/us/blob/v1/docs/a.md#b) "
        "[MIT](https://host/us/blob/v1/MIT)"
    )


def test_every_requirement_has_a_pin_that_it_admits() -> None:
    for requirement in every_requirement():
        pin = PINS[canonicalize_name(requirement.name)]
        assert requirement.specifier.contains(pin, prereleases=True), requirement


def test_requirements_are_floors_but_for_known_breaks() -> None:
    for requirement in every_requirement():
        operators = {part.operator for part in requirement.specifier}
        bound = operators - {">="}
        assert not bound or requirement.name in UPPER_BOUNDS, requirement


def test_the_constraints_are_pins_in_order() -> None:
    lines = (ROOT / "constraints.txt").read_text("utf-8").splitlines()
    pinned = [line for line in lines if not line.startswith("#")]
    assert len(pinned) == len(PINS)
    assert pinned == sorted(pinned, key=lambda pin: canonicalize_name(pin.partition("==")[0]))


def test_every_pin_is_of_a_package_for_the_oldest_python_that_we_admit() -> None:
    """Not for Python 3.11.5 and later only, for instance: Debian 12 has 3.11.2."""
    (admitted,) = SpecifierSet(project()["requires-python"])
    for package in distributions():
        if PINS.get(canonicalize_name(package.name)) == Version(package.version):
            (needed,) = package.metadata.get_all("Requires-Python", [""])
            assert SpecifierSet(needed).contains(f"{admitted.version}.0"), package.name


@cache
def is_declared(module: str) -> bool:
    allowed = names(core()) | (names(extra(EXTRAS[module])) if module in EXTRAS else set())
    return bool(distribution_of(module) & allowed)


@pytest.mark.parametrize("package", PACKAGES)
def test_every_import_is_of_a_declared_package(package: str) -> None:
    for path, module in third_party_imports(package):
        assert module in BY_OTHERS or is_declared(module), f"{path}: {module}"


def test_all_is_every_extra_of_a_user() -> None:
    users = set(project()["optional-dependencies"]) - {"all", "dev"}
    for name in users:
        assert set(map(str, extra(name))) <= set(map(str, extra("all"))), name
    assert names(extra("all")) == {one for name in users for one in names(extra(name))}


def texts() -> Iterator[tuple[Path, str]]:
    """Yield what a user reads: pages, notebooks, and the code with its messages."""
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "docs").rglob("*.ipynb")]
    code = [path for package in PACKAGES for path in (ROOT / package).rglob("*.py")]
    for path in (*pages, *code):
        yield path.relative_to(ROOT), path.read_text("utf-8")


def test_no_page_or_message_installs_from_an_index() -> None:
    for path, text in texts():
        assert not re.search(rf"pip install[^\n]*{NAME}", text), path
        for bracket in re.findall(r"pip install[^\n]*?(?:\.|whl)\[([\w,]+)\]", text):
            assert set(bracket.split(",")) <= set(project()["optional-dependencies"]), path


def test_the_page_on_installing_names_every_extra_of_a_user() -> None:
    page = (ROOT / "docs/how-to/install.md").read_text("utf-8")
    cells = " ".join(re.findall(r"^\| (`[^|]*) \|", page, re.MULTILINE))
    listed = set(re.findall(r"`(\w+)`", cells))
    assert listed == set(project()["optional-dependencies"]) - {"dev"}


def test_the_hints_name_extras_that_install_the_module() -> None:
    for module, name in EXTRAS.items():
        assert distribution_of(module) & names(extra(name)), module
