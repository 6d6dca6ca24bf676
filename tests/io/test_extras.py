"""The command for a missing extra fits the installation that lacks it."""

from __future__ import annotations

import shlex
import subprocess
import sys
from importlib.metadata import distribution
from typing import TYPE_CHECKING

import pytest

from ledger.io.extras import NAME, install_command, require_extra
from ledger.protocol.errors import ConfigurationError
from tests.packaging.metadata import extra, names, project
from tests.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    from pathlib import Path

PROJECT = """
[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]
"""
BACKEND = """
import zipfile

def build_wheel(folder, settings=None, metadata=None):
    name = "cmfl_ledger-0.1.0-py3-none-any.whl"
    with zipfile.ZipFile(f"{folder}/{name}", "w") as wheel:
        for file in ("METADATA", "WHEEL", "RECORD"):
            wheel.write(file, f"cmfl_ledger-0.1.0.dist-info/{file}")
    return name

build_editable = build_wheel
"""
FILES = ("METADATA", "WHEEL", "RECORD")
WHEEL = "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n"


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with this project's metadata, which pip builds without any other package."""
    folder = tmp_path_factory.mktemp("extras") / "a checkout"
    folder.mkdir()
    lines = ["Metadata-Version: 2.4", f"Name: {NAME}", f"Version: {project()['version']}"]
    for name, requirements in project()["optional-dependencies"].items():
        lines.append(f"Provides-Extra: {name}")
        lines += [f'Requires-Dist: {one}; extra == "{name}"' for one in requirements]
    for file, text in (
        ("pyproject.toml", PROJECT),
        ("backend.py", BACKEND),
        ("METADATA", "\n".join([*lines, ""])),
        ("WHEEL", WHEEL),
        ("RECORD", "".join(f"cmfl_ledger-0.1.0.dist-info/{name},,\n" for name in FILES)),
    ):
        (folder / file).write_text(text, "utf-8")
    return folder


@pytest.fixture(scope="module")
def wheel(checkout: Path) -> Path:
    pip("wheel", "--no-build-isolation", "--wheel-dir", checkout.parent, checkout)
    return next(checkout.parent.glob("*.whl"))


def pip(*words: str | Path, python: Path | None = None) -> None:
    """Run pip without an index, for this Python or another one."""
    own = [] if python is None else ["--python", str(python)]
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", *own, words[0]]
    ended = subprocess.run(
        [*command, "--no-index", "--no-deps", *words[1:]],
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr


def installed(folder: Path, *words: str | Path) -> Path:
    """Install into an environment of its own; return where its packages are."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    pip("install", "--no-build-isolation", *words, python=folder / "bin/python")
    return next(folder.glob("lib/python*/site-packages"))


def command_beside(
    monkeypatch: pytest.MonkeyPatch, site: Path, name: str, *others: Path
) -> list[str]:
    """Return the words of the command where only these folders have metadata."""
    monkeypatch.setattr(sys, "path", [str(site), *map(str, others)])
    assert distribution(NAME).version == project()["version"]
    return shlex.split(install_command(name))


@pytest.mark.parametrize("option", ["-e", None])
def test_a_checkout_is_installed_again_with_the_extra(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, checkout: Path, option: str | None
) -> None:
    options = [] if option is None else [option]
    site = installed(tmp_path / "own", *options, checkout)
    words = command_beside(monkeypatch, site, "plots")
    assert words == ["pip", "install", *options, f"{checkout}[plots]"]


def test_other_installations_get_the_missing_packages(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, wheel: Path
) -> None:
    """An index, for one: pip writes no origin, and no index that we name has the package."""
    site = installed(tmp_path / "own", "--find-links", wheel.parent, NAME)
    assert not list(site.glob("cmfl_ledger-*/direct_url.json"))
    assert sorted(command_beside(monkeypatch, site, "clients")[2:]) == requirements_of("clients")
    rich = tmp_path / "rich-14.0.dist-info"
    rich.mkdir()
    (rich / "METADATA").write_text("Metadata-Version: 2.1\nName: rich\nVersion: 14.0\n", "utf-8")
    lacking = command_beside(monkeypatch, site, "clients", tmp_path)[2:]
    assert sorted(lacking) == [one for one in requirements_of("clients") if "rich" not in one]


def requirements_of(name: str) -> list[str]:
    """Return what an extra needs, as the project's metadata state it, with inner extras."""
    wanted = names(extra(name))
    every = {one for lines in project()["optional-dependencies"].values() for one in lines}
    return sorted(one for one in every if names_of(one) in wanted)


def names_of(requirement: str) -> str:
    return requirement.partition(">=")[0].partition("[")[0].replace("_", "-")


def test_only_a_missing_extra_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    require_extra("plots", "figures need")
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ConfigurationError, match=r"figures need the extra \[plots\]: pip install"):
        require_extra("plots", "figures need")
