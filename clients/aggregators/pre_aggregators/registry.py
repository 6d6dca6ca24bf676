"""The pre-aggregators by name; a new one needs its file and one line here."""

from __future__ import annotations

from collections.abc import Mapping

from clients.aggregators.pre_aggregators.bucketing import Bucketing
from clients.aggregators.pre_aggregators.nnm import NNM
from clients.aggregators.pre_aggregators.pre_aggregator import PreAggregator
from clients.aggregators.stage import stage_named

PRE_AGGREGATORS: dict[str, type[PreAggregator]] = {rule.name: rule for rule in (NNM, Bucketing)}


def pre_aggregator_named(name: str, options: Mapping[str, object]) -> PreAggregator:
    """Return a pre-aggregator."""
    return stage_named("pre-aggregator", PRE_AGGREGATORS, name, options)
