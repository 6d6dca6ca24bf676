"""The contenders: each is a command in its own environment."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from pathlib import Path

ENVIRONMENTS = Path(__file__).parent.parent.parent / ".bench"
"""Where `make bench-peers` puts the peers' environments, by name."""

REFERENCE = "plain loop"
"""Whose first aggregate all others of a task are compared with, and whose seconds."""

_TUNED_ALLOCATOR = {
    "MALLOC_MMAP_THRESHOLD_": "1073741824",
    "MALLOC_TRIM_THRESHOLD_": "4294967296",
    "MALLOC_TOP_PAD_": "268435456",
}


@dataclass(frozen=True, slots=True)
class Contender:
    """One way to do the work.

    Attributes:
        name: in the table.
        module: what is run, below `benchmarks.peers`.
        peer: whose environment it needs; None for this project's own.
        launcher: words between the interpreter and the module.
        options: of the module.
        environment: variables of its process.
    """

    name: str
    module: str
    peer: str | None = None
    launcher: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)

    @property
    def is_there(self) -> bool:
        """True if its environment is complete."""
        return self.peer is None or (ENVIRONMENTS / self.peer / ".installed").exists()

    @property
    def python(self) -> Path:
        """The interpreter that runs it."""
        if self.peer is None:
            return Path(sys.executable)
        return ENVIRONMENTS / self.peer / "bin" / "python"

    def command(self, work: Path, out: Path, rounds: int) -> list[str]:
        """Return the command that runs it."""
        module = ("-m", f"benchmarks.peers.{self.module}")
        places = (str(work), str(out), "--rounds", str(rounds))
        return [str(self.python), *self.launcher, *module, *places, *self.options]


OURS = Contender("ours", "engine_rounds", options=("--variant", "built-in"))
OWN_MODULE = Contender("ours, a user's module", "engine_rounds", options=("--variant", "own"))
PLAIN = Contender(REFERENCE, "plain_rounds")
_TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
PFL = Contender("pfl, 2 processes", "pfl_rounds", "pfl", _TORCHRUN)
PFL_TUNED = Contender(
    "pfl, our allocator settings", "pfl_rounds", "pfl", _TORCHRUN, environment=_TUNED_ALLOCATOR
)
FLOWER = Contender(
    "Flower, 2 actors",
    "flower_rounds",
    "flower",
    environment={"FLWR_TELEMETRY_ENABLED": "0", "RAY_USAGE_STATS_ENABLED": "0"},
)


@dataclass(frozen=True, slots=True)
class PeerTask:
    """One table's comparison.

    Attributes:
        name: of it.
        work: name of the workload.
        contenders: in the order in which they take turns; ours first.
        rounds: each of them times in one turn.
        members: of the committee; 0 without scoring.
    """

    name: str
    work: str
    contenders: tuple[Contender, ...]
    rounds: int
    members: int = 0


TASKS = {
    task.name: task
    for task in (
        PeerTask("W1L", "W1L", (OURS, PLAIN, OWN_MODULE, PFL, FLOWER), 2),
        PeerTask("W1S", "W1S", (OURS, PLAIN, PFL, FLOWER), 3),
        PeerTask("W2", "W2", (OURS, PLAIN, PFL, PFL_TUNED, FLOWER), 5),
        PeerTask("W3", "W3", (OURS, PLAIN, PFL, FLOWER), 20),
        PeerTask(
            "CMFL",
            "W1L",
            (
                Contender("ours, memory ledger", "cmfl_rounds", options=("--variant", "memory")),
                Contender("ours, chain", "cmfl_rounds", options=("--variant", "chain")),
                Contender("plain loop, naive scores, no ledger", "plain_rounds"),
            ),
            2,
            members=40,
        ),
    )
}
