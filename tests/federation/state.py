"""What the matrix has come to so far, in a file that the next session goes on from."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING

from ledger.io.home import DISK
from tests.federation.cells import CELLS, Cell, Fault, Role
from tests.federation.checks import Violation, Wrong

if TYPE_CHECKING:
    from pathlib import Path

WANTED = 10
"""How often each cell has to occur."""


@dataclass
class Tally:
    """How often one cell occurred."""

    done: int = 0
    missed: int = 0
    recovery_seconds: list[float] = field(default_factory=list)
    unhealed: int = 0


@dataclass
class State:
    """All sessions on one chain together."""

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
        """Say whether every cell that can be done here has occurred often enough."""
        return all(self.cells[cell].done >= wanted for cell in possible)

    def write(self, path: Path) -> None:
        """Keep it."""
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
