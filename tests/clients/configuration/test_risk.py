"""Chances of a drawn committee, and warnings of settings in which the rules are untested."""

from __future__ import annotations

from fractions import Fraction
from math import comb

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clients.configuration.committee_risk import (
    blocking_members,
    chance_of_at_least,
    committee_risks,
)
from clients.configuration.loading import load
from clients.configuration.tested_regime import regime_warnings
from ledger.protocol.consensus import replies_needed
from ledger.protocol.types import Quorum


def test_two_of_three_members_drawn_from_five_with_two_malicious() -> None:
    # Of the 10 committees 3 have both malicious clients, each with one of the 3 honest ones.
    assert chance_of_at_least(2, members=3, malicious=2, clients=5) == Fraction(3, 10)
    assert chance_of_at_least(1, members=3, malicious=2, clients=5) == Fraction(9, 10)
    assert chance_of_at_least(3, members=3, malicious=2, clients=5) == 0


def test_a_share_is_of_as_many_clients_as_a_run_draws() -> None:
    # 30 % of 12 are 3.6, and so 4; at least 2 of 4 members of them: 201 of 495 committees.
    risk = next(one for one in committee_risks(12, 4) if one.percent == 30)
    assert risk.half == 201 / 495
    assert risk.blocking[Quorum.PAPER] == 1 - comb(8, 4) / 495


@pytest.mark.parametrize("quorum", Quorum)
@pytest.mark.parametrize("members", range(3, 44))
def test_so_many_silent_members_block_and_one_less_does_not(members: int, quorum: Quorum) -> None:
    needed = 1 + replies_needed(members, quorum)  # the primary, and its replies
    blocking = blocking_members(members, quorum)
    assert members - blocking < needed <= members - blocking + 1


@given(st.data())
def test_chances_of_all_counts_sum_to_one(data: st.DataObject) -> None:
    clients = data.draw(st.integers(1, 40))
    members, malicious = (data.draw(st.integers(0, clients)) for _ in range(2))
    chances = [chance_of_at_least(n, members, malicious, clients) for n in range(members + 2)]
    assert chances[0] == 1
    assert chances[-1] == 0
    assert chances == sorted(chances, reverse=True)
    expected = sum(chances[1:])  # of a count, the sum of its tail: C times the malicious share
    assert expected == Fraction(members * malicious, clients)


def test_more_malicious_clients_than_there_are_clients_are_refused() -> None:
    with pytest.raises(ValueError, match="4 malicious, of 3 clients"):
        chance_of_at_least(1, members=2, malicious=4, clients=3)
    with pytest.raises(ValueError, match="4 members"):
        chance_of_at_least(1, members=4, malicious=1, clients=3)


ATTACK = ("malice.attack=ipm",)


@pytest.mark.parametrize("preset", ["digits", "robust", "digits-by-writer"])
def test_what_was_tested_is_not_warned_of(preset: str) -> None:
    settings = (*ATTACK, "malice.malicious_rate=0.3", "data.path=x")
    assert regime_warnings(load(preset, settings=settings[: 3 if "writer" in preset else 2])) == []


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ((*ATTACK, "malice.malicious_rate=0.31"), "malice.malicious_rate = 0.31: beyond 0.3"),
        (("training.local_steps=1",), "training.local_steps = 1: "),
        (("data.partition.name=dirichlet", "data.partition.alpha=0.1"), "alpha = 0.1: below 0.3"),
        (("data.partition.alpha=0.1",), "alpha = 0.1: below 0.3"),
        (("protocol.active_rate=0.3",), "a committee of 7: "),
        (("model.name=mlp",), "model.name = mlp: the rules held with cnn and softmax; "),
    ],
)
def test_each_bound_is_warned_of_alone(settings: tuple[str, ...], named: str) -> None:
    (warning,) = regime_warnings(load("digits", settings=settings))
    assert named in warning


def test_another_division_has_no_concentration_of_classes() -> None:
    settings = ("data.partition.name=quantity", "data.partition.alpha=0.1")
    assert regime_warnings(load("digits", settings=settings)) == []


def test_epochs_are_no_single_step() -> None:
    settings = ("training.local_epochs=1", "training.local_steps=")
    assert regime_warnings(load("digits", settings=settings)) == []
