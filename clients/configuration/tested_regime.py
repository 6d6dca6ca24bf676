"""Bounds of the settings in which the rules of `docs/presets.md` were attacked and held.

Outside of them the accuracy that those tables promise under an attack is not to be expected, as
`cmfl experiment run robustness-worst-settings` shows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from clients.datasets.partition.dirichlet import DirichletPartition
from clients.datasets.registry import data_set_named

if TYPE_CHECKING:
    from clients.configuration.schema import Configuration

MOST_MALICIOUS = 0.3
LEAST_LOCAL_STEPS = 2
LEAST_ALPHA = 0.3
LEAST_MEMBERS = 12
MODELS = frozenset({"softmax", "cnn"})
"""Models that rules were attacked with and held; with a perceptron they did not."""


def regime_warnings(configuration: Configuration) -> list[str]:
    """Return a sentence on each setting that lies outside the tested regime.

    Args:
        configuration: of a run; what is told is about attacks, whether it names one or not.
    """
    warnings = []
    malice, training = configuration.malice, configuration.training
    if malice.malicious_rate > MOST_MALICIOUS:
        warnings.append(
            f"malice.malicious_rate = {malice.malicious_rate:g}: beyond {MOST_MALICIOUS:g} "
            f"attackers often hold half of a committee, and every rule fails"
        )
    if training.local_steps is not None and training.local_steps < LEAST_LOCAL_STEPS:
        warnings.append(
            f"training.local_steps = {training.local_steps}: updates of a single step tell honest "
            f"clients and attackers apart too badly"
        )
    alpha = _dirichlet_alpha(configuration)
    if alpha is not None and alpha < LEAST_ALPHA:
        warnings.append(
            f"data.partition.alpha = {alpha:g}: below {LEAST_ALPHA:g} honest updates differ too "
            f"much from one another"
        )
    members = configuration.parameters(dimension=1).members
    if members < LEAST_MEMBERS:
        warnings.append(
            f"a committee of {members}: the rules were tested with {LEAST_MEMBERS} members and "
            f"more; attackers hold half of a smaller one more often"
        )
    if configuration.model.name not in MODELS:
        held = " and ".join(sorted(MODELS))
        warnings.append(
            f"model.name = {configuration.model.name}: the rules held with {held}; with "
            f"a perceptron some runs under searched attacks were lost"
        )
    return warnings


def _dirichlet_alpha(configuration: Configuration) -> float | None:
    """Return the concentration of a Dirichlet division into classes; None for another."""
    partition = configuration.data.partition
    is_default = (
        "name" not in partition and data_set_named(configuration.data.name).owned_by is None
    )
    if partition.get("name") != "dirichlet" and not is_default:
        return None
    return float(partition.get("alpha", DirichletPartition.model_fields["alpha"].default))
