"""Try mutants of the contract: `python -m tests.mutation`. A run that was ended resumes.

Every mutant that compiles to other code runs the tests of `tests/contracts`, without those that
compare byte code and gas with the committed ones. A mutant is killed if a test fails, or uses up
60 seconds of CPU. Tests that cannot be collected and a process that dies are no kill.
"""

# ruff: noqa: T201 - a program that prints

from __future__ import annotations

import argparse
import hashlib
import json
import os
import signal
import subprocess
import sys
import tomllib
from collections import Counter
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

from contracts.build import HERE
from tests.mutation.mutants import KINDS, Mutant, mutants, one_line

RESULTS = Path("build") / "mutants" / "results.jsonl"
REASONS = Path(__file__).with_name("survivors.toml")
NO_MUTANTS = {"not compiled", "same code"}
COLUMNS = ("mutants", "killed", "survived", "crashed")
HEAD = """# Mutants

This page lists the results of mutation testing of the contract, for engineers who change it. Each
mutant is one changed place, and a test must fail for it. `python -m tests.mutation --page FILE`
writes the page, with the reasons in `tests/mutation/survivors.toml`. Changes that compile to the
same code, or not at all, do not count as mutants.

"""


def main() -> int:
    """Try the mutants that the command line names; return 1 if a survivor has no reason."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--name", action="append", help="name of a mutant to try; default: all")
    parser.add_argument("--most", type=int, help="number of mutants to try at most")
    parser.add_argument("--processes", type=int, default=os.cpu_count(), help="at a time")
    parser.add_argument("--results", type=Path, default=RESULTS, help="file of the results")
    parser.add_argument("--page", type=Path, help="file to write the table to")
    options = parser.parse_args()
    all_mutants = mutants()
    found = read(options.results)
    waiting = [
        mutant
        for mutant in sorted(all_mutants, key=_turn)
        if (mutant.name in options.name if options.name else mutant.name not in found)
    ][: options.most]
    options.results.parent.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(options.processes) as pool, options.results.open("a") as file:
        trials = {pool.submit(outcome, mutant, options.results): mutant for mutant in waiting}
        for number, trial in enumerate(as_completed(trials), 1):
            mutant, ended = trials[trial], trial.result()
            found[mutant.name] = ended
            print(json.dumps({"name": mutant.name} | ended), file=file, flush=True)
            change = one_line(f"{mutant.original[:60]} -> {mutant.replacement[:60]}")
            where = f"{mutant.path}:{mutant.line} {mutant.kind}"
            print(f"{number}/{len(waiting)} {ended['outcome']:12} {where}: {change}", flush=True)
    text, is_explained = table(all_mutants, found, reasons())
    print(text)
    if options.page is not None:
        options.page.write_text(HEAD + text, "utf-8")
    return 0 if is_explained else 1


def _turn(mutant: Mutant) -> tuple[bool, bytes]:
    drawn = hashlib.sha256(mutant.name.encode()).digest()
    return mutant.kind != "guard", drawn


def outcome(mutant: Mutant, results: Path) -> dict[str, str]:
    """Return the outcome of a mutant, tried in a process of its own."""
    words = [sys.executable, "-m", "tests.mutation.trial", mutant.name, str(results)]
    ended = subprocess.run(words, cwd=HERE.parent, capture_output=True, text=True, check=False)
    if ended.returncode == -signal.SIGPROF:
        return {"outcome": "killed", "test": ""}
    if ended.returncode:
        return {"outcome": "crashed", "test": (ended.stderr or ended.stdout)[-400:]}
    found: dict[str, str] = json.loads(ended.stdout.splitlines()[-1])
    return found


def read(path: Path) -> dict[str, dict[str, str]]:
    lines = path.read_text("utf-8").splitlines() if path.exists() else []
    return {one.pop("name"): one for one in map(json.loads, lines)}


def reasons() -> dict[str, str]:
    found = tomllib.loads(REASONS.read_text("utf-8"))
    return {name: one["reason"] for one in found["survivors"] for name in one["mutants"]}


def table(
    changes: list[Mutant], results: dict[str, dict[str, str]], known: dict[str, str]
) -> tuple[str, bool]:
    """Return the page's text, and whether each survivor has a reason and none is a guard."""
    tried = [(one, results[one.name]["outcome"]) for one in changes if one.name in results]
    counted: Counter[tuple[str, str]] = Counter()
    for mutant, ended in tried:
        for row in (mutant.kind, "all") if ended not in NO_MUTANTS else ():
            counted[row, ended] += 1
            counted[row, "mutants"] += 1
    rows = [kind for kind in KINDS if counted[kind, "mutants"]] + ["all"]
    living = [mutant for mutant, ended in tried if ended == "survived"]
    living.sort(key=lambda mutant: (mutant.path, mutant.line, mutant.name))
    lines = [
        *(f"Tried: {len(tried):,} of {len(changes):,} changes.", ""),
        *(f"| | {' | '.join(COLUMNS)} |", f"|---|{'---|' * len(COLUMNS)}"),
        *(f"| {row} | {' | '.join(str(counted[row, one]) for one in COLUMNS)} |" for row in rows),
        *("", "| survivor | where | change | reason |", "|---|---|---|---|"),
        *(
            f"| {one.name} | {one.path}, {one.function or 'module'} | {_change(one)} "
            f"| {known.get(one.name, 'NOT EXPLAINED')} |"
            for one in living
        ),
        "",
    ]
    is_explained = all(one.name in known and one.kind != "guard" for one in living)
    return "\n".join(lines), is_explained


def _change(mutant: Mutant) -> str:
    def code(text: str) -> str:
        return "`" + one_line(text).replace("|", "\\|")[:80] + "`" if text else "nothing"

    return f"{mutant.kind}: {code(mutant.original)} → {code(mutant.replacement)}"


if __name__ == "__main__":
    sys.exit(main())
