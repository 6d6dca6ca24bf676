"""`python -m benchmarks.paper`: the paper's verdicts and figures, and its packed rows.

    report   judge the paper's claims, and write the report
    plot     draw the figures of all experiments
    pack     put loose rows and their run folders into one archive for each experiment

Experiments themselves are run, listed and audited by `cmfl experiment`.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.paper.claims import theorem
from benchmarks.paper.paper_report import ROWS, paper_report, read_published
from clients.experiments.figures import DRAWN_BY, draw
from clients.experiments.rows import pack
from ledger.io.home import DISK
from ledger.protocol.errors import CmflError

SCIENCE = Path(__file__).parents[2] / "docs" / "science"


def main(words: Sequence[str] | None = None) -> None:
    """Run one command.

    Args:
        words: of the command line; the process's own if not given.
    """
    arguments = _arguments(words)
    try:
        arguments.command(arguments)
    except CmflError as error:
        sys.exit(f"benchmarks.paper: {error}")


def _report(arguments: argparse.Namespace) -> None:
    figures = sorted(arguments.figures.glob("*.svg"))
    folder = arguments.to.parent
    links = [Path(os.path.relpath(path, folder)).as_posix() for path in figures]
    DISK.write_whole(arguments.to, paper_report(read_published(arguments.rows), links).encode())


def _plot(arguments: argparse.Namespace) -> None:
    paths = draw(
        read_published(arguments.rows), arguments.to, {**DRAWN_BY, "bound": theorem.draw_bound}
    )
    print(f"{len(paths)} files in {arguments.to}")


def _pack(arguments: argparse.Namespace) -> None:
    for path in sorted(arguments.rows.glob("*.jsonl")):
        print(pack(arguments.rows, path.stem))


def _arguments(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.paper")
    commands = parser.add_subparsers(required=True)
    named: dict[str, tuple[Callable[[argparse.Namespace], None], dict[str, str]]] = {
        "report": (_report, {"to": "report.md", "figures": "figures"}),
        "plot": (_plot, {"to": "figures"}),
        "pack": (_pack, {}),
    }
    for name, (command, places) in named.items():
        subparser = commands.add_parser(name)
        subparser.set_defaults(command=command)
        subparser.add_argument("--rows", type=Path, default=ROWS, help="folder of the rows")
        for option, place in places.items():
            subparser.add_argument(f"--{option}", type=Path, default=SCIENCE / place)
    return parser.parse_args(words)


if __name__ == "__main__":
    main()
