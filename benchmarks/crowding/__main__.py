"""Command line of `python -m benchmarks.crowding`."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.crowding.attacks import ATTACKS
from benchmarks.crowding.rule import RULES, Array
from benchmarks.crowding.runs import LAST, Regime, play
from benchmarks.crowding.vectors import answered, violations

if TYPE_CHECKING:
    from collections.abc import Sequence


def print_table(arguments: argparse.Namespace) -> None:
    """Play all runs and print accuracy ± standard error and the paired difference."""
    seeds = arguments.seeds
    regime = Regime(arguments.rounds, arguments.share, arguments.clip)
    plain = replace(regime, is_clipped=False)
    clean = np.array([play("fedavg", "none", seed, plain) for seed in seeds])
    print(
        f"{regime.share:.0%} attack, seeds {seeds}; accuracy, difference to FedAvg without attack"
    )
    print(f"{'attack':<10}" + "".join(f"{rule:^33}" for rule in arguments.rules))
    for attack in arguments.attacks:
        cells = []
        for rule in arguments.rules:
            runs = np.array([play(rule, attack, seed, regime) for seed in seeds])
            cells.append(f"{_shown(runs)} {_shown(runs - clean, '+')}")
        print(f"{attack:<10}" + "".join(f"{cell:^33}" for cell in cells), flush=True)


def _shown(numbers: Array, sign: str = "") -> str:
    """Return a mean with its standard error, which one number does not have."""
    if len(numbers) < 2:
        return f"{numbers.mean():{sign}.4f}"
    return f"{numbers.mean():{sign}.4f} ±{numbers.std(ddof=1) / len(numbers) ** 0.5:.4f}"


def main(words: Sequence[str] | None = None) -> int:
    """Print the table or vectors, or hold a rule to vectors; return 1 if these contradict it."""
    parser = argparse.ArgumentParser(
        prog="benchmarks.crowding", description="The rule of crowded residuals, in NumPy."
    )
    parser.add_argument("--seeds", type=int, nargs="+", default=[100, 101, 102])
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--share", type=float, default=0.3, help="of clients that attack")
    parser.add_argument("--clip", action="store_true", help="updates to the length of two fifths")
    parser.add_argument("--rules", nargs="+", choices=RULES, default=RULES)
    parser.add_argument("--attacks", nargs="+", choices=ATTACKS, default=list(ATTACKS))
    parser.add_argument("--vectors", type=Path, metavar="FILE", help="check these cases instead")
    parser.add_argument(
        "--answer", choices=("crowd", "peers"), help="print the cases with this rule's numbers"
    )
    arguments = parser.parse_args(words)
    if min(arguments.seeds) < 0:
        parser.error(f"--seeds: {min(arguments.seeds)} is below 0")
    if arguments.rounds < LAST:
        parser.error(f"--rounds: {arguments.rounds} is below {LAST}, whose mean is printed")
    if not 0 <= arguments.share <= 0.5:
        parser.error(f"--share: {arguments.share} is not from 0 to 0.5")
    if arguments.answer and arguments.vectors is None:
        parser.error("--answer: needs the cases of a file: --vectors FILE")
    if arguments.vectors is None:
        print_table(arguments)
        return 0
    try:
        if arguments.answer:
            print(json.dumps(answered(arguments.vectors, arguments.answer), indent=1))
            return 0
        found = violations(arguments.vectors)
    except (OSError, ValueError) as error:
        parser.error(f"--vectors: {arguments.vectors}: {error}")
    print("\n".join(found) or "All cases hold.")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
