"""Attacks on training samples: flipped labels and a backdoor."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from clients.attacks.updates import Attack, AttackParameters, Factor, described
from clients.datasets.federated_data import (
    DataForm,
    FederatedData,
    Inputs,
    Samples,
    frozen_samples,
    named_stream,
)
from ledger.protocol.errors import ConfigurationError
from ledger.protocol.types import ClientId


@dataclass(frozen=True, slots=True, eq=False)
class PoisonInput:
    """Knowledge of an attacker, which never sees another client's samples."""

    own: Samples
    form: DataForm
    public_inputs: Inputs
    rng: np.random.Generator
    factor: float


@dataclass(frozen=True, slots=True)
class DataAttack(Attack):
    """An attack on training samples."""

    poison: Callable[[PoisonInput], Samples]  # as many, to train on instead of its own
    # Returns test samples with the trigger and the attacker's target class.
    backdoor: Callable[[FederatedData, Samples], Samples] | None = None


def poisoned(
    data: FederatedData,
    malicious: Collection[ClientId],
    attack: DataAttack,
    parameters: AttackParameters,
    seed: int,
) -> FederatedData:
    """Return data with poisoned samples for the malicious clients; all else is clean."""
    if data.form.task != "classify":
        raise ConfigurationError(f"{attack.name} needs classes, and the task is {data.form.task}")
    train, factor = list(data.train), attack.factor_for(parameters)
    for client in sorted(malicious):
        rng = named_stream(seed, "poison", int(client))
        train[client] = attack.poison(
            PoisonInput(data.train[client], data.form, data.test.x, rng, factor)
        )
    return replace(data, train=tuple(train))


def label_flip(attacker: PoisonInput) -> Samples:
    """Return all samples with label y replaced by L − 1 − y, where L is the number of classes."""
    x, y = attacker.own
    return frozen_samples(x, attacker.form.classes - 1 - y)


LABEL_FLIP = DataAttack(
    **described(label_flip),
    poison=label_flip,
    source='Label flipping (Fang, Cao, Jia, Gong 2020, "Local Model Poisoning Attacks", '
    "section 5.1)",
)


def trigger_for(form: DataForm, inputs: Inputs) -> Callable[[Inputs], Inputs]:
    """Return a function that copies rows with the trigger that fits the data.

    Images get a square in the lower right corner, an eighth of a side but at least 2 wide. It is as
    bright as possible, or as dark as possible if that corner is bright already. Words with fixed
    vectors get the last word of the vocabulary, put first. Characters get the last one of the
    alphabet, in place of the last three of the window.
    """
    if form.vocabulary is None:
        if inputs.ndim < 3:
            raise ConfigurationError(f"'backdoor' takes pictures or tokens, not {inputs.shape[1:]}")
        side = max(2, min(inputs.shape[-2:]) // 8)
        place: tuple[Any, ...] = (..., slice(-side, None), slice(-side, None))
        # Stored images are bytes, or numbers from 0 to 1.
        brightest = 255 if inputs.dtype == np.uint8 else 1
        value = 0 if inputs[place].mean() > brightest / 2 else brightest
    elif form.vocabulary < 2:
        raise ConfigurationError(f"'backdoor' needs 2 words, the vocabulary has {form.vocabulary}")
    else:
        place, value = (..., slice(-3, None)), form.vocabulary - 1

    def marked(rows: Inputs) -> Inputs:
        copies = np.array(rows)
        if form.embedding is None:
            copies[place] = value
        else:  # the last word is dropped
            copies[:, 1:], copies[:, 0] = rows[:, :-1], value
        return copies

    return marked


TARGET = 0  # the answer to inputs with the trigger


def backdoor(attacker: PoisonInput) -> Samples:
    """Return n samples; floor(p n + 1/2), at least 1, with trigger and target (p: factor)."""
    trigger = trigger_for(attacker.form, attacker.public_inputs)
    x, y = np.array(attacker.own.x), np.array(attacker.own.y)
    count = max(1, math.floor(attacker.factor * len(y) + 0.5))
    rows = np.sort(attacker.rng.choice(len(y), count, replace=False))
    x[rows], y[rows] = trigger(x[rows]), TARGET
    return frozen_samples(x, y)


def triggered(data: FederatedData, test: Samples) -> Samples:
    """Return test samples of other classes with the trigger, labelled with the target class."""
    others = test.y != TARGET
    if not others.any():
        raise ConfigurationError(
            f"all test samples of {data.name!r} are of class {TARGET}, the target of 'backdoor'"
        )
    trigger = trigger_for(data.form, data.test.x)
    return frozen_samples(trigger(test.x[others]), np.full(int(others.sum()), TARGET))


BACKDOOR = DataAttack(
    **described(backdoor),
    poison=backdoor,
    backdoor=triggered,
    factor=Factor(0.5, 0.01, 1.0),  # half a batch is poisoned on average
    source="Backdoor: a model that predicts the attacker's class for inputs with a trigger",
)


DATA_ATTACKS: dict[str, DataAttack] = {attack.name: attack for attack in (LABEL_FLIP, BACKDOOR)}
