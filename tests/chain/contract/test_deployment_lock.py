"""Two processes that would deploy one run: one does, the other is told."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from ledger.chain.contract.deployment import deployment_lock
from ledger.io.home import Home
from ledger.protocol.errors import ChainError

if TYPE_CHECKING:
    from pathlib import Path

HOLDER = """
import sys
from pathlib import Path
from ledger.chain.contract.deployment import deployment_lock
from ledger.io.home import Home

with deployment_lock(Home(Path(sys.argv[1])).run("run")):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_second_is_refused_until_the_first_ends_or_is_killed(tmp_path: Path) -> None:
    paths = Home(tmp_path).run("run")
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        said = "'run' is being deployed by another process"
        with pytest.raises(ChainError, match=said), deployment_lock(paths):
            pass
        with deployment_lock(Home(tmp_path).run("other")):
            pass
        holder.kill()
        holder.wait()
    with deployment_lock(paths):
        assert list(paths.path.iterdir()) == []
