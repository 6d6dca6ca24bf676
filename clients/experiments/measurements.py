"""Measurements of single kinds of cells: traffic, and Theorem 1.

Made by `clients.experiments.baselines.traffic.recorded_traffic` and
`benchmarks.paper.theorem.measurement.theorem_row`. Rows are read from files that may have been
edited, so each part is validated.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, ConfigDict, TypeAdapter, with_config
from typing_extensions import TypedDict  # pydantic asks for it before Python 3.12

_STRICT = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)


@with_config(_STRICT)
class Traffic(TypedDict, total=False):
    """Bytes of a run; see `recorded_traffic`, which says what each is."""

    model: int
    busiest: int
    phases: dict[str, int]
    sent: int
    received: int
    requests: int
    by_round: list[int]
    clients: list[int]
    client_sent: list[int]
    client_received: list[int]


@with_config(_STRICT)
class StepSizes(TypedDict):
    """Error and bound of Theorem 1 under one rule for the step sizes."""

    error: list[float | None]
    bound: list[float | None] | None
    constants: dict[str, float | None]
    terms: dict[str, float] | None


@with_config(_STRICT)
class Theorem(TypedDict):
    """Theorem 1 on the path of a run; see `theorem_row`."""

    mu: float
    smoothness: float
    gamma: float
    optimal_value: float
    optimal_accuracy: float
    heterogeneity: float
    local_steps: int
    best_committee: list[int]
    step_sizes: dict[str, StepSizes]


@with_config(_STRICT)
class Extra(TypedDict, total=False):
    """Sizes of a cell's rounds, and what its kind alone has."""

    committee: int
    trainers: int
    participants: int
    beside_accuracy: list[float | None]
    beside_loss: list[float | None]
    theorem: Theorem


_TRAFFIC, _EXTRA = TypeAdapter(Traffic), TypeAdapter(Extra)


def _traffic(values: dict[str, Any]) -> dict[str, Any]:
    _TRAFFIC.validate_python(values)
    return values


def _extra(values: dict[str, Any]) -> dict[str, Any]:
    _EXTRA.validate_python(values)
    return values


TrafficValues = Annotated[dict[str, Any], AfterValidator(_traffic)]
ExtraValues = Annotated[dict[str, Any], AfterValidator(_extra)]
