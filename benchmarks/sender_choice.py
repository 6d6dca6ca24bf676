"""How often colluders reach half of a round's clients, by the seeds that they may choose among.

    python -m benchmarks.sender_choice    print the table and write docs/measured/sender_choice.json

Of 60 clients 18 collude, 12 are members, and 18 train and are accepted. A lot draws the next
committee among these, and the trainers among the others. Who may choose takes the seed with most
colluders in the next round, of 100.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from benchmarks.harness import keep_table
from clients.experiments.report import markdown

CLIENTS, COLLUDERS, MEMBERS, TRAINERS, ROUNDS = 60, 18, 12, 18, 100
FRIEND = 0.01  # share of the blocks that a friend makes who tries hashes until one suits
Counts: TypeAlias = NDArray[np.int64]  # a number of each run, shape (runs,)


class Chooser(NamedTuple):
    """A choice among so many seeds, by the number of leading senders that collude."""

    sentence: str
    seeds: Callable[[Counts], Counts]
    friend: bool = False


def _waiting(blocks: int) -> Callable[[Counts], Counts]:
    return lambda leading: np.where(leading > 0, blocks, 1)


CHOOSERS = (
    Chooser("no choice", np.ones_like),
    Chooser("turns of one block (protocol 3)", lambda leading: leading + 1),
    Chooser("a hostile first sender waits for 15 blocks", _waiting(15)),
    Chooser("a hostile first sender waits for 60 blocks", _waiting(60)),
    Chooser(
        f"turns of one block, and a friend makes {FRIEND:.0%} of the blocks and tries hashes",
        lambda leading: leading + 1,
        friend=True,
    ),
    Chooser(
        "`beacon = none`, eight late trainers and a hostile primary",
        lambda leading: np.full_like(leading, 2**8),
    ),
)


def captured(chooser: Chooser, runs: int = 20_000, seed: int = 0) -> float:
    """Return the share of runs in which colluders are half of some round's clients."""
    rng = np.random.default_rng(seed)
    start = np.full(runs, COLLUDERS)
    members = rng.hypergeometric(start, CLIENTS - start, MEMBERS)
    trainers = _sampled(rng, members)
    is_captured = np.zeros(runs, dtype=bool)
    for _ in range(ROUNDS):
        is_captured |= 2 * (members + trainers) >= MEMBERS + TRAINERS
        places = rng.random((runs, MEMBERS)).argsort(axis=1)
        is_honest = places >= members[:, None]
        leading = np.where(is_honest.any(axis=1), is_honest.argmax(axis=1), MEMBERS)
        seeds = chooser.seeds(leading)
        best = np.full(runs, -1)
        next_members, next_trainers = members.copy(), trainers.copy()
        for number in range(int(seeds.max())):
            drawn = rng.hypergeometric(trainers, TRAINERS - trainers, MEMBERS)
            sampled = _sampled(rng, drawn)
            better = (number < seeds) & (drawn + sampled > best)
            best = np.where(better, drawn + sampled, best)
            next_members = np.where(better, drawn, next_members)
            next_trainers = np.where(better, sampled, next_trainers)
        if chooser.friend:
            is_captured |= rng.random(runs) >= (1 - FRIEND) ** seeds
        members, trainers = next_members, next_trainers
    return float(is_captured.mean())


def _sampled(rng: np.random.Generator, members: Counts) -> Counts:
    others = COLLUDERS - members
    return rng.hypergeometric(others, CLIENTS - MEMBERS - others, TRAINERS)


def main() -> None:
    """Print the table, and write it into docs/measured."""
    rows = [[chooser.sentence, f"{captured(chooser):.2f}"] for chooser in CHOOSERS]
    lines = markdown(["who may choose", "half of a round, in 100 rounds"], rows)
    print("\n".join(lines))
    keep_table("sender_choice", lines)


if __name__ == "__main__":
    main()
