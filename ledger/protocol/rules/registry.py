"""All rules by the number or name that a run document gives them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ledger.protocol.rules.distance.direction import DIRECTION as DIRECTION_DISTANCE
from ledger.protocol.rules.distance.l2 import L2
from ledger.protocol.rules.distance.per_tensor import PER_TENSOR
from ledger.protocol.rules.distance.squared import SQUARED
from ledger.protocol.rules.reference.own import OWN
from ledger.protocol.rules.reference.travel import TRAVEL
from ledger.protocol.rules.scoring.mean import MEAN
from ledger.protocol.rules.scoring.median import MEDIAN
from ledger.protocol.rules.selection.farthest import FARTHEST
from ledger.protocol.rules.selection.nearest import NEAREST
from ledger.protocol.rules.selection.within_threshold import WITHIN_THRESHOLD
from ledger.protocol.rules.threshold.direction import DIRECTION as DIRECTION_THRESHOLD
from ledger.protocol.rules.threshold.none import NONE
from ledger.protocol.rules.threshold.spread import SPREAD

if TYPE_CHECKING:
    from ledger.protocol.rules.distance.rule import DistanceRule
    from ledger.protocol.rules.reference.rule import ReferenceRule
    from ledger.protocol.rules.scoring.rule import ScoringRule
    from ledger.protocol.rules.selection.rule import SelectionRule
    from ledger.protocol.rules.threshold.rule import ThresholdRule

DISTANCES: dict[str, DistanceRule] = {
    rule.name: rule for rule in (SQUARED, L2, PER_TENSOR, DIRECTION_DISTANCE)
}
REFERENCES: dict[str, ReferenceRule] = {rule.name: rule for rule in (OWN, TRAVEL)}
SCORINGS: dict[str, ScoringRule] = {rule.name: rule for rule in (MEAN, MEDIAN)}
THRESHOLDS: dict[str, ThresholdRule] = {
    rule.name: rule for rule in (NONE, SPREAD, DIRECTION_THRESHOLD)
}
SELECTIONS: dict[int, SelectionRule] = {
    rule.number: rule for rule in (NEAREST, FARTHEST, WITHIN_THRESHOLD)
}
