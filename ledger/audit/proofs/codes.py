"""What a proof and its verification say in codes; `sentences.py` puts them into words."""

from __future__ import annotations

from enum import StrEnum


class ProvenRole(StrEnum):
    """What a client was in a round, as seed, registry and bans have it."""

    TRAINER = "trainer"
    MEMBER = "member"
    NOT_SAMPLED = "not sampled"
    BANNED = "banned"


class ClientVerdict(StrEnum):
    """What became of a client in a round."""

    USED = "used"
    NOT_USED = "not used"
    DROPPED_OUT = "dropped out"
    MEMBER = "member"
    NOT_SAMPLED = "not sampled"
    BANNED = "banned"
    ABANDONED = "abandoned"
    OPEN = "open"


class ScoresTaken(StrEnum):
    """What became of a member's scores, as the record has it."""

    COUNTED = "counted"
    REFUSED = "refused"
    NONE = "none"
    EMPTY_SEAT = "empty seat"
    UNKNOWN = "unknown"


class StepName(StrEnum):
    """What one step of a verification compares."""

    QUESTION = "question"
    CONTRACT = "contract"
    DEPLOYMENT = "deployment"
    CODE = "code"
    CONFIGURATION = "configuration"
    HEAD = "head"
    DECISION = "decision"
    SEED = "seed"
    COMMITTEE = "committee"
    BANS = "bans"
    SAMPLING = "sampling"
    COMMITMENTS = "commitments"
    COMMITMENT = "commitment"
    AUTHOR = "author"
    RECORD = "record"
    BASE = "base"
    CLOSING = "closing"
    DROPOUT = "dropout"
    REVEAL = "reveal"
    UPDATES_ROOT = "updates root"
    SCORES_ROOT = "scores root"
    OUTCOME_PLACE = "outcome place"
    COMMITMENT_PLACE = "commitment place"
    STATEMENT = "statement"
    EARLIER_RESULT = "earlier result"
    OPENED_BLOCK = "opened block"
    EVENT_PLACES = "event places"
    REPLAYED_HEAD = "replayed head"
    PARTS = "parts"


class Caveat(StrEnum):
    """What a proof does not prove, however well its steps end."""

    NOTHING_TRUSTED = "nothing trusted"
    CONTRACT_UNPROVEN = "contract unproven"
    PLACES_UNPROVEN = "places unproven"
    CLOSING_CERTIFIED = "closing certified"
    NOT_FINAL = "not final"
    DISTANCES_CERTIFIED = "distances certified"
    MODEL_CERTIFIED = "model certified"
    ABSENCE_CERTIFIED = "absence certified"
    MALFORMED_CERTIFIED = "malformed certified"
    SILENCE_UNPROVEN = "silence unproven"
    RECORD_LACKING = "record lacking"
    AUTHOR_LACKING = "author lacking"
