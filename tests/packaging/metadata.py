"""The metadata of `pyproject.toml`, and the third-party packages that the code imports."""

from __future__ import annotations

import ast
import sys
import tomllib
from collections.abc import Iterable, Iterator
from functools import cache
from importlib.metadata import packages_distributions, requires
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
PACKAGES = ("contracts", "ledger", "clients", "api", "cmfl")
NAME = "cmfl-ledger"

_BLOCKS = ("body", "orelse", "finalbody", "handlers", "cases")
"""Fields of a syntax tree that hold statements."""

_NOT_INSTALLED = ("benchmarks", "_typeshed")  # names of the repository alone, and of type checkers


@cache
def project() -> dict[str, Any]:
    table: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    return table


def core() -> list[Requirement]:
    return [Requirement(line) for line in project()["dependencies"]]


def extra(name: str) -> list[Requirement]:
    """Return the requirements of an extra, and those of the extras that it contains."""
    found = []
    for line in project()["optional-dependencies"][name]:
        requirement = Requirement(line)
        if requirement.name == NAME:
            found += [one for inner in sorted(requirement.extras) for one in extra(inner)]
        else:
            found.append(requirement)
    return found


def every_requirement() -> list[Requirement]:
    return core() + [one for name in project()["optional-dependencies"] for one in extra(name)]


def names(requirements: Iterable[Requirement]) -> set[str]:
    return {canonicalize_name(requirement.name) for requirement in requirements}


def installed_with(requirements: Iterable[Requirement]) -> set[str]:
    """Return the canonical names of what pip installs for requirements, as installed here."""
    waiting = [(one.name, extra_) for one in requirements for extra_ in ("", *one.extras)]
    seen: set[tuple[str, str]] = set()
    while waiting:
        name, extra_ = waiting.pop()
        if (canonicalize_name(name), extra_) in seen:
            continue
        seen.add((canonicalize_name(name), extra_))
        for inner in map(Requirement, requires(name) or []):
            if inner.marker is None or inner.marker.evaluate({"extra": extra_}):
                waiting += [(inner.name, wanted) for wanted in ("", *inner.extras)]
    return {name for name, _ in seen}


@cache
def distributions() -> dict[str, set[str]]:
    found = packages_distributions()
    return {module: set(map(canonicalize_name, names_)) for module, names_ in found.items()}


def distribution_of(module: str) -> set[str]:
    return distributions().get(module, set())


def third_party_imports(package: str) -> Iterator[tuple[Path, str]]:
    """Yield the file and the top-level module of every import of another's package."""
    for path in sorted((ROOT / package).rglob("*.py")):
        for module in _imported(ast.parse(path.read_text("utf-8")).body):
            top = module.partition(".")[0]
            if top not in sys.stdlib_module_names and top not in (*PACKAGES, *_NOT_INSTALLED):
                yield path.relative_to(ROOT), top


def _imported(nodes: Iterable[ast.AST]) -> Iterator[str]:
    """Yield what statements import; expressions, most of a tree, import nothing."""
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            yield node.module
        for field in _BLOCKS:
            yield from _imported(getattr(node, field, ()))
