"""State of the machine: multiplication rate of one core, and hardware."""

from __future__ import annotations

import os
import platform
import time
from pathlib import Path
from statistics import median
from typing import Any

import torch

_SIDE = 1024
_TIMES = 15


def gemm_rate() -> float:
    """Return the GFLOP/s of 1024³ products in float32 on one thread, the median of some.

    It takes about half a second. A calm machine always gives the same; less means that others
    use it, and that wall seconds measured near it are too long.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        generator = torch.Generator().manual_seed(0)
        a, b = (torch.rand(_SIDE, _SIDE, generator=generator) for _ in range(2))
        product = torch.empty(_SIDE, _SIDE)
        torch.mm(a, b, out=product)
        seconds = []
        for _ in range(_TIMES):
            start = time.perf_counter()
            torch.mm(a, b, out=product)
            seconds.append(time.perf_counter() - start)
    finally:
        torch.set_num_threads(threads)
    return 2e-9 * _SIDE**3 / median(seconds)


def machine() -> dict[str, Any]:
    """Return what a figure has to be read with: processor, cores, system and versions."""
    cpuinfo = Path("/proc/cpuinfo")
    text = cpuinfo.read_text("utf-8") if cpuinfo.exists() else ""
    names = [line.partition(":")[2].strip() for line in text.splitlines() if "model name" in line]
    return {
        "processor": names[0] if names else platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "torch": str(torch.__version__),
    }
