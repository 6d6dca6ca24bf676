"""What a contender measures of itself: rounds after the warm-up, of its whole process tree."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import numpy as np
import pytest

from benchmarks.workloads import RoundClock, hand_in, tree_cpu_seconds

if TYPE_CHECKING:
    from pathlib import Path

BUSY = "import time\nwhile time.process_time() < 0.2: pass\ninput()"


def test_cpu_seconds_include_running_and_ended_children() -> None:
    before = tree_cpu_seconds(os.getpid())
    with subprocess.Popen([sys.executable, "-c", BUSY], stdin=subprocess.PIPE) as child:
        while tree_cpu_seconds(child.pid) < 0.15:
            time.sleep(0.01)
        assert tree_cpu_seconds(os.getpid()) - before >= 0.15
        child.communicate(b"\n")
    assert tree_cpu_seconds(os.getpid()) - before >= 0.15
    assert tree_cpu_seconds(child.pid) == 0


def test_the_warm_up_is_kept_apart(tmp_path: Path) -> None:
    clock = RoundClock()
    for _ in range(3):
        clock.start()
        clock.stop(training=0.5)
    hand_in(tmp_path, clock, np.array([3, 4], dtype=np.float32), ["numpy"], path="plain")
    result = json.loads((tmp_path / "result.json").read_text("utf-8"))
    assert len(result["rounds"]) == 2
    assert result["rounds"][0]["training"] == 0.5
    assert result["aggregate_norm"] == 5
    assert result["path"] == "plain"


def test_a_warm_up_alone_is_no_result(tmp_path: Path) -> None:
    clock = RoundClock()
    clock.start()
    clock.stop()
    with pytest.raises(ValueError, match="no round was timed"):
        hand_in(tmp_path, clock, np.zeros(2, dtype=np.float32), [])
    assert not (tmp_path / "result.json").exists()
