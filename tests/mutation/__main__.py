"""Try mutants: `python -m tests.mutation`; ended at any time, the next run goes on.

Contract: every mutant that compiles to other code runs all tests of `tests/contracts`, but for
those that compare byte code and gas with what is committed. Protocol and audit: every mutant runs
all tests of `tests/protocol` and `tests/audit` that run its line, and others for five seconds.

What was found before counts while its change can still be made: the same text, in the same place of
the same function. A mutant whose test has gone is tried again.

A mutant is killed if a test fails (pytest's exit code 1), or if one loops: it takes ten times the
CPU time that it takes without a mutant and five seconds more, or 60 seconds. Tests that cannot be
collected and a process that dies are no kill.
"""

# ruff: noqa: T201 - a program that prints

from __future__ import annotations

import argparse
import hashlib
import os
import signal
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from tests.mutation import contract_trial, python_trial, table
from tests.mutation.measuring import measured
from tests.mutation.mutants import Kind
from tests.mutation.processes import done_apart
from tests.mutation.results import KILLED, Outcome, Result, append, read

if TYPE_CHECKING:
    from types import ModuleType

    from tests.mutation.mutants import Mutant
    from tests.mutation.nearest import Measured

STATE = Path("build") / "mutants"
TRIALS: dict[str, ModuleType] = {"python": python_trial, "contract": contract_trial}
AGAIN = {
    "survived": {Outcome.SURVIVED, Outcome.CRASHED},
    "all": set(Outcome),
    "none": set[Outcome](),
}


def main() -> int:
    """Try the mutants that the command line names, and print what became of all."""
    arguments = _arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    if not arguments.table:
        # Apart: who has warmed up for the contract knows the modules of the protocol.
        for name in arguments.of:
            ended = tried_apart(name, arguments)
            if ended:
                return ended
    there_are = [mutant for trial in TRIALS.values() for mutant in trial.mutants()]
    return table.show(arguments.state, arguments.page, there_are)


def tried_apart(name: str, arguments: argparse.Namespace) -> int:
    """Try the mutants of one kind of source in a process of its own; return its exit code."""
    child = os.fork()
    if child == 0:
        code = 70
        try:
            code = _try_all(name, arguments)
        finally:
            sys.stdout.flush()
            os._exit(code)
    try:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    except BaseException:
        # Whoever is ended ends what it began.
        os.kill(child, signal.SIGTERM)
        raise


def _try_all(name: str, arguments: argparse.Namespace) -> int:
    trial, state = TRIALS[name], arguments.state / f"{name}.jsonl"
    without = measured(name, trial, Path(), arguments.state / f"{name}-tests.json")
    if without is None:
        return 1
    results = read(state)
    waiting = [
        mutant
        for mutant in chosen(trial.mutants(), arguments)
        if is_to_be_tried(results.get(mutant.name), without, AGAIN[arguments.again])
    ]
    # What one trial may know, the one before it must not.
    waiting.sort(key=lambda mutant: trial.ROOTS.index(mutant.root))
    print(f"{name}: {len(waiting)} mutants to try, {len(results)} tried before", flush=True)
    for number, mutant in enumerate(waiting, 1):
        trial.warm(mutant.root)
        ended = done_apart(partial(trial.tried, mutant, without, results, arguments.seconds))
        result = _result(mutant, ended.answer, ended.log_tail, ended.seconds)
        results[mutant.name] = result
        append(state, result)
        print(
            f"{number}/{len(waiting)} {result.outcome:12} {result.seconds:6.1f} s "
            f"{result.path}:{result.line} {result.kind}: "
            f"{result.original[:60]} -> {result.replacement[:60]}",
            flush=True,
        )
    return 0


def is_to_be_tried(before: Result | None, without: Measured, again: set[Outcome]) -> bool:
    """Say whether a mutant is tried.

    Args:
        before: what became of it, if it was tried.
        without: the tests that there are.
        again: the outcomes that are tried once more.
    """
    if before is None or before.outcome in again:
        return True
    return before.outcome in KILLED and before.test not in without.seconds


def chosen(mutants: list[Mutant], arguments: argparse.Namespace) -> list[Mutant]:
    """Return the mutants to try: guards first, then in an order that the seed gives."""
    picked = [
        mutant
        for mutant in mutants
        if (not arguments.only or mutant.edit.kind in arguments.only)
        and arguments.path in mutant.path
        and (not arguments.name or mutant.name in arguments.name)
    ]
    picked.sort(
        key=lambda mutant: (
            mutant.edit.kind is not Kind.GUARD,
            hashlib.sha256(f"{arguments.seed} {mutant.name}".encode()).digest(),
        )
    )
    return picked[: arguments.most]


def _result(
    mutant: Mutant, answer: dict[str, object] | None, log_tail: str, seconds: float
) -> Result:
    crashed = {"outcome": "crashed", "test": log_tail, "tests": 0}
    found = crashed if answer is None else answer
    if found["outcome"] == "crashed" and answer is not None:
        found = {**found, "test": f"{found['test']}: {log_tail}"}
    return Result(
        name=mutant.name,
        path=mutant.path,
        line=mutant.edit.line,
        function=mutant.edit.function,
        kind=mutant.edit.kind.value,
        original=mutant.original,
        replacement=mutant.replacement,
        outcome=Outcome(str(found["outcome"])),
        test=str(found["test"]),
        tests=int(str(found["tests"])),
        seconds=round(seconds, 1),
    )


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("of", nargs="*", choices=[*TRIALS, []], help="default: all")
    parser.add_argument("--only", action="append", type=Kind, help="a kind, such as guard")
    parser.add_argument("--path", default="", help="of these files alone: a part of their names")
    parser.add_argument("--name", action="append", help="this mutant alone, by its name")
    parser.add_argument("--most", type=int, help="how many at most, of each")
    parser.add_argument("--seed", type=int, default=1, help="which of them, if not all")
    parser.add_argument("--seconds", type=float, default=60.0, help="of CPU, for one test")
    parser.add_argument("--again", choices=AGAIN, default="none", help="what is tried once more")
    parser.add_argument("--state", type=Path, default=STATE, help="folder of the results")
    parser.add_argument("--table", action="store_true", help="try nothing, only show")
    parser.add_argument("--page", type=Path, help="write the table to this file, too")
    arguments = parser.parse_args()
    arguments.of = arguments.of or list(TRIALS)
    return arguments


if __name__ == "__main__":
    sys.exit(main())
