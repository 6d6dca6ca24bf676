"""A real PostgreSQL server on a socket of its own, for these tests."""

from __future__ import annotations

import getpass
import os
import shutil
import subprocess
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

_AS_POSTGRES = ["runuser", "-u", "postgres", "--"]
"""PostgreSQL refuses to run as root."""


def programs() -> Path:
    """Return where the server's programs are; skip the test where they are not."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    if not found:
        pytest.skip("no PostgreSQL server is installed")
    if os.geteuid() == 0 and shutil.which("runuser") is None:
        pytest.skip("PostgreSQL refuses to run as root, and there is no runuser")
    return found[-1].parent


@contextmanager
def server() -> Iterator[str]:
    """Run a server; yield the part of its URLs that says where it is."""
    bin_folder = programs()
    is_root = os.geteuid() == 0
    prefix = _AS_POSTGRES if is_root else []
    user = "postgres" if is_root else getpass.getuser()
    with tempfile.TemporaryDirectory(prefix="cmfl-pg-") as name:
        folder = Path(name)
        if is_root:
            shutil.chown(folder, "postgres")
        data = folder / "data"
        init = ["initdb", "-D", str(data), "-U", user, "-A", "trust", "--no-sync"]
        _run([*prefix, str(bin_folder / init[0]), *init[1:]])
        control = [*prefix, str(bin_folder / "pg_ctl"), "-D", str(data), "-w"]
        options = f"-c listen_addresses='' -c unix_socket_directories={folder} -c fsync=off"
        log = ["-l", str(folder / "log"), "-o", options]
        _run([*control, *log, "start"])
        try:
            yield f"{user}@/{{database}}?host={folder}"
        finally:
            _run([*control, "-m", "immediate", "stop"])


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, cwd="/", check=False)
    assert done.returncode == 0, done.stderr
