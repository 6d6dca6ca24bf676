"""What an audit says in codes: programs compare these, `sentences.py` puts them into words."""

from __future__ import annotations

from enum import IntEnum, StrEnum


class Step(IntEnum):
    """The ten steps of an audit."""

    DEPLOYMENT = 1
    HEAD = 2
    CERTIFICATES = 3
    SAMPLING = 4
    BLOBS = 5
    DISTANCES = 6
    MEANS = 7
    RANKING = 8
    MODEL = 9
    COMPLETENESS = 10


class StepOutcome(StrEnum):
    """How one step ended."""

    PASSED = "passed"
    FAILED = "failed"
    NOT_CHECKABLE = "not checkable"


class AuditOutcome(StrEnum):
    """How an audit ended."""

    PASSED = "passed"
    FAILED = "failed"
    INCOMPLETE = "incomplete"


class BlobKind(StrEnum):
    """What a blob should be."""

    CONFIGURATION = "configuration"
    RECORD = "record"
    INCIDENTS = "incidents document"
    PAYLOAD = "payload"
    VECTOR = "score vector"
    MODEL = "model"


class Fact(StrEnum):
    """What the record says that is not so."""

    CHAIN_UNREADABLE = "chain unreadable"
    CHAIN_FILE = "chain file"
    ROLLED_BACK = "rolled back"
    KEPT_HEAD = "kept head"
    EARLIER_BLOCK = "earlier block"
    EARLIER_HEAD = "earlier head"
    STATE_UNREADABLE = "state unreadable"
    STATE = "state"
    LOGS_UNREADABLE = "logs unreadable"
    LOG_ORDER = "log order"
    LOG_ADDRESS = "log address"
    BLOCK_UNREADABLE = "block unreadable"
    LOG_BLOCK = "log block"
    PARENT_BLOCK = "parent block"

    DEPLOYMENT_UNREADABLE = "deployment unreadable"
    DEPLOYMENT_UNLOGGED = "deployment unlogged"
    DEPLOYMENT_IMPOSSIBLE = "deployment impossible"
    DEPLOYMENT = "deployment"
    CODE = "code"
    CONFIGURATION = "configuration"
    FIRST_MODEL = "first model"

    TRANSACTION = "transaction"
    REFUSED_CALL = "refused call"
    EVENT_COUNT = "event count"
    EVENT_MALFORMED = "event malformed"
    EVENT_KIND = "event kind"
    EVENT_FIELD = "event field"
    EVENT_UNFOUNDED = "event unfounded"
    ROUND_ORDER = "round order"

    INPUTS_OPEN = "inputs open"
    BASE = "base"
    REVEAL = "reveal"
    NOT_SAMPLED = "not sampled"
    BLOB = "blob"
    RECORD_MALFORMED = "record malformed"
    RECORD_OF_ANOTHER = "record of another"
    RECORD_CLIENTS = "record clients"
    OPENS_NO_COMMITMENT = "opens no commitment"
    HAS_COMMITTED = "has committed"
    HAS_NOT_COMMITTED = "has not committed"
    UPDATE_MALFORMED = "update malformed"
    UPDATE_USABLE = "update usable"
    NO_MEMBER = "no member"
    CLAIM_NOT_SIGNED = "claim not signed"
    VECTOR_TOO_LONG = "vector too long"
    SCORES_COUNTED = "scores counted"
    SCORES_REFUSED = "scores refused"
    TOO_FEW_SCORES = "too few scores"
    TOO_FEW_TRAINERS = "too few trainers"
    DISTANCE = "distance"
    RANKING_RANGE = "ranking range"
    RANKED = "ranked"
    THRESHOLD = "threshold"
    ACCEPTED_SET = "accepted set"
    NEXT_COMMITTEE = "next committee"
    UPDATES_ROOT = "updates root"
    SCORES_ROOT = "scores root"
    MODEL = "model"
    MODEL_MALFORMED = "model malformed"
    MODEL_NOT_FINITE = "model not finite"


class Need(StrEnum):
    """What is missing, so that something could not be checked."""

    DEPLOYMENT = "deployment"
    CHAIN = "chain"
    CHAIN_FILE = "chain file"
    HEAD_NOTE = "head note"
    CODE = "code"
    STATE = "state"
    BLOCK = "block"
    HEAD_BLOCK = "head block"
    REORGANISED = "reorganised"
    LOGS = "logs"
    FINALITY = "finality"
    KEPT_HEAD = "kept head"
    PARAMETERS = "parameters"
    CALL_DATA = "call data"
    ROUND_BEFORE = "round before"
    BLOB = "blob"
    BLOB_UNREADABLE = "blob unreadable"
    RECORD = "record"
    UPDATES = "updates"
    VECTORS = "vectors"
    REFUSAL = "refusal"
    RIGHT_VECTORS = "right vectors"
    MODEL_BEFORE = "model before"
    TRAVEL = "travel"


class FindingKind(StrEnum):
    """Misbehaviour or misfortune that a run's record names."""

    FALSE_SCORES = "false scores"
    REFUSED_SCORES = "refused scores"
    TWO_VECTORS = "two vectors"
    SCORES_UNCHECKED = "scores unchecked"
    WRONG_PROPOSAL = "wrong proposal"
    EQUIVOCATION = "equivocation"
    SILENT_PRIMARY = "silent primary"
    NO_QUORUM = "no quorum"
    BAN = "ban"
    EMPTY_SEAT = "empty seat"
    SILENT_MEMBER = "silent member"
    SCORES_NOT_DUE = "scores not due"
    DROPOUT = "dropout"
    STRAY_COMMITMENT = "stray commitment"
    LATE_COMMITMENT = "late commitment"
    EQUAL_PAYLOADS = "equal payloads"
    ABANDONED_ROUND = "abandoned round"
    PAYLOAD_APPEARED = "payload appeared"
    INCIDENTS_MISSING = "incidents missing"


REMARKS = frozenset({FindingKind.PAYLOAD_APPEARED, FindingKind.INCIDENTS_MISSING})
"""Findings against nobody: what can be told neither true nor false, by anyone."""


class AuditCount(StrEnum):
    """What an audit counts."""

    BLOBS = "blobs"
    BYTES = "bytes"
    TRANSACTIONS = "transactions"
    VOTES = "votes"
    DISTANCES = "distances"
    COMMITMENTS = "commitments"
    COUNTED_COMMITMENTS = "counted commitments"
    STRAY_COMMITMENTS = "stray commitments"
    LATE_COMMITMENTS = "late commitments"
    OPEN_COMMITMENTS = "open commitments"
    ROUNDS_DECIDED = "rounds decided"
    ROUNDS_ABANDONED = "rounds abandoned"
    IGNORED_INCIDENTS = "ignored incidents"
