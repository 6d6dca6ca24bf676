"""Settings as typed keywords: what editors complete, type checkers refuse, and errors show."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import traceback
from functools import partial
from pathlib import Path

import jedi
import pytest

import cmfl
from tests.cmfl import typed_settings

PYRIGHT = os.environ.get("CMFL_PYRIGHT") or shutil.which("pyright")
PACKAGE = Path(cmfl.__file__).parent


def test_the_types_are_those_of_the_settings() -> None:
    assert typed_settings.MODULE.read_text("utf-8") == typed_settings.module_text()


# With `warn_unused_ignores`, mypy refuses a comment below whose line it accepts.
def test_an_unknown_keyword_is_refused_by_mypy_and_by_the_call() -> None:
    with pytest.raises(cmfl.ConfigurationError, match="ronds: there is no"):
        cmfl.run("smoke", ronds=3)  # type: ignore[call-arg]
    with pytest.raises(cmfl.ConfigurationError, match="ronds: there is no"):
        cmfl.compare(["krum"], ronds=3)  # type: ignore[call-arg]
    with pytest.raises(cmfl.ConfigurationError, match="ronds: there is no"):
        cmfl.sweep(over={"strategy": [1]}, ronds=3)  # type: ignore[call-arg]


@pytest.mark.skipif(PYRIGHT is None, reason="CMFL_PYRIGHT names no pyright, and PATH has none")
def test_an_unknown_keyword_is_refused_by_pyright(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text('import cmfl\ncmfl.run("smoke", rounds=3)\ncmfl.run("smoke", ronds=3)\n')
    command = [str(PYRIGHT), "--pythonpath", sys.executable, str(script)]
    ended = subprocess.run(command, check=False, cwd=PACKAGE.parent, capture_output=True)
    (line,) = [line for line in ended.stdout.splitlines() if b"error:" in line]
    assert b'script.py:3:19 - error: No parameter named "ronds"' in line


@pytest.mark.parametrize("function", ["run", "compare", "sweep"])
def test_a_notebook_completes_settings(function: str) -> None:
    source = f"cmfl.{function}("
    found = {each.name for each in jedi.Interpreter(source, [{"cmfl": cmfl}]).complete()}
    assert {"rounds=", "malicious_rate=", "learning_rate=", "protocol=", "progress="} <= found


def test_an_error_is_one_sentence_below_the_line_of_the_caller(run: cmfl.Run) -> None:
    for call in (partial(cmfl.run, "smoke", settings={"ronds": 3}), partial(run.rounds.at, 7)):
        with pytest.raises(cmfl.ConfigurationError) as error:
            call()
        frames = [Path(str(frame.path)) for frame in error.traceback]
        assert [path.is_relative_to(PACKAGE) for path in frames] == [False, True]
        assert "".join(traceback.format_exception(error.value)).count("Traceback") == 1


def test_a_notebook_shows_a_sentence_without_traceback(tmp_path: Path) -> None:
    code = 'import cmfl; cmfl.run("smoke", settings={"ronds": 3})'
    command = [sys.executable, "-m", "IPython", "--colors=NoColor", "-c", code]
    folders = os.environ | {"IPYTHONDIR": str(tmp_path)}
    ended = subprocess.run(command, check=False, env=folders, capture_output=True, text=True)
    sentence = "ronds: there is no such setting; near it: protocol.rounds (cmfl settings lists all)"
    assert (ended.stdout + ended.stderr).strip() == f"ConfigurationError: {sentence}"
