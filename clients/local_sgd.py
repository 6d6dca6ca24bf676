"""Local training: line 3 of Algorithm 3.

Every active client takes tau steps of SGD from the global model w_t on its own data, and sends the
update Δ = w_t − w_end (a pseudo-gradient). Its batch order follows from a seed that the client can
recompute, so the owner of an update can repeat it. The trainers of `clients/training` take the
steps.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from clients.random_streams import permutations
from ledger.protocol.errors import ConfigurationError

LARGEST = float(np.finfo(np.float32).max)
"""Largest rate or weight: steps are computed in float32."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalTraining:
    """Settings of the local training: plain SGD, tau steps or whole epochs.

    With a proximal term it is FedProx (Li, Sahu, Zaheer, Sanjabi, Talwalkar, Smith 2020, Algorithm
    2): every step descends F_k(w) + mu/2 |w - w_t|^2, and so stays near the global model. Error
    messages name the settings of the configuration's section `training`.

    Attributes:
        learning_rate: step size, above 0, at most what a float32 holds.
        batch_size: samples per step; a client with fewer uses all of them.
        local_steps: tau; None if epochs are counted.
        local_epochs: passes over the client's data; None if steps are counted.
        proximal: mu, above 0, at most what a float32 holds; None for no such term.
        calibrated: whether the loss adds `tasks.class_shift` to the logits.
    """

    learning_rate: float
    batch_size: int
    local_steps: int | None = None
    local_epochs: int | None = None
    proximal: float | None = None
    calibrated: bool = False

    def __post_init__(self) -> None:
        """Validate the settings."""
        if not (math.isfinite(self.learning_rate) and self.learning_rate > 0):
            raise ConfigurationError(
                f"training.learning_rate = {self.learning_rate}: must be above 0"
            )
        if self.batch_size < 1:
            raise ConfigurationError(f"training.batch_size = {self.batch_size}: must be at least 1")
        lengths = [n for n in (self.local_steps, self.local_epochs) if n is not None]
        if len(lengths) != 1 or lengths[0] < 1:
            raise ConfigurationError(
                f"training.local_steps = {self.local_steps}, training.local_epochs = "
                f"{self.local_epochs}: exactly one of them must be set, and at least 1"
            )
        if self.proximal is not None and not (math.isfinite(self.proximal) and self.proximal > 0):
            raise ConfigurationError(
                f"training.proximal = {self.proximal}: must be above 0; without the term, leave "
                "it out"
            )
        for name in ("learning_rate", "proximal"):
            value = getattr(self, name)
            if value is not None and value > LARGEST:
                raise ConfigurationError(
                    f"training.{name} = {value}: must be at most {LARGEST:g} (float32)"
                )


def batches(seed: bytes, samples: int, settings: LocalTraining) -> Iterator[NDArray[np.int64]]:
    """Yield the sample indices of each SGD step.

    With a number of steps, batches are consecutive slices of an endless sequence of permutations,
    all of the same size. With epochs, each permutation is cut separately, with a shorter last
    batch.

    Args:
        samples: number of the client's samples, at least 1.

    Yields:
        Indices of one batch, shape (min(batch_size, samples),) or a shorter last one.
    """
    orders = permutations(seed, samples)
    size = min(settings.batch_size, samples)
    if settings.local_epochs is not None:
        for _ in range(settings.local_epochs):
            order = next(orders)
            yield from (order[start : start + size] for start in range(0, samples, size))
        return
    remaining = next(orders)
    for _ in range(settings.local_steps or 0):
        if len(remaining) < size:
            remaining = np.concatenate([remaining, next(orders)])
        yield remaining[:size]
        remaining = remaining[size:]


def step_count(samples: int, settings: LocalTraining) -> int:
    """Return the number of local steps of a client."""
    if settings.local_epochs is not None:
        return settings.local_epochs * math.ceil(samples / settings.batch_size)
    return settings.local_steps or 0


def samples_gone_through(samples: int, settings: LocalTraining) -> int:
    """Return the number of samples that a training processes, as a measure of its cost."""
    if settings.local_epochs is not None:
        return settings.local_epochs * samples
    return (settings.local_steps or 0) * min(settings.batch_size, samples)
