"""Exit code 1 is a verdict: too little memory and too few descriptors end with another."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from unittest.mock import patch

import pytest

from tests.cmfl.commands.conftest import SHARED, cmfl
from tests.patience import PATIENCE_SECONDS
from tests.processes import Forks

pytestmark = SHARED

SCRIPT = (str(Path(sys.executable).with_name("cmfl")),)
MODULE = (sys.executable, "-m", "cmfl")


def limited(limit: str, command: Sequence[object]) -> subprocess.CompletedProcess[str]:
    named = [name for name in os.environ if name.startswith("COV")]
    return subprocess.run(
        ["sh", "-c", f'ulimit {limit} && exec "$@"', "sh", *map(str, command)],
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
        env={name: value for name, value in os.environ.items() if name not in named},
    )


def refused(found: subprocess.CompletedProcess[str]) -> str:
    """Return the one sentence with which a command ended before its verdict."""
    assert found.returncode in {2, 70}, found
    assert found.stdout == ""
    assert found.stderr.startswith("cmfl: ")
    assert found.stderr.count("\n") == 1, found.stderr
    return found.stderr


@pytest.mark.parametrize("program", [SCRIPT, MODULE], ids=["script", "module"])
@pytest.mark.parametrize("mebibytes", [24, 140])
def test_too_little_memory_is_no_verdict(
    home: Path, program: tuple[str, ...], mebibytes: int
) -> None:
    found = limited(f"-v {mebibytes * 1024}", [*program, "audit", "--home", home])
    assert found.returncode == 2
    assert "not enough memory" in refused(found)
    assert f"{mebibytes} MiB" in found.stderr


def test_a_small_run_is_audited_in_little_memory(home: Path) -> None:
    audit = (*SCRIPT, "audit", "--home", home, "--jobs", 1)
    found = limited(f"-v {400 * 1024}", audit)
    assert (found.returncode, found.stderr) == (0, "")


def refused_for_descriptors(code: int, text: str) -> None:
    assert code in {2, 3}, text  # 3: blobs that it could not open
    assert "Too many open files" in text
    assert "Traceback" not in text


def test_too_few_descriptors_for_an_import_are_no_verdict(home: Path) -> None:
    found = limited("-n 6", [*SCRIPT, "audit", "--home", home, "--jobs", 1])
    refused_for_descriptors(found.returncode, found.stdout + found.stderr)


def test_too_few_descriptors_for_the_blobs_are_no_verdict(home: Path, tmp_path: Path) -> None:
    entry = "tests.cmfl.commands.interrupted:with_few_descriptors"
    audit = (8, "audit", "--home", home, "--jobs", 1)
    with Forks(tmp_path / "forks", entry) as forks, forks.start(*audit) as process:
        out, err = process.communicate()
        refused_for_descriptors(process.wait(), out + err)


UNLOADED = ImportError("libtorch_cpu.so: failed to map segment from shared object")


@pytest.mark.parametrize("error", [MemoryError(), UNLOADED], ids=["memory", "library"])
def test_running_out_of_memory_is_no_internal_error(error: Exception) -> None:
    with patch("cmfl.where.Target.reader", side_effect=error):
        result = cmfl("rounds", "list")
    assert (result.code, result.out) == (2, "")
    assert result.err.startswith("cmfl: not enough memory")
    assert result.err.count("\n") == 1
