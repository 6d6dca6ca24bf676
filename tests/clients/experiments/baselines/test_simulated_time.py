"""Accuracy against simulated time, from the rows of an experiment."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from clients.experiments.baselines.simulated_time import (
    Computation,
    Transmission,
    computation_of,
    solo_training_seconds,
    time_axis,
    transmission_of,
)
from clients.experiments.rows import CellRow, CellSeconds
from ledger.protocol.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from clients.experiments.definition import MethodKindName

TEXT, AUTHORS, COUNTED = Transmission

# Two rounds with C = 2 and n = 3; a model takes a second at 1 Mbit/s.
MODEL = 125_000
SIZES = {"committee": 2, "trainers": 3}


def row(
    kind: MethodKindName, seconds: CellSeconds, extra: Mapping[str, Any] | None = None
) -> CellRow:
    return CellRow(
        cell=f"{kind}/clean/0",
        experiment="efficiency",
        number=4,
        method=kind,
        kind=kind,
        condition="clean",
        axes={},
        seed=0,
        digest="0x00",
        learning_rate=0.1,
        rounds=2,
        accuracy=(0.1, 0.2),
        loss=(None, None),
        training_loss=(None, None),
        backdoor_success=(None, None),
        floor=0.1,
        final=0.15,
        malicious_accepted=None,
        malicious_trained=(0, 0),
        malicious_members=None,
        malicious_aggregated=(0, 0),
        accepted_honest=None,
        times_aggregated=(),
        samples=(),
        malicious=(),
        client_accuracy=None,
        seconds=seconds,
        bytes={"model": MODEL, "by_round": [2 * MODEL, 4 * MODEL]},
        extra=SIZES if extra is None else dict(extra),
    )


NO_WORK = CellSeconds(wall=1, cpu=1, training=0)


@pytest.mark.parametrize(
    ("kind", "text", "authors"),
    [
        ("federated", (2, 4), (2, 4)),
        ("cmfl", (5, 10), (3, 6)),
        ("brain-torrent", (3, 6), (3, 6)),
        ("gossip", (2, 4), (2, 4)),
    ],
)
def test_time_is_transmission_where_nothing_is_computed(
    kind: MethodKindName, text: tuple[float, ...], authors: tuple[float, ...]
) -> None:
    one = row(kind, NO_WORK)
    assert time_axis(one, TEXT, rate=1) == text
    assert time_axis(one, AUTHORS, rate=1) == authors
    assert time_axis(one, COUNTED, rate=1) == (2, 6)
    assert transmission_of(one, COUNTED, rate=10) == (0.2, 0.4)


def test_each_client_computes_its_share_beside_the_others() -> None:
    work = CellSeconds(wall=99, cpu=99, training=60, scoring=30, ledger=8)
    # Two rounds: of 5 clients that train and a whole committee's scores; of n = 3 and a server; of
    # 5 and the initiator again, one merge; of 5, and as many merges.
    assert computation_of(row("cmfl", work)) == Computation(6, 15, 4)
    assert computation_of(row("federated", work)) == Computation(10, 15, 4)
    assert computation_of(row("brain-torrent", work)) == Computation(10, 15, 4)
    assert computation_of(row("gossip", work)) == Computation(6, 3, 4)


def test_a_federation_of_another_size_is_divided_by_its_own() -> None:
    work = CellSeconds(wall=99, cpu=99, training=60)
    assert computation_of(row("federated", work, SIZES | {"participants": 5})) == Computation(6)


def test_computation_and_transmission_add_up_round_by_round() -> None:
    work = CellSeconds(wall=99, cpu=99, training=10, scoring=1, ledger=4)
    # Training 10 / (2 * 5), scoring 1 / 2, the ledger 4 / 2; then 2 and 4 s on the wire.
    assert time_axis(row("cmfl", work), COUNTED, rate=1) == (3.5, 9.0)
    assert time_axis(row("cmfl", work), COUNTED, rate=1, with_ledger=True) == (5.5, 13.0)


def test_given_training_times_are_equal_for_all_methods() -> None:
    work = CellSeconds(wall=99, cpu=99, training=60)
    alone = solo_training_seconds(
        [row("gossip", work), row("brain-torrent", work), row("cmfl", work)]
    )
    assert alone == (60 / 10 + 60 / 12) / 2
    assert solo_training_seconds([row("cmfl", work)]) is None
    assert time_axis(row("cmfl", work), COUNTED, rate=1, training=1) == (3, 8)
    assert time_axis(row("brain-torrent", work), COUNTED, rate=1, training=1) == (4, 10)


def test_rows_that_do_not_say_what_is_needed_are_refused() -> None:
    untimed = row("cmfl", CellSeconds(wall=1, cpu=1))
    with pytest.raises(ConfigurationError, match="cell cmfl/clean/0: its training was not timed"):
        time_axis(untimed, TEXT, rate=1)
    with pytest.raises(ConfigurationError, match="kind 'theorem' sends nothing"):
        transmission_of(row("theorem", NO_WORK), TEXT, rate=1)
    with pytest.raises(ConfigurationError, match=r"its bytes were not counted$"):
        transmission_of(replace(row("cmfl", NO_WORK), bytes={}), TEXT, rate=1)
    with pytest.raises(ConfigurationError, match="not counted in every round"):
        transmission_of(replace(row("cmfl", NO_WORK), bytes={"by_round": [1]}), COUNTED, rate=1)
    for wrong in (None, 0, True, 2.0):
        with pytest.raises(ConfigurationError, match=f"extra.committee = {wrong}: at least 1"):
            transmission_of(row("cmfl", NO_WORK, SIZES | {"committee": wrong}), TEXT, rate=1)
