"""The exit code is what a command came to, whatever becomes of what it prints."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.cmfl.commands.conftest import SHARED, decided_rounds
from tests.processes import PATIENCE_SECONDS

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = SHARED

NOT_WHOLE = "cmfl: standard output: No space left on device: not everything was printed\n"


def begun(into: str, *arguments: object, **variables: str) -> subprocess.Popen[str]:
    """Return a started `cmfl`, as a shell begins it whose code is that of `cmfl` itself."""
    command = shlex.join([sys.executable, "-m", "cmfl", *map(str, arguments)])
    return subprocess.Popen(
        ["bash", "-c", f"{command} {into}; exit ${{PIPESTATUS[0]}}"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | variables,
    )


def ended(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    with process:
        out, err = process.communicate(timeout=PATIENCE_SECONDS)
    return process.returncode, out, err


@pytest.fixture(scope="module")
def damaged(home: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return folders of blobs with which the audit of the one home comes to each verdict."""
    folders = {"passed": home / "blobs"}
    digest = decided_rounds(home)[-1]["model"][2:]
    for verdict in ("incomplete", "failed"):
        folder = folders[verdict] = tmp_path_factory.mktemp("blobs") / verdict
        shutil.copytree(home / "blobs", folder)
        path = folder / digest[:2] / digest
        if verdict == "incomplete":
            path.unlink()
        else:
            path.write_bytes(b"other bytes")
    return folders


def test_the_verdict_stands_if_printing_fails(home: Path, damaged: dict[str, Path]) -> None:
    codes = {"passed": 0, "failed": 1, "incomplete": 3}

    def audit(verdict: str, into: str, **variables: str) -> subprocess.Popen[str]:
        return begun(into, "audit", "-q", "--home", home, "--blobs", damaged[verdict], **variables)

    processes = [
        (codes[verdict], audit(verdict, into), err)
        for verdict, into, err in (
            ("passed", "| head -c 1 >/dev/null", ""),
            ("incomplete", "| true", ""),
            ("failed", ">&-", ""),
            ("failed", ">/dev/full", NOT_WHOLE),
        )
    ]
    found = [ended(process) for _, process, _ in processes]
    assert found == [(code, "", err) for code, _, err in processes]


def test_a_limited_stream_shows_another_character_or_its_code(home: Path) -> None:
    plain = {"PYTHONIOENCODING": "ascii", "COLUMNS": "120"}
    code, out, err = ended(begun("", "rounds", "list", "--home", home, **plain))
    assert (code, err) == (0, "")
    assert re.search(r"\| 0x[0-9a-f]{8}\.\.\.[0-9a-f]{6} ", out)
    assert out.isascii()
    code, _, err = ended(begun("", "rounds", "list", "--home", home, "--run", "å…", **plain))
    assert (code, err) == (2, f"cmfl: there is no deployed run '\\xe5...' in {home}\n")


def test_a_command_without_a_verdict_fails_only_with_the_machine(home: Path) -> None:
    rows = ("rounds", "list", "--json", "--home", home)
    expected = [
        (begun("| true", "--help"), 0, ""),
        (begun(">&-", "--help"), 0, ""),
        (begun("| head -c 1 >/dev/null", *rows), 0, ""),
        (begun(">&- 2>&-", *rows), 0, ""),
        (begun(">/dev/full", *rows), 2, NOT_WHOLE),
    ]
    found = [ended(process) for process, _, _ in expected]
    assert found == [(code, "", said) for _, code, said in expected]


def test_an_error_that_cannot_be_printed_keeps_its_code() -> None:
    processes = [begun(into, "sing") for into in ("2>&-", "2>/dev/full", "2>&1 | true")]
    assert [ended(process)[0] for process in processes] == [2, 2, 2]
