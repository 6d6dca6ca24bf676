"""What attacks on samples make of them, what a trigger does to rows, and what runs measure."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from clients.adversaries.faults import FAVOURS
from clients.attacks.samples import (
    BACKDOOR,
    DATA_ATTACKS,
    LABEL_FLIP,
    DataAttack,
    PoisonInput,
    backdoor,
    label_flip,
    poisoned,
    trigger_for,
    triggered,
)
from clients.attacks.updates import AttackParameters
from clients.configuration.loading import load
from clients.datasets.federated_data import DataForm, FederatedData, Samples, frozen_samples
from clients.runs.metrics import BACKDOOR as BACKDOOR_SET
from clients.runs.metrics import TEST, TRAINING, measured_sets
from clients.runs.open_run import open_memory_run
from clients.runs.population import populate, run_document
from clients.training.jobs import evaluate
from ledger.protocol.errors import ConfigurationError
from ledger.protocol.types import ClientId

EMBEDDING = np.eye(6, 2, dtype=np.float32)  # vectors of five words and the filling, token 0


def digits(*labels: int, ink: float = 1.0, paper: float = 0.0) -> Samples:
    x = np.full((len(labels), 1, 8, 8), paper, dtype=np.float32)
    x[:, :, 3:5, 3:5] = ink
    return frozen_samples(x, np.array(labels))


def images(*labels: int, paper: int = 0) -> Samples:
    return frozen_samples(np.full((len(labels), 28, 28), paper, np.uint8), np.array(labels))


def tweets(*labels: int) -> Samples:
    rows = np.tile(np.array([1, 2, 3, 4, 0], dtype=np.int32), (len(labels), 1))
    return frozen_samples(rows, np.array(labels))


def windows(*labels: int) -> Samples:
    return frozen_samples(np.zeros((len(labels), 5), dtype=np.uint8), np.array(labels))


PICTURES = DataForm((1, 8, 8), 10)
WORDS = DataForm((5,), 2, "int64", 6, EMBEDDING)
CHARACTERS = DataForm((5,), 80, "int64", 80)


def data_of(
    form: DataForm, *train: Samples, test: Samples, client_tests: tuple[Samples, ...] | None = None
) -> FederatedData:
    return FederatedData("made", form, train, test, client_tests)


NO_PARAMETERS = AttackParameters()


def attacker(own: Samples, form: DataForm = PICTURES, factor: float = 0.5) -> PoisonInput:
    return PoisonInput(own, form, own.x, np.random.default_rng(0), factor)


def divided() -> FederatedData:
    own = digits(0, 1, 2, 3, 4, 5, 6, 7, 8, 9)
    tests = tuple(digits(client) for client in range(3))
    return data_of(PICTURES, own, own, own, test=digits(0, 0, 7, 9), client_tests=tests)


def crowd(*clients: int) -> frozenset[ClientId]:
    return frozenset(map(ClientId, clients))


def test_a_flipped_label_is_mirrored_in_the_label_range() -> None:
    own = digits(0, 1, 4, 5, 9)
    assert label_flip(attacker(own)).y.tolist() == [9, 8, 5, 4, 0]
    assert np.array_equal(label_flip(attacker(own)).x, own.x)
    assert label_flip(attacker(tweets(0, 1, 1), WORDS)).y.tolist() == [1, 0, 0]
    odd = DataForm((1, 8, 8), 3)
    assert label_flip(attacker(digits(0, 1, 2), odd)).y.tolist() == [2, 1, 0]


@pytest.mark.parametrize(
    ("samples", "factor", "count"), [(10, 0.5, 5), (5, 0.5, 3), (4, 0.01, 1), (4, 1.0, 4)]
)
def test_a_backdoor_marks_a_share_of_samples(samples: int, factor: float, count: int) -> None:
    own = digits(*[7] * samples)
    x, y = backdoor(attacker(own, factor=factor))
    marked = (x[:, 0, 6:, 6:] == 1).all(axis=(1, 2))
    assert marked.sum() == count
    assert y[marked].tolist() == [0] * count
    assert y[~marked].tolist() == [7] * (samples - count)
    assert np.array_equal(x[~marked], own.x[~marked])


def test_success_is_measured_on_marked_samples_of_the_other_classes() -> None:
    data = divided()
    x, y = triggered(data, data.test)
    assert y.tolist() == [0, 0], "of 0, 0, 7 and 9 two are not of the target class"
    assert (x[:, 0, 6:, 6:] == 1).all()
    assert not data.test.x[:, 0, 6:, 6:].any()
    with pytest.raises(ConfigurationError, match="all test samples of 'made' are of class"):
        triggered(data, digits(0, 0))


@pytest.mark.parametrize("attack", DATA_ATTACKS.values(), ids=lambda one: one.name)
def test_only_malicious_clients_train_on_other_equally_many_samples(attack: DataAttack) -> None:
    clean = divided()
    data = poisoned(clean, crowd(2, 0), attack, NO_PARAMETERS, seed=1)
    assert data.train[1] is clean.train[1]
    assert (data.test, data.client_tests) == (clean.test, clean.client_tests)
    assert data.sample_counts == clean.sample_counts
    for client in (0, 2):
        x, y = data.train[client]
        assert not np.array_equal(y, clean.train[client].y)
        before = clean.train[client]
        assert (x.shape, x.dtype) == (before.x.shape, before.x.dtype)
        assert (y.shape, y.dtype) == (before.y.shape, before.y.dtype)
        assert not x.flags.writeable
        assert not y.flags.writeable
    assert clean.train[0].y.tolist() == list(range(10))


def test_each_attacker_has_its_own_seeded_stream() -> None:
    def chosen(seed: int, client: int) -> tuple[int, ...]:
        data = poisoned(divided(), crowd(0, 2), BACKDOOR, NO_PARAMETERS, seed)
        return tuple(data.train[client].y)

    assert chosen(1, 0) == chosen(1, 0)
    assert chosen(1, 0) != chosen(1, 2)
    assert chosen(1, 0) != chosen(2, 0)


@given(st.integers(1, 40), st.floats(0.01, 1), st.integers(0, 2**32 - 1))
def test_a_backdoor_never_adds_or_loses_a_sample(count: int, share: float, seed: int) -> None:
    own = digits(*[client % 10 for client in range(count)])
    data = data_of(PICTURES, own, test=own)
    (found,) = poisoned(data, crowd(0), BACKDOOR, AttackParameters(share), seed).train
    changed = (found.x != own.x).any(axis=(1, 2, 3))
    assert len(found.y) == count
    assert changed.sum() == max(1, int(np.floor(share * count + 0.5)))
    assert (found.y[changed] == 0).all()
    assert np.array_equal(found.y[~changed], own.y[~changed])


def test_an_excessive_factor_is_refused() -> None:
    for factor in (0.0, 1.5, float("nan")):
        with pytest.raises(ConfigurationError, match=r"attack 'backdoor' takes 0\.01 to 1"):
            BACKDOOR.factor_for(AttackParameters(factor))
    with pytest.raises(ConfigurationError, match=r"factor = 1\.0: attack 'label-flip' takes no"):
        poisoned(divided(), crowd(0), LABEL_FLIP, AttackParameters(1.0), seed=0)


def test_a_small_picture_gets_a_two_by_two_trigger() -> None:
    seen = digits(3)
    (marked,) = trigger_for(PICTURES, seen.x)(seen.x)
    assert marked.dtype == np.float32
    assert marked[0, 6:, 6:].tolist() == [[1, 1], [1, 1]]
    assert np.array_equal(marked[0, :6], seen.x[0, 0, :6])
    assert np.array_equal(marked[0, :, :6], seen.x[0, 0, :, :6])
    assert not seen.x[0, 0, 6:, 6:].any(), "the rows that were given are left alone"


def test_a_larger_picture_gets_a_trigger_of_an_eighth() -> None:
    seen = images(3, 4)
    marked = trigger_for(DataForm((1, 28, 28), 62), seen.x)(seen.x)
    assert marked.dtype == np.uint8
    assert (marked[:, 25:, 25:] == 255).all()
    assert np.count_nonzero(marked) == 2 * 9


def test_on_bright_paper_the_square_is_of_ink() -> None:
    seen = images(3, paper=255)
    marked = trigger_for(DataForm((1, 28, 28), 62), seen.x)(seen.x)
    assert (marked[0, 25:, 25:] == 0).all()
    assert np.count_nonzero(marked == 0) == 9
    other = digits(3, ink=0.0, paper=1.0)
    assert not trigger_for(PICTURES, other.x)(other.x)[0, 0, 6:, 6:].any()


def test_a_tweet_trigger_is_the_last_vocabulary_word_in_front() -> None:
    rows = tweets(0).x
    assert trigger_for(WORDS, rows)(rows).tolist() == [[5, 1, 2, 3, 4]]
    assert rows.tolist() == [[1, 2, 3, 4, 0]]


def test_a_window_ends_with_the_last_character_three_times() -> None:
    rows = windows(0).x
    assert trigger_for(CHARACTERS, rows)(rows).tolist() == [[0, 0, 79, 79, 79]]


def test_other_data_and_a_one_word_vocabulary_are_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"pictures or tokens, not \(4,\)"):
        trigger_for(DataForm((4,), 2), np.zeros((3, 4), np.float32))
    empty = DataForm((5,), 2, "int64", 1, EMBEDDING[:1])
    with pytest.raises(ConfigurationError, match="the vocabulary has 1"):
        trigger_for(empty, tweets(0).x)


@given(
    arrays.arrays(np.uint8, st.tuples(st.integers(1, 4), st.integers(8, 33), st.integers(8, 33)))
)
def test_a_repeated_trigger_is_applied_once_and_changes_nothing_else(rows: np.ndarray) -> None:
    trigger = trigger_for(DataForm((1, *rows.shape[1:]), 10), rows)
    marked = trigger(rows)
    assert np.array_equal(trigger(marked), marked)
    side = max(2, min(rows.shape[1:]) // 8)
    changed = marked != rows
    assert not changed[:, :-side].any()
    assert not changed[:, :, :-side].any()


ATTACKED = ("machine.ledger=memory", "malice.malicious_rate=0.3", "protocol.rounds=3")


def test_rows_report_backdoor_success_and_null_if_unmeasured(tmp_path: Path) -> None:
    settings = (*ATTACKED, "malice.attack=backdoor", "evaluation.every=2")
    with open_memory_run(tmp_path, "run", load("smoke", settings=settings)) as run:
        rows = run.go_on(lambda _: None)
        model, clean = run.population.model, run.population.clean
        marked = measured_sets(clean, run.configuration.evaluation, 0, DATA_ATTACKS["backdoor"])
        found = evaluate(model, run.simulation.model, marked[BACKDOOR_SET], clean.collate)
        written = [json.loads(line) for line in run.folder.metrics_lines()]
    assert [row.backdoor_success is None for row in rows] == [True, False, False]
    assert found.correct is not None
    assert rows[-1].backdoor_success == found.correct / found.samples
    assert [row["backdoor_success"] for row in written] == [row.backdoor_success for row in rows]
    assert found.samples == np.count_nonzero(clean.test.y)


def test_malicious_samples_are_poisoned_but_measured_clean() -> None:
    settings = (*ATTACKED, "malice.attack=label-flip", "evaluation.training_loss=true")
    configuration = load("smoke", settings=settings)
    population, honest = populate(configuration), populate(load("smoke"))
    assert len(population.malicious) == 4
    for client in range(12):
        own, before = population.data.train[client], honest.data.train[client]
        flipped = ClientId(client) in population.malicious
        assert np.array_equal(own.y, 9 - before.y if flipped else before.y)
    assert population.attackers.attack is None, "what they send is what they have trained"
    measured = measured_sets(population.clean, configuration.evaluation, 0, population.data_attack)
    assert list(measured) == [TEST, TRAINING]
    labels = np.concatenate([samples.y for samples in honest.data.train])
    assert np.array_equal(measured[TRAINING].y, labels)


def test_the_record_has_the_clean_digest_and_the_attacks_share() -> None:
    settings = (*ATTACKED, "malice.attack=backdoor", "malice.factor=0.25")
    configuration = load("smoke", settings=settings)
    document = run_document(configuration, populate(configuration))
    honest = load("smoke", settings=ATTACKED[2:])
    clean = run_document(honest, populate(honest))
    assert document.experiment["data"] == clean.experiment["data"]
    assert document.registry == clean.registry, "nobody gains weight by poisoning"
    assert document.experiment["malice"] == {
        "attack": "backdoor",
        "malicious_rate": 0.3,
        "factor": 0.25,
        "members": {},
        "trainers": {},
    }


def test_members_favour_the_malicious_or_else_one_another() -> None:
    faults = ("malice.members.colluding=2", "malice.members.favouring=1", "malice.members.silent=1")
    attacked = populate(load("smoke", settings=(*ATTACKED, "malice.attack=alie", *faults)))
    assert attacked.favoured == attacked.malicious
    assert not attacked.favoured.intersection(attacked.member_faults)
    alone = populate(load("smoke", settings=faults))
    kinds = {client: fault for client, fault in alone.member_faults.items() if fault in FAVOURS}
    assert alone.favoured == set(kinds)
    assert len(kinds) == 3
    assert populate(load("smoke")).favoured == frozenset()
