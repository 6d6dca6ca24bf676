"""The exit code is what a command came to, whatever becomes of what it prints."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cmfl.commands.conftest import SHARED, decided_rounds
from tests.cmfl.commands.test_interrupts import ended
from tests.processes import Forked, Forks

pytestmark = SHARED

FULL = Path("/dev/full")
NOT_WHOLE = "cmfl: standard output: No space left on device; some output is missing\n"


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


def closed_pipe(forks: Forks, folder: Path, characters: int, *arguments: object) -> Forked:
    """Return a started `cmfl` whose reader takes so many characters and closes the pipe."""
    pipe = folder / f"pipe{len([*folder.glob('pipe*')])}"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    os.set_blocking(reader, True)
    try:
        process = forks.start_printing(*arguments, output=pipe)
        if characters:
            os.read(reader, characters)
    finally:
        os.close(reader)
    return process


def without_output(folder: Path, *arguments: object) -> Forked:
    """Return a started `cmfl` that has no standard output, as Python leaves it out then.

    That Python does is seen below, by commands that begin sooner than an audit.
    """
    entry = "tests.cmfl.commands.interrupted:without_output"
    return Forks(folder / "forks", entry).start(*arguments)


def code_and_errors(process: Forked) -> tuple[int | None, str]:
    process.wait()
    return process.returncode, process.communicate()[1]


def test_the_verdict_stands_if_printing_fails(
    home: Path, damaged: dict[str, Path], forks: Forks, tmp_path: Path
) -> None:
    def audit(verdict: str) -> tuple[object, ...]:
        return ("audit", "-q", "--home", home, "--blobs", damaged[verdict], "--jobs", 1)

    nowhere = without_output(tmp_path, *audit("failed"))
    full = forks.start_printing(*audit("failed"), output=FULL)
    assert code_and_errors(closed_pipe(forks, tmp_path, 1, *audit("passed"))) == (0, "")
    assert code_and_errors(closed_pipe(forks, tmp_path, 0, *audit("incomplete"))) == (3, "")
    assert code_and_errors(full) == (1, NOT_WHOLE)
    assert code_and_errors(nowhere) == (1, "")


def test_a_limited_stream_shows_another_character_or_its_code(home: Path) -> None:
    plain = {"PYTHONIOENCODING": "ascii", "COLUMNS": "120"}
    code, out, err = ended(begun("", "runs", "list", "--home", home, **plain))
    assert (code, err) == (0, "")
    assert re.search(r"\| 0x[0-9a-f]{8}\.\.\.[0-9a-f]{6} ", out)
    assert out.isascii()
    code, _, err = ended(begun("", "runs", "show", "å…", "--home", home, **plain))
    assert code == 2
    assert err.startswith("cmfl: run name '\\xe5...': must be up to 64")


def test_a_command_without_a_verdict_fails_only_with_the_machine(
    home: Path, forks: Forks, tmp_path: Path
) -> None:
    rows = ("rounds", "list", "--json", "--home", home)
    # What runs claim is read without an EVM, which would take a second to import.
    claims = ("runs", "list", "--json", "--home", home)
    nowhere = [begun(">&-", "--help"), begun(">&- 2>&-", *claims)]
    full = forks.start_printing(*rows, output=FULL)
    assert code_and_errors(closed_pipe(forks, tmp_path, 0, "--help")) == (0, "")
    assert code_and_errors(closed_pipe(forks, tmp_path, 1, *rows)) == (0, "")
    assert code_and_errors(full) == (2, NOT_WHOLE)
    assert [ended(process) for process in nowhere] == [(0, "", "")] * 2


def test_an_error_that_cannot_be_printed_keeps_its_code(forks: Forks) -> None:
    processes = [begun(into, "sing") for into in ("2>&-", "2>&1 | true")]
    assert forks.start_printing("sing", errors=FULL).wait() == 2
    assert [ended(process)[0] for process in processes] == [2, 2]
