"""Segmented gossip: everybody pulls pieces of others' models, all at once."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clients.adversaries.attackers import Attackers
from clients.configuration.loading import load
from clients.experiments.baselines.gossip import (
    GossipSettings,
    draw_sources,
    gossip_traffic,
    merge_segments,
    run_gossip,
    segments_of,
)
from clients.experiments.baselines.sites import Sites, weighted_mean
from clients.experiments.baselines.traffic import TrafficLink
from clients.random_streams import named_stream
from clients.runs.metrics import Quality
from clients.runs.population import populate, with_training_path
from clients.runs.preparation import open_measure
from ledger.protocol.errors import ConfigurationError
from tests.clients.experiments.baselines.steps import (
    StepEngine,
    data_of,
    gauge_of,
    ids,
)


def sites_with(*models: list[float]) -> Sites:
    """Return participants 0, 1, ... with these models."""
    them = Sites(StepEngine({}), np.zeros(1, np.float32), ids(*range(len(models))), Attackers())
    for client, model in zip(them.participants, models, strict=True):
        them.models[client] = np.array(model, np.float32)
    return them


def test_ten_numbers_in_three_segments() -> None:
    assert segments_of(10, 3) == [slice(0, 4), slice(4, 7), slice(7, 10)]
    assert segments_of(4, 1) == [slice(0, 4)]
    assert segments_of(2, 2) == [slice(0, 1), slice(1, 2)]


def test_a_merge_by_pencil() -> None:
    a, b, c = ids(0, 1, 2)
    them = sites_with([0, 0, 0, 0], [4, 4, 4, 4], [8, 8, 8, 8])
    draws = {a: [(b,), (c,)], b: [(c,), (a,)], c: [(a,), (b,)]}
    merge_segments(them, segments_of(4, 2), draws, (1, 3, 1))
    # a: (0 + 3 * 4) / 4 and (0 + 8) / 2; b: (3 * 4 + 8) / 4 and 3 * 4 / 4; c: 8 / 2, (8 + 12) / 4.
    assert [model.tolist() for model in them.models.values()] == [
        [3, 3, 4, 4],
        [5, 5, 3, 3],
        [4, 4, 5, 5],
    ]


def test_segments_longer_than_a_part_are_merged_whole() -> None:
    them = sites_with([0.0] * 40_000, [2.0] * 40_000)
    a, b = ids(0, 1)
    merge_segments(them, segments_of(40_000, 1), {a: [(b,)], b: [(a,)]}, (1, 1))
    assert {number for model in them.models.values() for number in model.tolist()} == {1.0}


@given(st.integers(2, 9), st.integers(1, 6), st.data())
@settings(deadline=None, max_examples=40)
def test_draws_are_r_different_peers_for_each_segment(
    participants: int, segments: int, data: st.DataObject
) -> None:
    replicas = data.draw(st.integers(1, participants - 1))
    clients = ids(*range(participants))
    draws = draw_sources(clients, segments, replicas, named_stream(0, "draws"))
    for client, of in draws.items():
        assert len(of) == segments
        assert all(len(set(sources)) == replicas and client not in sources for sources in of)
        drawn = [source for sources in of for source in sources]
        times = [drawn.count(other) for other in clients if other != client]
        assert max(times) - min(times) <= 1, "nobody is dealt again before all have been"
        if segments * replicas <= participants - 1:
            assert max(times) == 1


@given(st.integers(2, 5), st.integers(1, 4), st.data())
@settings(deadline=None, max_examples=30)
def test_drawing_everybody_gives_the_weighted_mean_bit_for_bit(
    participants: int, segments: int, data: st.DataObject
) -> None:
    numbers = st.floats(-100, 100, width=32)
    models = [data.draw(st.lists(numbers, min_size=5, max_size=5)) for _ in range(participants)]
    samples = data.draw(st.lists(st.integers(1, 50), min_size=participants, max_size=participants))
    them = sites_with(*models)
    mean = weighted_mean(them.models, samples)
    draws = draw_sources(them.participants, segments, participants - 1, named_stream(1, "draws"))
    merge_segments(them, segments_of(5, segments), draws, samples)
    assert {model.tobytes() for model in them.models.values()} == {mean.tobytes()}


def test_a_round_by_pencil() -> None:
    engine = StepEngine({0: [1, 0], 1: [2, 1], 2: [6, 5]})
    exchange = GossipSettings(rounds=1, participants=3, segments=2, replicas=2)
    zeros = np.zeros(2, np.float32)
    (row,) = run_gossip(data_of(1, 1, 1), gauge_of(engine, 3), zeros, exchange, seed=0)
    assert (row.quality.accuracy, row.quality.loss) == (3 / 8, 2)
    assert row.beside == row.quality, "all have the same model"
    assert row.used == row.participants == ids(0, 1, 2)
    assert row.initiator is None


def test_an_attacker_gives_a_forged_model_and_merges_its_own() -> None:
    engine = StepEngine({0: [3, 3], 1: [6, 6], 2: [3, 3]})
    attackers = Attackers(frozenset(ids(1)), "back-gradient")
    exchange = GossipSettings(1, 3, segments=1, replicas=2, attackers=attackers)
    zeros = np.zeros(2, np.float32)
    (row,) = run_gossip(data_of(1, 1, 1), gauge_of(engine, 3), zeros, exchange, seed=0)
    # The honest come to (3 - 6 + 3) / 3, the attacker to (3 + 6 + 3) / 3.
    assert row.quality.loss == (0 + 4 + 0) / 3
    assert (row.malicious, row.malicious_used) == (1, 1)


def test_every_link_takes_r_models_in_s_r_pieces() -> None:
    clients = ids(*range(7))
    draws = draw_sources(clients, 3, 2, named_stream(0, "draws"))
    traffic = gossip_traffic(draws, segments_of(30, 3))
    # 2 * 4 * 30 bytes of numbers, six sample counts, and six questions.
    asked = [source for of in draws.values() for sources in of for source in sources]
    assert {asked.count(client) for client in clients} == {6}, "dealt out evenly: S R = A - 1"
    assert traffic.links() == dict.fromkeys(clients, TrafficLink(240 + 48 + 48, 240 + 48 + 48))
    assert traffic.requests == 7 * 6


def test_only_rounds_that_are_due_are_measured() -> None:
    engine = StepEngine({0: [1, 0], 1: [2, 1], 2: [6, 5]})
    gauge = gauge_of(engine, 3, rounds=3, every=2)
    exchange = GossipSettings(rounds=3, participants=2, segments=1, replicas=1)
    rows = run_gossip(data_of(1, 1, 1), gauge, np.zeros(2, np.float32), exchange, seed=0)
    assert [row.quality == Quality() for row in rows] == [True, False, False]
    assert [row.beside == Quality() for row in rows] == [True, False, False]


def test_a_run_learns_and_repeats_itself() -> None:
    configuration = load("smoke", settings=("seed=3", "protocol.rounds=6"))
    population = populate(configuration)
    some = GossipSettings(rounds=6, participants=8)
    with open_measure(with_training_path(configuration, population), population, rows=8) as measure:
        arguments = (population.data, measure.gauge, population.initial, some)
        rows = run_gossip(*arguments, 3)
        assert rows == run_gossip(*arguments, 3) != run_gossip(*arguments, 4)
    first, last = rows[0], rows[-1]
    assert first.accuracy is not None
    assert last.accuracy is not None
    assert last.beside.accuracy is not None
    assert last.accuracy > max(0.5, first.accuracy)
    assert last.beside.accuracy >= last.accuracy


@pytest.mark.parametrize(
    ("segments", "replicas", "sentence"),
    [
        (0, 1, "segments = 0: must be at least 1$"),
        (3, 1, "segments = 3"),
        (1, 0, "replicas = 0: must be at least 1, and at most the 2 other participants"),
        (1, 3, "replicas = 3"),
    ],
)
def test_segments_and_replicas_that_cannot_be_are_refused(
    segments: int, replicas: int, sentence: str
) -> None:
    wrong = GossipSettings(1, 3, segments, replicas)
    gauge, zeros = gauge_of(StepEngine({}), 3), np.zeros(2, np.float32)
    with pytest.raises(ConfigurationError, match=sentence):
        run_gossip(data_of(1, 1, 1), gauge, zeros, wrong, seed=0)
    GossipSettings(1, 3, segments=2, replicas=2).require(3, 2)
