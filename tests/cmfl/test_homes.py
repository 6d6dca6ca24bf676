"""Temporary homes: they end with the call that fails, or with their process, however it ends."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import cmfl
from cmfl.simulating import opened_home, temporary_folder
from tests.cmfl.conftest import FACE
from tests.processes import Forks

pytestmark = FACE

INTERRUPTED = """
import atexit, importlib, multiprocessing, os, signal, sys
import cmfl
from ledger.io import processes

def interrupted(done, total, note=""):
    os.kill(os.getpid(), signal.SIGINT)

importlib.import_module("cmfl.display")._lines = lambda *_, **__: interrupted
processes._SPAWN = multiprocessing.get_context("fork")  # no process imports torch again
compared = {"preset": "smoke", "seeds": [1], "jobs": 2}
for call, first, more in ((cmfl.run, "smoke", {}), (cmfl.compare, ["cmfl-1"], compared)):
    try:
        call(first, progress=False, **more)
    except KeyboardInterrupt:
        # Training imports neither torch's compiler nor what scikit-learn does: seconds.
        unwanted = {"torch._dynamo", "sympy", "scipy", "pandas"}
        print("interrupted", *sorted(unwanted & set(sys.modules)))
atexit._run_exitfuncs()  # which a fork would leave out
"""

FORKING = """
import multiprocessing, os, signal, sys
from pathlib import Path
from cmfl.simulating import opened_home

def make():
    with opened_home(None) as home:
        home.mkdir()

def make_and_end():
    make()
    if sys.argv[1] == "kill":
        os.kill(os.getpid(), signal.SIGKILL)

def count():
    return len([*Path(os.environ["TMPDIR"]).glob("cmfl-*/*/home")])

make()
child = multiprocessing.get_context("fork").Process(target=make_and_end)
child.start()
child.join()
before = count()
make()
print(before, count() - 1)
"""


def homes(folder: Path) -> list[Path]:
    return [*folder.glob("cmfl-*/*/*")]


def test_a_temporary_home_is_removed_when_its_run_fails(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError):
        _fail_in_a_home()
    assert [*tmp_path.glob("cmfl-*")]
    assert not homes(tmp_path)
    with temporary_folder() as folder:
        (folder / "x").touch()
    assert not folder.exists()


def _fail_in_a_home() -> None:
    with opened_home(None) as home:
        home.mkdir()
        raise RuntimeError


@pytest.mark.parametrize("end", ["return", "kill"])
def test_a_forked_process_leaves_its_parents_homes(tmp_path: Path, end: str) -> None:
    script = tmp_path / "study.py"
    script.write_text(FORKING, encoding="utf-8")
    command = [sys.executable, str(script), end]
    folder = tmp_path / "tmp"
    folder.mkdir()
    ended = subprocess.run(
        command, env=_environment(folder), check=True, text=True, capture_output=True
    )
    assert ended.stdout == {"return": "1 1\n", "kill": "2 2\n"}[end]
    # What a killed process has left, the next one removes.
    left = {"return": 0, "kill": 1}[end]
    assert len(homes(folder)) == left
    code = "from cmfl.simulating import opened_home\nwith opened_home(None): pass"
    subprocess.run([sys.executable, "-c", code], env=_environment(folder), check=True)
    assert not [*folder.iterdir()]


def _environment(folder: Path) -> dict[str, str]:
    path = str(Path(cmfl.__file__).parents[1])
    return {**os.environ, "TMPDIR": str(folder), "PYTHONPATH": path}


def test_an_interrupted_run_or_comparison_leaves_no_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script, folder = tmp_path / "study.py", tmp_path / "tmp"
    folder.mkdir()
    script.write_text(INTERRUPTED, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    entry = "tests.processes:run_script"
    with (
        Forks(tmp_path / "forks", entry) as forks,
        forks.start(script.name, TMPDIR=str(folder)) as process,
    ):
        out, err = process.communicate()
        assert (process.wait(), out, err) == (0, "interrupted\ninterrupted\n", "")
    assert not [*folder.iterdir()]
