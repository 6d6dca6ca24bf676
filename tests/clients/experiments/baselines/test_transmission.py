"""How long a round is on the wire."""

from __future__ import annotations

import math

import pytest

from clients.experiments.baselines.simulated_time import (
    RATES,
    System,
    Transmission,
    TransmissionSizes,
    seconds_on_wire,
    transfers,
)
from ledger.protocol.errors import ConfigurationError

PAPER = TransmissionSizes(committee=43, trainers=65)


@pytest.mark.parametrize(
    ("system", "text", "authors"),
    [
        (System.FEDERATED, 2, 2),
        (System.COMMITTEE, 43 + 65, 43 + 1),
        (System.BRAIN_TORRENT, 65, 65),
        (System.GOSSIP, 64, 64),
    ],
)
def test_the_transfers_of_the_paper_s_sizes(system: System, text: int, authors: int) -> None:
    assert transfers(system, Transmission.TEXT, PAPER) == text
    assert transfers(system, Transmission.AUTHORS, PAPER) == authors


def test_cmfl_beats_brain_torrent_by_script_and_not_by_text() -> None:
    cmfl, other = System.COMMITTEE, System.BRAIN_TORRENT
    assert transfers(cmfl, Transmission.AUTHORS, PAPER) == 44 < 65
    assert transfers(cmfl, Transmission.TEXT, PAPER) == 108 > 65
    assert transfers(other, Transmission.TEXT, PAPER) == 65


def test_what_is_counted_has_no_formula() -> None:
    with pytest.raises(ValueError, match="follows from bytes"):
        transfers(System.COMMITTEE, Transmission.COUNTED, PAPER)


def test_a_million_bytes_at_each_of_the_paper_s_rates() -> None:
    assert [seconds_on_wire(1_000_000, rate) for rate in RATES] == [8.0, 0.8, 0.08]
    assert seconds_on_wire(0, 1) == 0


@pytest.mark.parametrize("rate", [0.0, -1.0, math.nan, math.inf])
def test_a_rate_that_is_none_is_refused(rate: float) -> None:
    with pytest.raises(ConfigurationError, match=r"rate = .* Mbit/s: must be above 0"):
        seconds_on_wire(1, rate)


@pytest.mark.parametrize("sizes", [(0, 65), (43, 0)])
def test_sizes_that_there_cannot_be_are_refused(sizes: tuple[int, int]) -> None:
    with pytest.raises(ConfigurationError, match=f"committee = {sizes[0]}, trainers = {sizes[1]}"):
        TransmissionSizes(*sizes)
