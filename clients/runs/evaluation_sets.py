"""Sets of samples that a run's models are evaluated on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from clients.datasets.federated_data import FederatedData, Samples, frozen_samples
from clients.random_streams import named_stream
from ledger.protocol.errors import ConfigurationError

if TYPE_CHECKING:
    from clients.attacks.samples import DataAttack
    from clients.configuration.schema import EvaluationSection

TEST = "test"
TRAINING = "training"
BACKDOOR = "backdoor"


def client_set(client: int) -> str:
    """Return the name of the set of a client's own test samples."""
    return f"client {client}"


def measured_sets(
    data: FederatedData,
    section: EvaluationSection,
    seed: int,
    attack: DataAttack | None = None,
) -> dict[str, Samples]:
    """Return the sets of samples to evaluate on, by name; none of them is empty.

    Args:
        seed: of the run, from which the subset of the test set follows.
        attack: on training samples, if there is one.

    Returns:
        `TEST`, `TRAINING` if it is asked for, `BACKDOOR` if the attack has one, and a set of each
        client with test samples if these are asked for.
    """
    sets = {TEST: _subset(data.test, section.samples, seed)}
    if section.training_loss:
        x = np.concatenate([samples.x for samples in data.train])
        sets[TRAINING] = frozen_samples(x, np.concatenate([s.y for s in data.train]))
    if attack is not None and attack.backdoor is not None:
        sets[BACKDOOR] = attack.backdoor(data, sets[TEST])
    if section.per_client:
        if data.client_tests is None:
            raise ConfigurationError(
                f"evaluation.per_client is set, but the clients of {data.name!r} have no test "
                f"samples of their own: its partition is not natural"
            )
        tests = enumerate(data.client_tests)
        sets |= {client_set(client): test for client, test in tests if len(test.y)}
    return sets


def _subset(test: Samples, samples: int | None, seed: int) -> Samples:
    if samples is None:
        return test
    if samples > len(test.y):
        raise ConfigurationError(
            f"evaluation.samples = {samples}: the test set has {len(test.y)} samples"
        )
    chosen = named_stream(seed, "evaluation").choice(len(test.y), samples, replace=False)
    rows = np.sort(chosen)
    return frozen_samples(test.x[rows], test.y[rows])
