"""Views in time: each twice as long as the one before, and none for an empty seat."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from ledger.actors.view_timing import ViewSpan, view_at
from ledger.protocol.consensus import MAX_VIEWS, primary_seat
from ledger.protocol.types import Phase
from tests.actors.support import PARAMETERS, Network, RunningMember, elected

if TYPE_CHECKING:
    from ledger.protocol.inputs import Inputs

SECONDS = float(PARAMETERS.view_seconds)
BEGIN = 100.0


@pytest.fixture(scope="module")
def inputs() -> Inputs:
    return Network().close().inputs


def test_each_view_lasts_twice_as_long_as_the_previous_one(inputs: Inputs) -> None:
    begin, seconds = BEGIN, SECONDS
    for number in range(5):
        span = ViewSpan(number, begin, seconds)
        assert view_at(inputs, Phase.ELECTION, BEGIN, begin) == span
        assert view_at(inputs, Phase.ELECTION, BEGIN, span.end - 0.01) == span
        begin, seconds = span.end, 2 * seconds


def test_there_is_no_view_after_the_last(inputs: Inputs) -> None:
    end = BEGIN + SECONDS * (2**MAX_VIEWS - 1)
    last = view_at(inputs, Phase.AGGREGATION, BEGIN, end - 1)
    assert last is not None
    assert last.view == MAX_VIEWS - 1
    assert view_at(inputs, Phase.AGGREGATION, BEGIN, end) is None


def test_the_view_of_an_empty_seat_takes_no_time(inputs: Inputs) -> None:
    committee = inputs.participants.committee
    places = [primary_seat(inputs.seed, Phase.AGGREGATION, v, len(committee)) for v in range(8)]
    banned = committee[places[0]]
    empty = replace(inputs, participants=replace(inputs.participants, banned=frozenset({banned})))
    taken = [number for number in range(8) if places[number] != places[0]]
    found = view_at(empty, Phase.AGGREGATION, BEGIN, BEGIN)
    assert found == ViewSpan(taken[0], BEGIN, SECONDS * 2 ** taken[0])
    after = view_at(empty, Phase.AGGREGATION, BEGIN, found.end)
    assert after == ViewSpan(taken[1], found.end, SECONDS * 2 ** taken[1])


def test_restarted_member_is_in_the_same_view_of_both_phases() -> None:
    network = Network()
    view = network.close()
    member = RunningMember(network, view.inputs.participants.members[0])
    network.now = view.closed_at + 1.5 * SECONDS
    assert_same_view_after_restart(member)
    elected(network)
    network.now = 30.0
    member.deliver()
    member.step()
    network.now = 30.0 + 2.6 * SECONDS  # the first certificate was seen at 30
    assert_same_view_after_restart(member)
    assert member.next_time() == 30.0 + 3 * SECONDS


def assert_same_view_after_restart(member: RunningMember) -> None:
    before = member.next_time()
    assert before is not None
    member.restart()
    member.deliver()
    assert member.next_time() == before
