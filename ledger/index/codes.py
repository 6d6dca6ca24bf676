"""Codes in columns and documents of the index; they never change their meaning."""

from __future__ import annotations

from enum import IntEnum, StrEnum

from ledger.history.participation import RoundRole, ScoresOutcome, UpdateOutcome
from ledger.history.status import RoundStatus

STATUS_CODES = {RoundStatus.OPEN: 0, RoundStatus.DECIDED: 1, RoundStatus.ABANDONED: 2}
ROLE_CODES = {RoundRole.TRAINER: 1, RoundRole.MEMBER: 2}
OUTCOME_CODES: dict[UpdateOutcome | None, int] = {
    None: 0,
    UpdateOutcome.ACCEPTED: 1,
    UpdateOutcome.NOT_ACCEPTED: 2,
    UpdateOutcome.DROPPED_OUT: 3,
    UpdateOutcome.UNDECIDED: 4,
}
SCORES_CODES: dict[ScoresOutcome | None, int] = {
    None: 0,
    ScoresOutcome.COUNTED: 1,
    ScoresOutcome.NONE: 2,
    ScoresOutcome.REFUSED: 3,
    ScoresOutcome.UNKNOWN: 4,
}


class DocumentState(IntEnum):
    """The state of a document that a round's decision may name."""

    NONE = 0
    READ = 1
    MISSING = 2


class StorageComparison(IntEnum):
    """The comparison of the events with the contract's own storage."""

    NOT_YET = 0
    EQUAL = 1
    DIFFERENT = 2


class IndexState(StrEnum):
    """State of the index of a service: none, in use, or unused after a failure."""

    NONE = "none"
    READ = "read"
    LEFT_ALONE = "left_alone"
