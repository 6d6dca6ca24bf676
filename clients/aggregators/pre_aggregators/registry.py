"""The pre-aggregators by name: a new one takes its file and one line here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from clients.aggregators.pre_aggregators.bucketing import Bucketing
from clients.aggregators.pre_aggregators.nnm import NNM
from clients.aggregators.stage import stage_named

if TYPE_CHECKING:
    from collections.abc import Mapping

    from clients.aggregators.pre_aggregators.pre_aggregator import PreAggregator

PRE_AGGREGATORS: dict[str, type[PreAggregator]] = {one.name: one for one in (NNM, Bucketing)}


def pre_aggregator_named(name: str, options: Mapping[str, object]) -> PreAggregator:
    """Return a pre-aggregator.

    Args:
        name: a key of `PRE_AGGREGATORS`.
        options: its own, as in TOML.

    Raises:
        ConfigurationError: unknown name, or an option that is unknown, missing or out of range.
    """
    return stage_named("pre-aggregator", PRE_AGGREGATORS, name, options)
