"""What `import cmfl` costs, and what it refuses to start beside."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import cmfl
from cmfl import import_guard

HEAVY = ("torch", "numpy", "web3", "eth", "fastapi", "pydantic", "rich", "typer")
ROOT = Path(cmfl.__file__).parents[1]


def python(
    *arguments: str, folder: Path = ROOT, path: str = ""
) -> subprocess.CompletedProcess[str]:
    """Return what a Python of its own does in a folder, with our tree at the end of its path."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, (path, str(ROOT))))}
    command = (sys.executable, *arguments)
    return subprocess.run(
        command, cwd=folder, env=environment, text=True, capture_output=True, check=False
    )


def test_to_import_the_package_loads_nothing_heavy() -> None:
    code = "import cmfl, sys, json; json.dump(sorted(sys.modules), sys.stdout)"
    before = set(
        json.loads(
            python("-c", "import sys, json; json.dump(sorted(sys.modules), sys.stdout)").stdout
        )
    )
    loaded = set(json.loads(python("-c", code).stdout)) - before
    own = {name for name in loaded if name.partition(".")[0] == "cmfl"}
    assert own == {"cmfl", "cmfl.import_guard"}
    assert not {name.partition(".")[0] for name in loaded}.intersection(
        (*HEAVY, *import_guard.MODULES, "typing", "importlib.metadata")
    )


def test_every_public_name_is_there_and_is_listed() -> None:
    assert set(dir(cmfl)) == {*cmfl.__all__, "__version__"}
    for name in dir(cmfl):
        assert getattr(cmfl, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        getattr(cmfl, "nothing")  # noqa: B009 - mypy takes any attribute for one


def test_a_missing_package_is_named_with_its_extra() -> None:
    code = "import sys, cmfl; sys.modules['tomli_w'] = None; cmfl.run('smoke')"
    last = python("-c", code).stderr.splitlines()[-1]
    assert "this needs the extra [clients]: pip install " in last


def test_the_package_is_typed() -> None:
    assert (ROOT / "cmfl" / "py.typed").is_file()


@pytest.mark.parametrize("name", import_guard.MODULES)
def test_a_module_that_hides_ours_is_named_with_its_path(tmp_path: Path, name: str) -> None:
    foreign = tmp_path / name / "__init__.py"
    foreign.parent.mkdir()
    foreign.write_text("", encoding="utf-8")
    ended = python("-c", "import cmfl", folder=tmp_path, path=str(tmp_path))
    assert ended.returncode == 1
    last = ended.stderr.splitlines()[-1]
    assert last.startswith(f"ImportError: cmfl: the module {name!r} at {foreign} is not cmfl")
    assert "rename it" in last


def test_the_command_ends_with_one_line_and_code_2(tmp_path: Path) -> None:
    (tmp_path / "api.py").write_text("", encoding="utf-8")
    ended = python("-m", "cmfl", "--version", folder=tmp_path, path=str(tmp_path))
    assert (ended.returncode, ended.stdout) == (import_guard.WRONG, "")
    (line,) = ended.stderr.splitlines()
    assert line.startswith(f"cmfl: the module 'api' at {tmp_path / 'api.py'} is not cmfl-ledger's")
    assert python("-m", "cmfl", "--version").returncode == 0


def test_a_package_that_overwrote_ours_is_to_be_uninstalled(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(import_guard, "__file__", str(tmp_path / "cmfl" / "import_guard.py"))
    overwritten = tmp_path / "clients" / "__init__.py"
    overwritten.parent.mkdir()
    overwritten.write_text("__version__ = '1.0'\n", encoding="utf-8")
    monkeypatch.setattr(import_guard, "MODULES", ("clients",))
    monkeypatch.setitem(sys.modules, "clients", type(sys)("clients"))
    monkeypatch.setattr(sys.modules["clients"], "__file__", str(overwritten), raising=False)
    with pytest.raises(ImportError, match="pip uninstall clients"):
        import_guard.require_own_modules()


def test_a_missing_package_asks_for_a_new_installation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(import_guard, "MODULES", ("surely_not_there",))
    with pytest.raises(ImportError, match="'surely_not_there' of cmfl-ledger is missing: pip"):
        import_guard.require_own_modules()


def test_a_run_without_attackers_loads_no_attack() -> None:
    code = (
        "import sys\n"
        "from clients.configuration.loading import load\n"
        "from clients.runs.open_run import populate\n"
        "populate(load('smoke'))\n"
        "named = ('clients.attacks', 'clients.adversaries')\n"
        "print([name for name in sys.modules if name.startswith(named)])"
    )
    assert python("-c", code).stdout == "[]\n"
