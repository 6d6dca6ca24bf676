"""Who may choose among seeds captures more rounds: the table of the threat model."""

from __future__ import annotations

import json
from math import comb

import pytest

from benchmarks.harness import MEASURED
from benchmarks.sender_choice import (
    CHOOSERS,
    CLIENTS,
    COLLUDERS,
    MEMBERS,
    ROUNDS,
    TRAINERS,
    captured,
)


def test_a_choice_of_seeds_captures_more_runs() -> None:
    none, turns, waiting = (captured(chooser, runs=1500) for chooser in CHOOSERS[:3])
    assert none < turns < waiting
    # Without a choice half of a round's clients is a matter of the hypergeometric law.
    active = MEMBERS + TRAINERS
    once = sum(
        comb(COLLUDERS, bad) * comb(CLIENTS - COLLUDERS, active - bad)
        for bad in range(active // 2, COLLUDERS + 1)
    ) / comb(CLIENTS, active)
    assert none == pytest.approx(1 - (1 - once) ** ROUNDS, abs=0.03)


def test_the_published_table_is_of_these_choosers() -> None:
    table = json.loads((MEASURED / "sender_choice.json").read_bytes())["table"]
    assert [line.split("|")[1].strip() for line in table[2:]] == [c.sentence for c in CHOOSERS]
