"""Workers as a run starts them, in Pythons of their own; a killed run leaves none behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.clients.training.made import JOBS
from tests.clients.training.test_engines import digests, is_running, opened
from tests.patience import wait_until

pytestmark = pytest.mark.xdist_group("engine")

RUN = """
import sys
sys.path.insert(0, sys.argv[1])
from tests.clients.training.made import JOBS
from tests.clients.training.test_engines import START, opened

if __name__ == "__main__":
    engine = opened(2)
    for line in sys.stdin:
        trained = engine.train(START, JOBS)
        print(*engine.processes, *(update.payload.digest.hex() for update in trained), flush=True)
"""

REPOSITORY = Path(__file__).parents[4]


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs /proc")
def test_workers_ignore_interrupts_and_end_with_a_killed_parent(tmp_path: Path) -> None:
    script = tmp_path / "run.py"
    script.write_text(RUN)
    # Not "-W error", by which the resource tracker would swallow its own complaint.
    command = [sys.executable, str(script), str(REPOSITORY)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        workers, made = trained(process)
        try:
            with opened(1) as alone:
                assert made == [digest.hex() for digest in digests(alone, JOBS).values()]
            assert len(workers) == 2
            for pid in workers:
                assert "MALLOC_TOP_PAD_=" in Path(f"/proc/{pid}/environ").read_text()
                os.kill(pid, signal.SIGINT)
            assert trained(process) == (workers, made)
        finally:
            process.kill()
        # The pipe ends when the last process that writes to it has ended, and that is the one
        # that complains of names which were left behind.
        assert process.stderr is not None
        assert process.stderr.read() == ""
    wait_until(lambda: not any(map(is_running, workers)))


def trained(process: subprocess.Popen[str]) -> tuple[list[int], list[str]]:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("train\n")
    process.stdin.flush()
    words = process.stdout.readline().split()
    return [int(pid) for pid in words[: -len(JOBS)]], words[-len(JOBS) :]
