"""What all measurements share: a clock, tables on the terminal, result files, and the machine."""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple, TypeVar

import torch
from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).parents[1]
MEASURED = ROOT / "docs" / "measured"  # results that pages name
ROWS = ROOT / "benchmarks" / "paper" / "rows"
RESULTS = ROOT / "benchmarks" / "results"  # results of this machine alone, which no commit has
T = TypeVar("T")
Row = dict[str, Any]


class Seconds(NamedTuple):
    """Seconds on the wall and of processors."""

    wall: float
    cpu: float


def timed(work: Callable[[], T]) -> tuple[T, Seconds]:
    """Return what a function returns, and its seconds."""
    wall, cpu = time.perf_counter(), time.process_time()
    result = work()
    return result, Seconds(time.perf_counter() - wall, time.process_time() - cpu)


def show(rows: Sequence[Mapping[str, Any]], title: str = "", *, heads: Sequence[str] = ()) -> None:
    """Print rows as a table: a line each, or a column each below their `heads`."""
    if heads:
        table = Table("", *heads, title=title)
        for key in rows[0]:
            table.add_row(key, *(f"{row[key]:,}" for row in rows))
    else:
        table = Table(*rows[0], title=title)
        for row in rows:
            table.add_row(*map(str, row.values()))
    # At least 112 columns, so that no name is cut.
    Console(width=max(112, Console().width)).print(table)


def keep(path: Path, document: Any) -> None:
    """Write a result file."""
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"{json.dumps(document, indent=1)}\n", "utf-8")


def keep_table(name: str, lines: Sequence[str], **facts: str) -> None:
    """Write a table of a page into docs/measured, with the command that makes it."""
    document = {"command": f"python -m benchmarks.{name}", "table": list(lines), **facts}
    keep(MEASURED / f"{name}.json", document)


def gemm_rate() -> float:
    """Return the GFLOP/s of 1024³ products on one thread; low if others use the machine."""
    side, threads = 1024, torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        generator = torch.Generator().manual_seed(0)
        a, b = (torch.rand(side, side, generator=generator) for _ in range(2))
        product = torch.mm(a, b)
        seconds = [timed(lambda: torch.mm(a, b, out=product))[1].wall for _ in range(15)]
    finally:
        torch.set_num_threads(threads)
    return 2e-9 * side**3 / median(seconds)


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
