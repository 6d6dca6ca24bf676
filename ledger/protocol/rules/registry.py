"""All rules by the number or name that a run document gives them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ledger.protocol.rules import direction, distance, reference, scoring, selection, threshold

if TYPE_CHECKING:
    from ledger.protocol.rules.distance import DistanceRule
    from ledger.protocol.rules.reference import ReferenceRule
    from ledger.protocol.rules.scoring import ScoringRule
    from ledger.protocol.rules.selection import SelectionRule
    from ledger.protocol.rules.threshold import ThresholdRule

DISTANCES: dict[str, DistanceRule] = {
    rule.name: rule
    for rule in (distance.SQUARED, distance.L2, distance.PER_TENSOR, direction.DIRECTION)
}
REFERENCES: dict[str, ReferenceRule] = {
    rule.name: rule for rule in (reference.OWN, reference.TRAVEL)
}
SCORINGS: dict[str, ScoringRule] = {rule.name: rule for rule in (scoring.MEAN, scoring.MEDIAN)}
THRESHOLDS: dict[str, ThresholdRule] = {
    rule.name: rule for rule in (threshold.NONE, threshold.SPREAD, threshold.DIRECTION)
}
SELECTIONS: dict[int, SelectionRule] = {
    rule.number: rule
    for rule in (selection.NEAREST, selection.FARTHEST, selection.WITHIN_THRESHOLD)
}
