"""A second process for one run is refused, and the message names the first process."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from ledger.io.folder_lock import run_lock
from ledger.io.home import Home
from ledger.protocol.errors import ConfigurationError

if TYPE_CHECKING:
    from pathlib import Path

HOLDER = """
import sys
from pathlib import Path
from ledger.io.folder_lock import run_lock
from ledger.io.home import Home

home, *sys.argv[:] = sys.argv[1:]
with run_lock(Home(Path(home)).run("run")):
    print("held", flush=True)
    sys.stdin.read()
"""


def holding(home: Path, *arguments: str) -> subprocess.Popen[bytes]:
    """Return a process with these arguments that holds the run's lock."""
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(home), *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == b"held\n"
    return holder


def test_a_held_run_is_refused_until_its_process_is_killed(tmp_path: Path) -> None:
    paths = Home(tmp_path).run("run")
    with holding(tmp_path, "/usr/bin/cmfl", "run", "--rpc-url", "https://secret@node") as holder:
        said = rf"^run 'run': process {holder.pid} \(cmfl run\) plays or deploys it"
        with pytest.raises(ConfigurationError, match=said), run_lock(paths):
            pass
        with run_lock(Home(tmp_path).run("other")):
            pass
        holder.kill()
        holder.wait()
    with run_lock(paths):
        assert list(paths.path.iterdir()) == [paths.lock]


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("-c", "run"), "python"),
        (("/home/me/train.py", "password"), "train.py"),
        (("/lib/cmfl/__main__.py", "run"), "cmfl run"),
        (("/bin/cmfl", "--version"), "cmfl"),
    ],
)
def test_a_lock_names_the_program_and_no_arguments(
    tmp_path: Path, arguments: tuple[str, ...], named: str
) -> None:
    paths = Home(tmp_path).run("run")
    with holding(tmp_path, *arguments) as holder:
        assert paths.lock.read_text() == f"{holder.pid} {named}\n"
        holder.kill()


@pytest.mark.parametrize("content", ["", "\n", "x y\n", "12\n", "12 \x1b[2J\n", "12 cmfl run\n"])
def test_any_content_of_a_lock_file_is_a_short_sentence(tmp_path: Path, content: str) -> None:
    paths = Home(tmp_path).run("run")
    with run_lock(paths):
        paths.lock.write_text(content)
        with pytest.raises(ConfigurationError) as refused, run_lock(paths):
            pass
    named = "process 12" if content.startswith("12") else "another process"
    command = " (cmfl run)" if "run" in content else ""
    assert str(refused.value).startswith(f"run 'run': {named}{command} plays or deploys it; ")
    assert str(refused.value).isprintable()
