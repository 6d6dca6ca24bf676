"""What became of each mutant: a JSON line each, so that a run goes on where the last one ended."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


class Outcome(StrEnum):
    """What became of a mutant."""

    KILLED = "killed"
    """A test failed: pytest ended with exit code 1."""

    LOOPS = "loops"
    """One test used up its limit of CPU time, which no test comes near: killed."""

    SURVIVED = "survived"
    """All tests passed."""

    SAME_CODE = "same code"
    """The compiler makes the same code of it: no mutant."""

    NOT_COMPILED = "not compiled"
    """The compiler refuses it: no mutant."""

    CRASHED = "crashed"
    """The tests could not run, or the process died: neither killed nor survived."""


NO_MUTANTS = frozenset({Outcome.SAME_CODE, Outcome.NOT_COMPILED})
KILLED = frozenset({Outcome.KILLED, Outcome.LOOPS})


@dataclass(frozen=True, slots=True)
class Result:
    """What became of one mutant.

    Attributes:
        name: the mutant's.
        path: its file.
        line: in the source that was mutated.
        function: where it lies.
        kind: of the change.
        original: what stood there.
        replacement: what stood there instead.
        outcome: what became of it.
        test: the test that failed or looped; of a crash, the last words.
        tests: how many were run.
        seconds: of CPU, compiler and start included.
    """

    name: str
    path: str
    line: int
    function: str
    kind: str
    original: str
    replacement: str
    outcome: Outcome
    test: str
    tests: int
    seconds: float


def read(path: Path) -> dict[str, Result]:
    """Return the newest result of each mutant, by name; a torn last line is passed over.

    Args:
        path: the state file; it need not exist.
    """
    found: dict[str, Result] = {}
    if not path.exists():
        return found
    for line in path.read_text("utf-8").splitlines():
        try:
            fields = json.loads(line)
        except ValueError:
            continue
        fields["outcome"] = Outcome(fields["outcome"])
        found[fields["name"]] = Result(**fields)
    return found


def append(path: Path, result: Result) -> None:
    """Write down what became of a mutant."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(asdict(result)) + "\n")
