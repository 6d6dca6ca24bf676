"""All rules by the number or name that a run document gives them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ledger.protocol.rules import (
    clipping,
    direction,
    distance,
    reference,
    scoring,
    selection,
    threshold,
)
from ledger.protocol.rules.own import OwnRuleMissingError, OwnRuleName, distance_sentence

if TYPE_CHECKING:
    from ledger.protocol.rules.clipping import ClipRule
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
    rule.name: rule
    for rule in (
        reference.OWN,
        reference.TRAVEL,
        reference.TRAVEL_SUM,
        reference.CROWD,
        reference.PEERS,
    )
}
SCORINGS: dict[str, ScoringRule] = {rule.name: rule for rule in (scoring.MEAN, scoring.MEDIAN)}
THRESHOLDS: dict[str, ThresholdRule] = {
    rule.name: rule for rule in (threshold.NONE, threshold.SPREAD, threshold.DIRECTION)
}
CLIPS: dict[str, ClipRule] = {
    rule.name: rule for rule in (clipping.NONE, clipping.MEDIAN, clipping.QUANTILE)
}
OWN_DISTANCES: dict[str, DistanceRule] = {}
OWN_SCORINGS: dict[str, ScoringRule] = {}
"""Users' own rules whose functions are loaded in this process; a name determines the code."""

SELECTIONS: dict[int, SelectionRule] = {
    rule.number: rule for rule in (selection.NEAREST, selection.FARTHEST, selection.BELOW_TWO)
}


def distance_named(name: str) -> DistanceRule:
    """Return a distance rule: one of ours, or an own one whose function is loaded.

    Raises:
        OwnRuleMissingError: it is an own one, and nobody has named its code here.
        KeyError: there is no such rule.
    """
    own = OwnRuleName.of(name)
    if own is not None and name not in OWN_DISTANCES:
        raise OwnRuleMissingError(own)
    return DISTANCES[name] if own is None else OWN_DISTANCES[name]


def scoring_named(name: str) -> ScoringRule:
    """Return a scoring rule: one of ours, or an own one whose function is loaded.

    Raises:
        OwnRuleMissingError: it is an own one, and nobody has named its code here.
        KeyError: there is no such rule.
    """
    own = OwnRuleName.of(name)
    if own is not None and name not in OWN_SCORINGS:
        raise OwnRuleMissingError(own)
    return SCORINGS[name] if own is None else OWN_SCORINGS[name]


def rule_sentences(distance_name: str, scoring_name: str) -> tuple[str, str]:
    """Return how distance and scoring are called in a sentence; no own function is needed."""
    own_distance, own_scoring = OwnRuleName.of(distance_name), OwnRuleName.of(scoring_name)
    measured = (
        DISTANCES[distance_name].sentence
        if own_distance is None
        else distance_sentence(own_distance)
    )
    score = SCORINGS[scoring_name].sentence if own_scoring is None else own_scoring.label
    return measured, score
