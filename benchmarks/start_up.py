"""Cost of reading commands: CPU seconds of their whole processes, with imports.

`python -m benchmarks.start_up` plays a short run into a new home and lets the commands take
turns, each in a clean process, `--repeats` times.
"""

from __future__ import annotations

import argparse
import json
import platform
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

from rich.console import Console
from rich.table import Table

COMMANDS = (
    ("--help",),
    ("--version",),
    ("runs", "list"),
    ("rounds", "list"),
    ("rounds", "show", "3"),
    ("rounds", "explain", "3"),
    ("clients", "list"),
    ("doctor",),
)
RESULTS = Path(__file__).parent / "results"


def main() -> None:
    """Measure, print and write it down."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--repeats", type=int, default=7, help="times that each command runs")
    repeats = parser.parse_args().repeats
    if repeats < 1:
        parser.error("--repeats must be at least 1")
    times: dict[str, list[float]] = {" ".join(command): [] for command in COMMANDS}
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder) / "home"
        _cpu_seconds("run", "--preset", "smoke", "--home", str(home), "--json")
        for _ in range(1 + repeats):
            for command in COMMANDS:
                where = () if command[0].startswith("--") else ("--home", str(home))
                times[" ".join(command)].append(_cpu_seconds(*command, *where))
    medians = {name: round(median(seconds[1:]), 3) for name, seconds in times.items()}
    table = Table("command", "CPU seconds", title="start-up")
    for name, seconds in medians.items():
        table.add_row(f"cmfl {name}", f"{seconds:.3f}")
    Console().print(table)
    RESULTS.mkdir(exist_ok=True)
    document = {"machine": platform.processor() or platform.machine(), "CPU seconds": medians}
    (RESULTS / "start_up.json").write_text(json.dumps(document, indent=1) + "\n", "utf-8")


def _cpu_seconds(*arguments: str) -> float:
    """Run a command; return what it took of the processors, user and system."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(
        [sys.executable, "-m", "cmfl", *arguments],
        stdout=subprocess.DEVNULL,
        check=True,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


if __name__ == "__main__":
    main()
