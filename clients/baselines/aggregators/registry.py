"""The aggregators by name: a new one takes its file and one line here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from clients.baselines.aggregators.centered_clipping import CenteredClipping
from clients.baselines.aggregators.fed_avg import FedAvg
from clients.baselines.aggregators.geometric_median import GeometricMedian
from clients.baselines.aggregators.krum import Krum
from clients.baselines.aggregators.median import Median
from clients.baselines.aggregators.multi_krum import MultiKrum
from clients.baselines.aggregators.trimmed_mean import TrMean
from clients.baselines.stage import stage_named

if TYPE_CHECKING:
    from collections.abc import Mapping

    from clients.baselines.aggregators.aggregator import Aggregator

AGGREGATORS: dict[str, type[Aggregator]] = {
    one.name: one
    for one in (FedAvg, Median, TrMean, Krum, MultiKrum, GeometricMedian, CenteredClipping)
}


def aggregator_named(name: str, options: Mapping[str, object]) -> Aggregator:
    """Return an aggregator.

    Args:
        name: a key of `AGGREGATORS`.
        options: its own, as in TOML.

    Raises:
        ConfigurationError: unknown name, or an option that is unknown, missing or out of range.
    """
    return stage_named("aggregator", AGGREGATORS, name, options)
