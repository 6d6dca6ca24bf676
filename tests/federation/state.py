"""What the matrix has come to so far, in a file that the next session goes on from."""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from ledger.io.home import DISK
from tests.federation.cells import CELLS, Cell, Fault, Role
from tests.federation.checks import Violation, Wrong

WANTED = 10  # how often each cell has to occur


@dataclass
class Tally:
    done: int = 0
    missed: int = 0
    recovery_seconds: list[float] = field(default_factory=list)
    unhealed: int = 0


@dataclass
class State:
    chain: str
    cells: dict[Cell, Tally] = field(default_factory=lambda: {cell: Tally() for cell in CELLS})
    violations: list[Violation] = field(default_factory=list)
    rounds: int = 0
    abandoned: int = 0
    beyond: int = 0
    drawn: int = 0
    federations: int = 0
    seconds: float = 0.0
    audited: int = 0

    def is_complete(self, possible: tuple[Cell, ...], wanted: int = WANTED) -> bool:
        return all(self.cells[cell].done >= wanted for cell in possible)

    def write(self, path: Path) -> None:
        whole = asdict(replace(self, cells={}))
        whole["cells"] = [
            {"fault": cell.fault, "role": cell.role, **asdict(tally)}
            for cell, tally in self.cells.items()
        ]
        DISK.write_whole(path, json.dumps(whole, indent=1).encode())

    @classmethod
    def read(cls, path: Path) -> State:
        whole = json.loads(path.read_text("utf-8"))
        cells = {cell: Tally() for cell in CELLS}
        for entry in whole.pop("cells"):
            cell = Cell(Fault(entry.pop("fault")), Role(entry.pop("role")))
            cells[cell] = Tally(**entry)
        violations = [
            Violation(Wrong(v["wrong"]), v["round"], v["fault"], tuple(v["clients"]))
            for v in whole.pop("violations")
        ]
        return cls(cells=cells, violations=violations, **whole)


BEGIN, END = "<!-- begin of the table -->", "<!-- end of the table -->"
SUMS = (
    *("chain", "rounds", "hours", "federations", "abandoned", "only the faulty primary drawn"),
    *("too many away by chance", "rounds audited", "violations"),
)


def written(page: Path, states: Sequence[State]) -> None:
    text = page.read_text("utf-8")
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"{page} has no place for the table")
    page.write_text(f"{before}{BEGIN}\n{table(states)}\n{END}{after}", "utf-8")


def table(states: Sequence[State]) -> str:
    """Return the table: a row for each cell, two columns for each chain, and what was wrong."""
    heads = "".join(f" {s.chain}: rounds | recovery, median and most (s) |" for s in states)
    lines = [f"| fault | victim |{heads}", "| --- | --- |" + " ---: | ---: |" * len(states)]
    for cell in CELLS:
        columns = "".join(_columns(state.cells[cell]) for state in states)
        lines.append(f"| {cell.fault} | {cell.role} |{columns}")
    lines += ["", f"| {' | '.join(SUMS)} |", "|" + " --- |" * len(SUMS)]
    return "\n".join([*lines, *map(_sums, states)])


def _columns(tally: Tally) -> str:
    if not tally.recovery_seconds:
        return f" {tally.done} | |"
    middle, most = statistics.median(tally.recovery_seconds), max(tally.recovery_seconds)
    return f" {tally.done} | {middle:.1f}, {most:.1f} |"


def _sums(state: State) -> str:
    wrong = {kind: sum(v.wrong is kind for v in state.violations) for kind in Wrong}
    said = ", ".join(f"{kind} {count}" for kind, count in wrong.items())
    counts = (state.rounds, f"{state.seconds / 3600:.2f}", state.federations, state.abandoned)
    more = (state.drawn, state.beyond, state.audited, said)
    return f"| {' | '.join(map(str, (state.chain, *counts, *more)))} |"
