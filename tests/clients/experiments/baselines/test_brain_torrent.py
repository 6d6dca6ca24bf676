"""BrainTorrent: one site a round asks all others for news."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from clients.adversaries.attackers import Attackers
from clients.configuration.loading import load
from clients.experiments.baselines.brain_torrent import (
    BrainTorrentSettings,
    ModelVersions,
    brain_torrent_traffic,
    run_brain_torrent,
)
from clients.experiments.baselines.traffic import TrafficLink
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

if TYPE_CHECKING:
    from clients.experiments.baselines.round import DecentralisedRound

STEPS = {0: [1, 0], 1: [2, 1], 2: [3, 2]}
ZEROS = np.zeros(2, np.float32)


def test_a_round_by_pencil() -> None:
    engine = StepEngine(STEPS)
    settings = BrainTorrentSettings(rounds=1, participants=3)
    (row,) = run_brain_torrent(data_of(1, 2, 1), gauge_of(engine, 3), ZEROS, settings, seed=2)
    # All merge to (1 + 2 * 2 + 3) / 4 = 2 and (0 + 2 * 1 + 2) / 4 = 1; then the initiator trains.
    assert row.initiator is not None
    ends = {0: (3, 1), 1: (4, 2), 2: (5, 3)}[row.initiator]
    assert (row.quality.accuracy, row.quality.loss) == (ends[0] / 8, ends[1])
    others = [step for client, step in STEPS.items() if client != row.initiator]
    firsts, lasts = zip(ends, *others, strict=True)
    assert row.beside.accuracy == pytest.approx(sum(firsts) / 3 / 8)
    assert row.beside.loss == pytest.approx(sum(lasts) / 3)
    assert row.used == tuple(client for client in ids(0, 1, 2) if client != row.initiator)
    assert engine.trained == [[0, 1, 2], [row.initiator]]


def test_an_attacker_s_model_comes_in_reversed() -> None:
    attackers = Attackers(frozenset(ids(0, 1, 2)), "back-gradient")
    settings = BrainTorrentSettings(rounds=1, participants=3, attackers=attackers)
    (row,) = run_brain_torrent(
        data_of(1, 1, 1), gauge_of(StepEngine({i: [4, 4] for i in range(3)}), 3), ZEROS, settings, 0
    )
    # The initiator's own 4 and twice -4, then 4 once more.
    assert row.quality.loss == pytest.approx(-4 / 3 + 4)
    assert (row.malicious, row.malicious_used) == (3, 2)


def test_only_clients_trained_since_the_last_request_have_news() -> None:
    a, b, c = ids(0, 1, 2)
    versions = ModelVersions((a, b, c))
    assert versions.take_news(a) == ()
    versions.advance([b, c])
    assert versions.take_news(a) == (b, c)
    assert versions.take_news(a) == ()
    versions.advance([c])
    assert versions.take_news(a) == (c,)
    assert versions.take_news(b) == (c,), "who asks for the first time"


def test_everybody_has_news_in_every_round_since_everybody_trains() -> None:
    settings = BrainTorrentSettings(rounds=4, participants=3)
    rows = run_brain_torrent(data_of(1, 1, 1), gauge_of(StepEngine(STEPS), 3), ZEROS, settings, 5)
    assert [len(row.used) for row in rows] == [2, 2, 2, 2]
    assert len({row.initiator for row in rows}) > 1, "drawn anew in every round"


def test_the_initiator_s_link_takes_all_models() -> None:
    a, b, c, d = ids(0, 1, 2, 3)
    traffic = brain_torrent_traffic((a, b, c, d), b, (a, d), dimension=10)
    assert traffic.links() == {
        0: TrafficLink(received=8, sent=8 + 48),
        1: TrafficLink(received=3 * 8 + 2 * 48, sent=3 * 8),
        2: TrafficLink(received=8, sent=8),
        3: TrafficLink(received=8, sent=8 + 48),
    }
    assert (traffic.busiest, traffic.requests) == (24 + 96, 3)


def test_only_rounds_that_are_due_are_measured() -> None:
    settings = BrainTorrentSettings(rounds=3, participants=2)
    gauge = gauge_of(StepEngine(STEPS), 3, rounds=3, every=2)
    rows = run_brain_torrent(data_of(1, 1, 1), gauge, ZEROS, settings, seed=0)
    assert [row.quality == Quality() for row in rows] == [True, False, False]
    assert [row.beside == Quality() for row in rows] == [True, False, False]


def test_a_run_learns_and_repeats_itself_and_tells_each_round() -> None:
    configuration = load("smoke", settings=("seed=3", "protocol.rounds=8"))
    population = populate(configuration)
    settings = BrainTorrentSettings(rounds=8, participants=8)
    seen: list[DecentralisedRound] = []
    with open_measure(with_training_path(configuration, population), population, rows=8) as measure:
        arguments = (population.data, measure.gauge, population.initial, settings)
        rows = run_brain_torrent(*arguments, 3, seen.append)
        assert rows == tuple(seen) == run_brain_torrent(*arguments, 3)
        assert rows != run_brain_torrent(*arguments, 4)
    first, last = rows[0], rows[-1]
    assert first.loss is not None
    assert last.loss is not None
    assert last.beside.loss is not None
    assert last.loss < last.beside.loss < first.loss, "others have merged less often"
    assert last.seconds.training > 0


@pytest.mark.parametrize("participants", [1, 4])
def test_participants_that_there_are_not_are_refused(participants: int) -> None:
    settings = BrainTorrentSettings(rounds=1, participants=participants)
    with pytest.raises(ConfigurationError, match=f"participants = {participants}"):
        run_brain_torrent(data_of(1, 1, 1), gauge_of(StepEngine(STEPS), 3), ZEROS, settings, seed=0)
