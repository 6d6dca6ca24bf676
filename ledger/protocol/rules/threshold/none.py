"""No threshold: strategies I and II accept a fixed share of the ranking."""

from __future__ import annotations

from ledger.protocol.rules.threshold.rule import ThresholdRule

NONE = ThresholdRule(name="none", find=None, distance=None, sentence="no threshold")
