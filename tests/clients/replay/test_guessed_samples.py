"""What strangers can find out about an owner's samples by trying all that there could be.

The owner has two samples of so few values that everybody can try all 36 pairs. Nothing of them can
be found out from the registered digest without its salt; with it everything, and so by whoever
repeats the training with each guess and compares the commitment.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from clients.configuration.loading import owner_samples
from clients.datasets.federated_data import (
    FederatedData,
    Samples,
    frozen_samples,
    named_stream,
    parse_settings,
)
from clients.datasets.own import OwnOptions
from clients.datasets.own_samples import samples_digest_of
from clients.models.registry import model_named
from clients.registration import RegistryEntry, proposal_digest, signed_entry
from clients.training.engine_factory import open_engine
from clients.training.port import TrainedUpdate, TrainingJob
from ledger.protocol.encoding import commitment_of, keccak256, sha256
from ledger.protocol.inputs import simulated_salt, training_seed
from ledger.protocol.signing import data_salt
from ledger.protocol.types import ClientId, Digest
from tests.clients.onboarding.owners import OWNERS, RUN, agreed, owner

ROUND_SEED = Digest(sha256(b"a round"))
CLIENT = ClientId(3)
TRUE = ((1, 2), (0, 0))  # the owner's samples: all numbers of the input, and the label, of each
OTHER = ((1, 2), (0, 1))

Guess = tuple[tuple[int, int], tuple[int, int]]


def guesses() -> Iterator[Guess]:
    """Yield every pair of samples whose inputs are all 0 or all 1, with one of three labels."""
    sample = tuple(product(range(2), range(3)))
    yield from product(sample, repeat=2)


def samples_of(guess: Guess) -> Samples:
    x = np.array([np.full((1, 2, 2), value) for value, _ in guess], dtype=np.float32)
    return frozen_samples(x, np.array([label for _, label in guess]))


def fitting(digest: Digest, salts: Iterable[bytes]) -> set[Guess]:
    tried = tuple(salts)
    return {
        guess
        for guess in guesses()
        if digest in {samples_digest_of(samples_of(guess), salt) for salt in tried}
    }


def file_of(guess: Guess, path: Path) -> Path:
    samples = samples_of(guess)
    np.savez(path, allow_pickle=True, x=samples.x, y=samples.y)
    return path


@pytest.fixture
def registered(tmp_path: Path) -> RegistryEntry:
    file = file_of(TRUE, tmp_path / "mine.npz")
    count, digest = owner_samples(agreed(), None, file, owner(CLIENT))
    assert count == len(TRUE)
    return signed_entry(owner(CLIENT), RUN, proposal_digest(agreed()), count, digest)


def test_no_guess_fits_the_digest_without_the_salt(registered: RegistryEntry) -> None:
    digest, signature = registered.registration.data, registered.signature
    others = (data_salt(owner(number)) for number in range(20) if number != CLIENT)
    public = (
        *(b"", bytes(32), ROUND_SEED, owner(CLIENT).address, digest),
        *(simulated_salt(seed, ClientId(client)) for seed in range(4) for client in range(OWNERS)),
        # The salt is made of a signature, of another statement than those that others see.
        *(signature[:32], keccak256(signature), sha256(signature)),
    )
    assert fitting(digest, (*others, *public)) == set()


def test_the_salt_tells_which_guess_is_true(registered: RegistryEntry) -> None:
    assert fitting(registered.registration.data, [data_salt(owner(CLIENT))]) == {TRUE}


def test_two_runs_of_one_key_show_whether_its_samples_changed(tmp_path: Path) -> None:
    same, changed = file_of(TRUE, tmp_path / "same.npz"), file_of(OTHER, tmp_path / "changed.npz")
    another_run = agreed("training.learning_rate=0.5")
    _, digest = owner_samples(agreed(), None, same, owner(CLIENT))
    assert owner_samples(another_run, None, same, owner(CLIENT))[1] == digest
    assert owner_samples(another_run, None, changed, owner(CLIENT))[1] != digest
    assert owner_samples(another_run, None, same, owner(7))[1] != digest, "another key, unlinked"


def trained(datasets: tuple[Samples, ...], *settings: str) -> list[TrainedUpdate]:
    options = parse_settings(OwnOptions, agreed().data.options, "data.options")
    data = FederatedData("own", options.form(), datasets, datasets[0], collate=options.collate())
    model = model_named(agreed().model.name, data.form)
    jobs = [TrainingJob(index, training_seed(ROUND_SEED, CLIENT)) for index in range(len(datasets))]
    with open_engine(
        model, data, agreed(*settings).training,
        device="cpu", workers=1, path="plain", sets={}, rows=1,
    ) as engine:  # fmt: skip
        updates = engine.train(model.initial(named_stream(0, "model")), jobs)
        return [update.copy() for update in updates]


def commitments(datasets: tuple[Samples, ...]) -> tuple[Digest, ...]:
    return tuple(commitment_of(CLIENT, update.payload.digest) for update in trained(datasets))


def test_one_sample_and_one_step_reveal_the_sample() -> None:
    """The step of softmax(W x + b) is (p - y) xᵀ for W and (p - y) for b."""
    x = np.random.default_rng(0).random((1, 1, 2, 2), dtype=np.float32)
    (update,) = trained((frozen_samples(x, np.array([1])),), "training.local_steps=1")
    weights, biases = update.vector[:12].reshape(3, 4), update.vector[12:]
    assert weights / biases[:, None] == pytest.approx(np.tile(x.reshape(4), (3, 1)), rel=1e-3)


def test_whoever_repeats_the_training_can_test_guesses_without_the_salt() -> None:
    (on_chain,) = commitments((samples_of(TRUE),))
    tried = tuple(guesses())
    repeated = commitments(tuple(map(samples_of, tried)))
    found = {guess for guess, mine in zip(tried, repeated, strict=True) if mine == on_chain}
    # The order within a batch of two changes no sum.
    assert TRUE in found
    assert {tuple(sorted(guess)) for guess in found} == {tuple(sorted(TRUE))}
