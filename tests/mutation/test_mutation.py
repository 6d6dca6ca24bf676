"""Mutants are the changes that they claim to be; survivors without a reason are reported."""

from __future__ import annotations

import pytest

pytest.importorskip("vyper", reason="the compiler is in the dev extra")

from tests.mutation.__main__ import reasons, table
from tests.mutation.mutants import Mutant, mutants, mutants_of

SOURCE = b"""# pragma version 0.4.3
MOST: constant(uint256) = 7
total: uint256

@external
def add(value: uint256, round: uint256) -> bool:
    assert value < MOST, "too much"
    self.total += value
    return value != 0
"""


def changes(found: list[Mutant]) -> set[tuple[str, str, str]]:
    return {(one.kind, one.original, one.replacement) for one in found}


def test_each_small_change_of_a_contract_is_a_mutant() -> None:
    assert changes(mutants_of("a.vy", SOURCE)) == {
        ("constant", "7", "8"),
        ("constant", "7", "6"),
        ("guard", 'assert value < MOST, "too much"', "pass"),
        ("comparison", "<", ">="),
        ("boundary", "<", "<="),
        ("store", "self.total += value", "pass"),
        ("arithmetic", "+", "-"),
        ("clamped", "value", "max(1, min(value, round))"),
        ("clamped", "value", "max(value, round)"),
        ("comparison", "!=", "=="),
        ("constant", "0", "1"),
        ("returned", "value != 0", "not (value != 0)"),
        ("returned", "value != 0", "empty(bool)"),
    }


def test_a_mutant_is_one_change_and_keeps_its_name() -> None:
    (guard,) = [one for one in mutants_of("a.vy", SOURCE) if one.kind == "guard"]
    assert guard.applied(SOURCE) == SOURCE.replace(b'assert value < MOST, "too much"', b"pass")
    moved = mutants_of("a.vy", b"# above\n" + SOURCE)
    assert guard.name in {one.name for one in moved}


def test_a_survivor_needs_a_reason_and_a_guard_never_survives() -> None:
    found = {one.kind: one for one in mutants_of("a.vy", SOURCE)}
    for kind, known, is_explained in (
        ("store", {}, False),
        ("store", {found["store"].name: "why"}, True),
        ("guard", {found["guard"].name: "why"}, False),
    ):
        results = {found[kind].name: {"outcome": "survived", "test": ""}}
        assert table(list(found.values()), results, known)[1] is is_explained


def test_each_reason_is_of_a_mutant() -> None:
    assert reasons().keys() <= {one.name for one in mutants()}
