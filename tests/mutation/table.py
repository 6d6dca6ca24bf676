"""What became of all mutants, in numbers, and each survivor with the reason why it lives."""

# ruff: noqa: T201 - a program that prints

from __future__ import annotations

import tomllib
from collections import Counter, defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

from tests.mutation.mutants import Kind
from tests.mutation.results import KILLED, NO_MUTANTS, Outcome, read

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.mutation.mutants import Mutant
    from tests.mutation.results import Result

REASONS = Path(__file__).with_name("survivors.toml")
COLUMNS = ("mutants", "killed", "survived", "crashed")


def reasons() -> dict[str, str]:
    """Return why survivors live, by the mutant's name."""
    found = tomllib.loads(REASONS.read_text("utf-8"))
    return {name: one["reason"] for one in found["survivor"] for name in one["mutants"]}


def show(state: Path, page: Path | None, mutants: Iterable[Mutant]) -> int:
    """Print the table; return 1 if a guard survived or a survivor has no reason, else 0.

    Args:
        state: the folder of the results.
        page: where to write the table, too.
        mutants: the changes that there are; results of others are left out.
    """
    known = reasons()
    of_root: defaultdict[str, set[str]] = defaultdict(set)
    for mutant in mutants:
        of_root[mutant.root].add(mutant.name)
    found = [one for path in sorted(state.glob("*.jsonl")) for one in read(path).values()]
    text, unexplained = [], 0
    for root, names in of_root.items():
        results = [result for result in found if result.name in names]
        text += [f"## {root}", "", f"Tried: {len(results):,} of {len(names):,} changes.", ""]
        text += [*_counts(results), ""]
        living = [result for result in results if result.outcome is Outcome.SURVIVED]
        text += _survivors(living, known)
        unexplained += sum(
            1 for one in living if one.name not in known or one.kind == Kind.GUARD.value
        )
    body = "\n".join(text)
    print(body)
    if page is not None:
        page.write_text(HEAD + body, "utf-8")
    return 1 if unexplained else 0


HEAD = """# What became of the mutants

Written by `python -m tests.mutation --table --page FILE`; the reasons are in
`tests/mutation/survivors.toml`. What does not compile, or compiles to the same code, is no mutant.

"""


def _counts(results: Iterable[Result]) -> list[str]:
    counted: Counter[tuple[str, str]] = Counter()
    for result in results:
        if result.outcome in NO_MUTANTS:
            continue
        column = "killed" if result.outcome in KILLED else result.outcome.value
        for row in (result.kind, "all"):
            counted[row, column] += 1
            counted[row, "mutants"] += 1
    rows = [kind.value for kind in Kind if counted[kind.value, "mutants"]] + ["all"]
    return [
        f"| | {' | '.join(COLUMNS)} |",
        f"|---|{'---|' * len(COLUMNS)}",
        *(
            f"| {row} | {' | '.join(str(counted[row, column]) for column in COLUMNS)} |"
            for row in rows
        ),
    ]


def _survivors(living: list[Result], known: dict[str, str]) -> list[str]:
    if not living:
        return []
    living.sort(key=lambda one: (one.path, one.line, one.name))
    return [
        "| survivor | where | change | why it lives |",
        "|---|---|---|---|",
        *(
            f"| {one.name} | {one.path}, {one.function or 'module'} | {_change(one)} "
            f"| {known.get(one.name, 'NOT EXPLAINED')} |"
            for one in living
        ),
        "",
    ]


def _change(one: Result) -> str:
    def code(text: str) -> str:
        return "`" + text.replace("|", "\\|")[:80] + "`" if text else "nothing"

    return f"{one.kind}: {code(one.original)} → {code(one.replacement)}"
