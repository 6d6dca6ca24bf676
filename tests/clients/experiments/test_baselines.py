"""Loops without a committee: one server, and participants with their own models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clients.adversaries.attackers import Attackers, malicious_clients
from clients.aggregators import Aggregation, aggregator_named, pre_aggregator_named
from clients.attacks.updates import AttackHistory, AttackInput, AttackParameters
from clients.attacks.worst import Frame
from clients.configuration.loading import load
from clients.configuration.schema import EvaluationSection
from clients.datasets.federated_data import named_stream
from clients.experiments.baselines import (
    DecentralisedSettings,
    FederatedServer,
    FederatedSettings,
    MethodRound,
    Sites,
    draw_sites,
    draw_sources,
    federated_traffic,
    merge_segments,
    run_decentralised,
    run_federated,
    segments_of,
    weighted_mean,
)
from clients.experiments.definition import Method
from clients.experiments.kinds import MethodTask, Stopwatch, kind_named, root_work
from clients.models.model import ParameterVector
from clients.runs.metrics import ModelGauge, Quality
from clients.runs.open_run import open_measure
from clients.runs.population import populate, with_training_path
from clients.training.jobs import majority_rate, train_alone
from clients.training.port import Engine, Evaluation, PendingEvaluation, TrainedUpdate, TrainingJob
from ledger.protocol.encoding import sha256, vector_view
from ledger.protocol.errors import ConfigurationError
from ledger.protocol.inputs import training_seed
from ledger.protocol.payloads import Payload
from ledger.protocol.rules.distance import plain_distances
from ledger.protocol.rules.selection import aggregate
from ledger.protocol.types import ClientId, Digest

TESTED = 8  # test samples, of which as many are classified right as a model's first number says


class StepEngine(Engine):
    def __init__(self, steps: Mapping[int, Sequence[float]]) -> None:
        self.distances = plain_distances
        self.trained: list[list[int]] = []
        self._steps = {client: -np.array(step, np.float32) for client, step in steps.items()}

    def train(self, start: ParameterVector, jobs: Sequence[TrainingJob]) -> list[TrainedUpdate]:
        del start
        self.trained.append([job.client for job in jobs])
        payloads = [Payload.of(vector_view(self._steps[job.client])) for job in jobs]
        return [TrainedUpdate(j.client, sent) for j, sent in zip(jobs, payloads, strict=True)]

    def evaluate(self, vector: ParameterVector, sets: Sequence[str]) -> PendingEvaluation:
        found = Evaluation(int(vector[0]), float(vector[-1]) * TESTED, TESTED)
        return lambda: tuple(found for _ in sets)

    def close(self) -> None:
        pass


def gauge_of(engine: Engine, clients: int, rounds: int = 4, every: int = 1) -> ModelGauge:
    return ModelGauge(engine, EvaluationSection(every=every), {"test": TESTED}, rounds, clients)


def ids(*clients: int) -> tuple[ClientId, ...]:
    return tuple(map(ClientId, clients))


CONFIGURATION = load("digits", settings=("seed=3", "protocol.rounds=60"))
POPULATION = populate(CONFIGURATION)
DATA, INITIAL = POPULATION.data, POPULATION.initial
SAMPLES = DATA.sample_counts
MALICIOUS = frozenset(map(ClientId, malicious_clients(60, 0.3, named_stream(3, "malicious"))))


def run(settings: FederatedSettings, seed: int = 3) -> list[MethodRound]:
    with open_measure(
        with_training_path(CONFIGURATION, POPULATION), POPULATION, settings.participants
    ) as measure:
        return list(run_federated(SAMPLES, measure.gauge, INITIAL, settings, seed))


def accuracy(row: MethodRound) -> float:
    assert row.quality.accuracy is not None
    return row.quality.accuracy


def loss(row: MethodRound) -> float:
    assert row.quality.loss is not None
    return row.quality.loss


def test_a_clean_run_learns_and_back_gradient_slows_it() -> None:
    clean = run(FederatedSettings(30, 30))
    attacked = run(FederatedSettings(30, 30, attackers=Attackers(MALICIOUS, "back-gradient")))
    floor = majority_rate(DATA.test.y)
    assert len(clean) == 30
    assert floor < 0.15
    assert accuracy(clean[-1]) > 0.92
    assert floor < accuracy(attacked[-1]) < accuracy(clean[-1]) - 0.05
    assert loss(clean[-1]) < loss(clean[0])
    assert [row.trained for row in clean] == [row.trained for row in attacked]


def test_a_run_is_reproducible() -> None:
    settings = FederatedSettings(3, 10, attackers=Attackers(MALICIOUS, "gradient-scaling"))
    rows = run(settings)
    assert rows == run(settings)
    assert rows != run(settings, seed=4)


def test_the_server_rate_scales_the_step() -> None:
    still = run(FederatedSettings(2, 10, server_rate=0.0))
    assert accuracy(still[0]) == accuracy(still[1])
    assert loss(run(FederatedSettings(2, 10))[1]) < loss(still[1])


@pytest.mark.parametrize(("rounds", "participants"), [(0, 10), (1, 0), (1, 61)])
def test_no_rounds_or_too_many_participants_are_refused(rounds: int, participants: int) -> None:
    said = f"rounds = {rounds}, participants = {participants}: .* at most 60"
    with pytest.raises(ConfigurationError, match=said):
        run(FederatedSettings(rounds, participants))


def test_options_impossible_for_the_participants_are_refused_early() -> None:
    krum = aggregator_named("Krum", {"f": 3})
    FederatedSettings(1, 9, aggregation=Aggregation(krum)).require(60)
    with pytest.raises(ConfigurationError, match="Krum with f = 3 of n = 8 updates"):
        run(FederatedSettings(1, 8, aggregation=Aggregation(krum)))


def test_a_mean_equals_the_ledgers_aggregation_bit_for_bit() -> None:
    attackers = Attackers(MALICIOUS, "back-gradient")
    rows = run(FederatedSettings(3, 10, server_rate=0.8, attackers=attackers))
    sampling, model = named_stream(3, "fedavg", "sample"), INITIAL
    with open_measure(with_training_path(CONFIGURATION, POPULATION), POPULATION, 10) as measure:
        for number, row in enumerate(rows, start=1):
            chosen = sorted(sampling.choice(60, 10, replace=False).tolist())
            seed = sha256(repr((3, "fedavg", number)).encode())
            jobs = [TrainingJob(c, training_seed(seed, ClientId(c))) for c in chosen]
            trained = measure.gauge.engine.train(model, jobs)
            updates = {ClientId(c): one.vector for c, one in zip(chosen, trained, strict=True)}
            sent = {c: -u if c in MALICIOUS else u for c, u in updates.items()}
            model = aggregate(model, sent, dict(enumerate(DATA.sample_counts)), 0.8)  # type: ignore[arg-type]
            quality = measure.gauge.quality(measure.gauge.begin(model))
            assert (row.trained, row.quality) == (tuple(chosen), quality)


def test_a_selecting_aggregator_reports_its_choice_and_withstands_attacks() -> None:
    tenfold = Attackers(MALICIOUS, "back-gradient", AttackParameters(10))
    plain = FederatedSettings(12, 30, attackers=tenfold)
    chosen = replace(plain, aggregation=Aggregation(aggregator_named("MultiKrum", {"f": 13})))
    trimming = Aggregation(
        aggregator_named("TrMean", {"f": 13}), (pre_aggregator_named("NNM", {"f": 13}),)
    )
    mixed = replace(plain, aggregation=trimming)
    ruined, selected, trimmed = run(plain), run(chosen), run(mixed)
    assert accuracy(ruined[-1]) < 0.3
    assert min(accuracy(selected[-1]), accuracy(trimmed[-1])) > 0.7
    for one, two, three in zip(ruined, selected, trimmed, strict=True):
        assert one.trained == two.trained == three.trained == one.aggregated == three.aggregated
        assert len(two.aggregated) == 30 - 13
        assert set(two.aggregated) < set(two.trained)
        assert MALICIOUS.intersection(two.aggregated) < MALICIOUS.intersection(two.trained)


def test_fltrust_trusts_by_root_data_without_attackers_in_it() -> None:
    settings = ("seed=3", "protocol.rounds=8", "malice.malicious_rate=0.3")
    method = Method(name="FLTrust", kind="federated", aggregator="FLTrust", options={"root": 50})
    runs = []
    for _ in range(2):
        asked = load("digits", settings=(*settings, "malice.attack=back-gradient"))
        task = MethodTask(asked, method, False, Stopwatch(), lambda: None)
        runs.append(kind_named("federated").play(task))
    assert runs[0].rounds == runs[1].rounds
    used = {client for row in runs[0].rounds[1:] for client in row.aggregated}
    sent = {client for row in runs[0].rounds[1:] for client in row.trained}
    assert MALICIOUS & sent
    assert not MALICIOUS & used
    assert len(used) > 20
    assert accuracy(runs[0].rounds[-1]) > 0.8
    # The server has samples from before the attackers changed theirs, and draws them by the seed.
    poisoned = populate(load("digits", settings=(*settings, "malice.attack=label-flip")))
    root, clean = (root_work(RULE, of, CONFIGURATION) for of in (poisoned, POPULATION))
    assert root is not None
    assert clean is not None
    update = train_alone(root, INITIAL, bytes(32))
    assert np.array_equal(update, train_alone(clean, INITIAL, bytes(32)))
    assert not np.array_equal(update, train_alone(root, INITIAL, bytes([1] * 32)))


RULE = FederatedSettings(1, 9, aggregation=Aggregation(aggregator_named("FLTrust", {"root": 50})))


def test_attackers_take_their_own_mean_for_the_update_of_the_server() -> None:
    root = root_work(RULE, POPULATION, CONFIGURATION)
    server = FederatedServer(replace(RULE, root=root), [1], INITIAL, np.ones(2))
    assert server.rule.last is None
    assert server.rule.is_of_angles
    known, model = np.array([[1, 3], [3, 5]], np.float32), np.zeros(2, np.float32)
    asked = AttackInput(
        *(known[0], known, np.random.default_rng(0), 1.0),
        model=model, history=AttackHistory(model - 1), server=server.rule,
    )  # fmt: skip
    frame = Frame.of(asked)
    assert (frame.norms[frame.last] * frame.vectors[frame.last]).tolist() == pytest.approx([2, 4])


def test_the_server_keeps_its_model_without_finite_updates() -> None:
    largest = np.finfo(np.float32).max
    start, zeros = np.full(2, largest, dtype=np.float32), np.zeros(2)
    one = FederatedServer(FederatedSettings(1, 1), [1, 1], start, zeros)
    rng = np.random.default_rng(0)
    for bad in (np.full(2, np.nan, dtype=np.float32), -start):
        assert one.take({ClientId(1): bad}, rng) == ()
        assert one.model is start
        assert one.last is zeros
    assert one.take({ClientId(1): start}, rng) == (1,)
    assert one.model.tolist() == [0, 0]
    assert one.last.tolist() == [largest, largest]


def test_a_round_takes_one_model_down_and_one_update_up() -> None:
    traffic = federated_traffic(map(ClientId, (0, 2)), dimension=100)
    assert traffic.received["model"] == {0: 400, 2: 400}
    assert traffic.sent["updates"] == {0: 408, 2: 408}
    assert traffic.busiest == 400 + 408


SEED = Digest(bytes(32))
START = np.array([1, 2], np.float32)
ZEROS = np.zeros(2, np.float32)
STEPS = {0: [1, 0], 1: [2, 1], 2: [3, 2]}


def played(engine: StepEngine, exchange: DecentralisedSettings, *samples: int) -> list[MethodRound]:
    gauge = gauge_of(engine, 3)
    return list(run_decentralised(samples, gauge, ZEROS, exchange, seed=2))


def sites(engine: StepEngine, attackers: Attackers | None = None) -> Sites:
    return Sites(engine, START, ids(0, 1, 2), attackers or Attackers())


def sites_with(*models: list[float]) -> Sites:
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
def test_draws_are_of_different_peers(participants: int, segments: int, data: Any) -> None:
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


def test_a_round_of_gossip_by_pencil() -> None:
    engine = StepEngine({0: [1, 0], 1: [2, 1], 2: [6, 5]})
    exchange = DecentralisedSettings(1, 3, "gossip", segments=2, replicas=2)
    (row,) = played(engine, exchange, 1, 1, 1)
    assert (row.quality.accuracy, row.quality.loss) == (3 / 8, 2)
    assert row.aggregated == row.trained == ids(0, 1, 2)


def test_a_round_of_brain_torrent_by_pencil() -> None:
    engine = StepEngine(STEPS)
    (row,) = played(engine, DecentralisedSettings(1, 3, "brain-torrent"), 1, 2, 1)
    # All merge to (1 + 2 * 2 + 3) / 4 = 2 and (0 + 2 * 1 + 2) / 4 = 1; then the initiator trains.
    assert engine.trained[0] == [0, 1, 2]
    ((initiator,),) = engine.trained[1:]
    ends = {0: (3, 1), 1: (4, 2), 2: (5, 3)}[initiator]
    assert (row.quality.accuracy, row.quality.loss) == (ends[0] / 8, ends[1])
    assert row.aggregated == tuple(client for client in ids(0, 1, 2) if client != initiator)


def test_an_attacker_gives_a_forged_model_and_merges_its_own() -> None:
    engine = StepEngine({0: [3, 3], 1: [6, 6], 2: [3, 3]})
    attackers = Attackers(frozenset(ids(1)), "back-gradient")
    exchange = DecentralisedSettings(1, 3, "gossip", 1, 2, attackers=attackers)
    (row,) = played(engine, exchange, 1, 1, 1)
    # The honest come to (3 - 6 + 3) / 3, the attacker to (3 + 6 + 3) / 3.
    assert row.quality.loss == (0 + 4 + 0) / 3


def test_an_attacker_s_model_comes_in_reversed() -> None:
    attackers = Attackers(frozenset(ids(0, 1, 2)), "back-gradient")
    exchange = DecentralisedSettings(1, 3, "brain-torrent", attackers=attackers)
    (row,) = played(StepEngine({i: [4, 4] for i in range(3)}), exchange, 1, 1, 1)
    # The initiator's own 4 and twice -4, then 4 once more.
    assert row.quality.loss == pytest.approx(-4 / 3 + 4)


def test_every_link_of_gossip_takes_r_models_in_s_r_pieces() -> None:
    exchange = DecentralisedSettings(1, 7, "gossip", segments=3, replicas=2)
    engine = StepEngine({client: [0.0] * 30 for client in range(7)})
    start = np.zeros(30, np.float32)
    (row,) = run_decentralised([1] * 7, gauge_of(engine, 7), start, exchange, seed=0)
    # 2 * 4 * 30 bytes of numbers, six sample counts, and six questions.
    assert row.traffic is not None
    assert row.traffic.received == {"segments": dict.fromkeys(range(7), 240 + 48 + 48)}
    assert row.traffic.sent == row.traffic.received, "dealt out evenly: S R = A - 1"
    assert row.traffic.requests == 7 * 6


def test_the_initiator_s_link_takes_all_models() -> None:
    engine = StepEngine(STEPS)
    (row,) = played(engine, DecentralisedSettings(1, 3, "brain-torrent"), 1, 1, 1)
    (initiator,) = engine.trained[1]
    assert row.traffic is not None
    assert row.traffic.phases == {"versions": 16, "models": 2 * (8 + 8)}
    assert row.traffic.received["models"] == {initiator: 32}
    assert row.traffic.sent["models"] == dict.fromkeys(row.aggregated, 16)
    assert row.traffic.requests == 2


@pytest.mark.parametrize("mixing", ["brain-torrent", "gossip"])
def test_only_rounds_that_are_due_are_measured(mixing: str) -> None:
    gauge = gauge_of(StepEngine(STEPS), 3, rounds=3, every=2)
    exchange = DecentralisedSettings(3, 2, mixing, segments=1, replicas=1)  # type: ignore[arg-type]
    rows = list(run_decentralised([1, 1, 1], gauge, ZEROS, exchange, seed=0))
    assert [row.quality == Quality() for row in rows] == [True, False, False]


@pytest.mark.parametrize("mixing", ["brain-torrent", "gossip"])
def test_a_run_learns_and_repeats_itself(mixing: str) -> None:
    configuration = load("smoke", settings=("seed=3", "protocol.rounds=8"))
    population = populate(configuration)
    exchange = DecentralisedSettings(8, 8, mixing)  # type: ignore[arg-type]
    with open_measure(with_training_path(configuration, population), population, rows=8) as measure:
        samples = population.data.sample_counts
        arguments = (samples, measure.gauge, population.initial, exchange)
        rows, again, other = (list(run_decentralised(*arguments, seed)) for seed in (3, 3, 4))
    assert rows == again
    assert rows != other
    assert loss(rows[-1]) < loss(rows[0])


@pytest.mark.parametrize(
    ("exchange", "sentence"),
    [
        (DecentralisedSettings(0, 2, "gossip"), "rounds = 0: must be at least 1"),
        (DecentralisedSettings(1, 1, "brain-torrent"), "participants = 1: must be at least 2"),
        (DecentralisedSettings(1, 4, "gossip"), "participants = 4: .* at most the 3 clients"),
        (DecentralisedSettings(1, 3, "gossip", 0, 1), "segments = 0: must be at least 1"),
        (DecentralisedSettings(1, 3, "gossip", 1, 0), "replicas = 0: .* at most the 2 other"),
        (DecentralisedSettings(1, 3, "gossip", 1, 3), "replicas = 3"),
    ],
)
def test_runs_that_cannot_be_are_refused(exchange: DecentralisedSettings, sentence: str) -> None:
    with pytest.raises(ConfigurationError, match=sentence):
        played(StepEngine({}), exchange, 1, 1, 1)
    DecentralisedSettings(1, 3, "gossip", segments=2, replicas=2).require(3, 2)


def test_everybody_moves_its_own_model_and_the_common_start_stays() -> None:
    engine = StepEngine({0: [1, 0], 1: [0, 1], 2: [2, 2]})
    them = sites(engine)
    them.train(ids(0, 1, 2), SEED)
    them.train(ids(1), SEED)
    assert {c: m.tolist() for c, m in them.models.items()} == {0: [2, 2], 1: [1, 4], 2: [3, 4]}
    assert START.tolist() == [1, 2]


def test_what_an_attacker_sends_is_of_its_newest_training() -> None:
    them = sites(StepEngine({1: [0, 1]}), Attackers(frozenset(ids(1)), "back-gradient"))
    for _ in range(2):
        them.train(ids(1), SEED)
    assert them.sent(ids(1)[0]).tolist() == [1, 2], "its second start was [1, 3]"


def test_a_model_that_diverged_stays_so_and_stops_nobody() -> None:
    them = sites(StepEngine({0: [np.inf, 0], 1: [-np.inf, 0], 2: [3e38, 0]}))
    for _ in range(2):
        them.train(ids(0, 1, 2), SEED)
    assert [model[0] for model in them.models.values()] == [np.inf, -np.inf, np.inf]
    assert np.isnan(weighted_mean(them.models, (1, 1, 1))[0])


def test_the_mean_is_weighted_by_samples() -> None:
    one, two = np.array([0, 4], np.float32), np.array([4, 0], np.float32)
    a, _, c = ids(0, 1, 2)
    assert weighted_mean({a: one, c: two}, (1, 9, 3)).tolist() == [3, 1]
    assert weighted_mean({c: two}, (1, 9, 3)).tolist() == [4, 0]


def test_the_mean_is_equal_in_every_part_of_a_vector() -> None:
    vectors = {c: np.full(70_000, c + 1, np.float32) for c in ids(0, 1)}
    assert set(weighted_mean(vectors, (1, 3)).tolist()) == {1.75}


def test_sites_are_drawn_once_from_the_seed_without_repetition() -> None:
    drawn = draw_sites(50, 20, seed=3)
    assert drawn == draw_sites(50, 20, seed=3) != draw_sites(50, 20, seed=4)
    assert list(drawn) == sorted(set(drawn))
    assert len(drawn) == 20
    assert draw_sites(5, 5, seed=3) == ids(0, 1, 2, 3, 4)
