"""The aggregators by name; a built-in one needs its file and one line here."""

from __future__ import annotations

from collections.abc import Mapping

from clients.aggregators.aggregator import Aggregator
from clients.aggregators.centered_clipping import CenteredClipping
from clients.aggregators.fed_avg import FedAvg
from clients.aggregators.geometric_median import GeometricMedian
from clients.aggregators.krum import Krum
from clients.aggregators.median import Median
from clients.aggregators.multi_krum import MultiKrum
from clients.aggregators.own_aggregator import own_aggregator
from clients.aggregators.stage import stage_named
from clients.aggregators.trimmed_mean import TrMean
from ledger.io.user_code import named_code

GROUP = "cmfl.aggregators"
"""Entry points of packages that offer aggregators."""

AGGREGATORS: dict[str, type[Aggregator]] = {
    rule.name: rule
    for rule in (FedAvg, Median, TrMean, Krum, MultiKrum, GeometricMedian, CenteredClipping)
}


def aggregator_named(name: str, options: Mapping[str, object]) -> Aggregator:
    """Return an aggregator, or that of a user's function."""
    if name not in AGGREGATORS:
        code = named_code("aggregator", GROUP, name)
        if code is not None:
            return own_aggregator(code, options)
    return stage_named("aggregator", AGGREGATORS, name, options)
