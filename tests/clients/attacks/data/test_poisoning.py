"""What attacks on training samples make of them, and of whom."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clients.attacks.data.backdoor import BACKDOOR, backdoor, triggered
from clients.attacks.data.data_attack import DataAttack, PoisonInput
from clients.attacks.data.label_flip import LABEL_FLIP, label_flip
from clients.attacks.data.poisoning import poisoned
from clients.attacks.data.registry import DATA_ATTACKS
from clients.attacks.updates.update_attack import AttackParameters
from clients.datasets.federated_data import DataForm, FederatedData, Samples
from ledger.protocol.errors import ConfigurationError
from ledger.protocol.types import ClientId
from tests.clients.attacks.data.made import PICTURES, WORDS, data_of, digits, tweets

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
def test_a_backdoor_marks_a_share_with_trigger_and_target(
    samples: int, factor: float, count: int
) -> None:
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
    with pytest.raises(ConfigurationError, match="all 2 test samples of 'made' are of its target"):
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
    with pytest.raises(ConfigurationError, match=r"factor = 1\.0: attack 'label-flip' takes none"):
        poisoned(divided(), crowd(0), LABEL_FLIP, AttackParameters(1.0), seed=0)
