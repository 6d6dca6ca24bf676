"""Everything that can be refused, as one tree.

`CmflError` is above ParametersError, EncodingError, SignatureError, ChainError, BlobError,
ServiceError, JournalError, ConfigurationError and ProtocolRefusal, whose `code` is the reason.

A refusal's sentence is what the contract reverts with, `committee_ledger: <fact>`, so that the
executable specification (`rounds.py`) and the contract can be compared refusal by refusal.
"""

from __future__ import annotations

from enum import StrEnum

REVERT_PREFIX = "committee_ledger: "


class CmflError(Exception):
    """Base of every error that this project raises for a fact of the outside world."""

    def _render_traceback_(self) -> list[str]:
        """Return the lines that a notebook shows in place of a traceback."""
        return [f"{type(self).__name__}: {self}"]


class ParametersError(CmflError):
    """A setting breaks an invariant of the protocol; the message is name, value and rule."""

    def __init__(self, rule: str, name: str | None = None, value: object = None) -> None:
        self.rule, self.name, self.value = rule, name, value
        super().__init__(rule if name is None else f"{name} = {value!s:.80}{rule}")


class EncodingError(CmflError):
    """Bytes that are not the canonical encoding of what they claim to be."""


class SignatureError(CmflError):
    """A signature that is malformed, not canonical or not recoverable."""


class ChainError(CmflError):
    """The chain is unreachable, damaged, locked by another writer, or not the expected one."""


class BlobError(CmflError):
    """A blob is missing, damaged or larger than it may be."""


class BlobMissingError(BlobError):
    """No blob with this digest is in the store: it was pruned or never published."""


class BlobUnreachableError(BlobError):
    """The store does not answer or cannot be read, so that the blob may be in it or not."""


class ServiceError(CmflError):
    """A service is unreachable, refuses a request, or answers with what cannot be an answer."""


class JournalError(CmflError):
    """A vote journal cannot be read or written, so that nothing may be signed."""


class ConfigurationError(CmflError):
    """A configuration file or a setting on the command line is wrong."""


class RefusalCode(StrEnum):
    """Reason of a refused transaction, as the contract's revert states it."""

    NOT_REGISTERING = "registration is closed"
    REGISTRY_MISMATCH = "clients do not match the registry digest"
    MALFORMED_CLIENT = "client record is malformed"
    CLIENTS_NOT_ASCENDING = "clients are not strictly ascending by address"
    REGISTRY_END = "registry does not end at its last client"
    NOT_SENT_BY_ACCOUNT = "transaction comes from a contract"
    DELEGATED_ACCOUNT = "transaction comes from a delegated account"
    NO_ROUND_OPEN = "no round is open"
    WRONG_ROUND = "wrong round"
    NO_COMMITMENTS = "no commitments are given"
    UNKNOWN_CLIENT = "client is unknown"
    CLIENT_BANNED = "client is banned"
    NOTHING_TAKEN = "every client has committed already"
    COMMITMENTS_CLOSED = "commitments are closed"
    SIGNATURE_NOT_CANONICAL = "signature is not canonical"
    COMMITMENT_NOT_SIGNED = "commitment is not signed by its client"
    WRONG_COMMITTEE = "committee is not the elected one"
    RANKING_TOO_LONG = "more clients are ranked than train"
    RANKING_TOO_SHORT = "fewer clients are ranked than a committee needs"
    RANKING_TOO_EARLY = "fewer clients are ranked than train while commitments are open"
    RANKING_NOT_SORTED = "ranking is not sorted"
    DISTANCE_NOT_FINITE = "distance is not finite"
    MEMBER_RANKED = "client is a committee member"
    REPEATED_CLIENT = "client is ranked twice"
    NO_COMMITMENT = "client has not committed"
    WRONG_AGGREGATION_SET = "aggregation set is not the one that the ranking gives"
    WRONG_CANDIDATES = "candidates are not those that the ranking gives"
    REQUEST_NOT_SIGNED = "request is not signed by the primary of the view"
    SIGNERS_OUT_OF_RANGE = "signers are not places of the committee"
    PRIMARY_REPLIES = "primary replies to itself"
    QUORUM_NOT_REACHED = "quorum is not reached"
    SIGNATURE_COUNT = "signatures do not match the signers"
    MEMBER_BANNED = "member is banned"
    REPLY_NOT_SIGNED = "reply is not signed by its member"
    DEADLINE_NOT_REACHED = "deadline is not reached"
    NOT_OPENED = "no round has opened"
    STATEMENTS_EQUAL = "statements are the same"
    SCORES_DIFFER = "score vectors are for different clients"
    STATEMENT_NOT_SIGNED = "statement is not signed by the client"


class ProtocolRefusal(CmflError):  # noqa: N818 - a refusal is the contract working, not failing
    """The ledger refuses a transaction."""

    def __init__(self, code: RefusalCode, detail: str = "") -> None:
        self.code, self.detail = code, detail
        super().__init__(f"{self.reason} ({detail})" if detail else self.reason)

    @property
    def reason(self) -> str:
        """The contract's revert string."""
        return f"{REVERT_PREFIX}{self.code}"
