"""Everything that can be refused, as one tree.

    CmflError
    ├── ParametersError          a setting breaks an invariant of the protocol
    ├── EncodingError            bytes that are not what they claim to be
    ├── SignatureError           a signature that does not recover, or is not canonical
    ├── ConsensusError           the committee could not agree in this round
    ├── ChainError               the chain is unreachable, damaged, locked or another one
    ├── BlobError                a blob is missing, damaged or too large
    ├── ServiceError             a service is unreachable, refuses, or answers what cannot be
    ├── JournalError             a vote journal cannot be read or written: nothing may be signed
    ├── ConfigurationError       a configuration file or command-line setting is wrong
    └── ProtocolRefusal          the ledger refuses a transaction; `reason` is the contract's own
        └── one leaf per reason, in `REFUSALS`

A refusal's sentence is what the contract reverts with, `committee_ledger: <fact>`, so that the
executable specification (`rounds.py`) and the contract can be compared refusal by refusal.
"""

from __future__ import annotations


class CmflError(Exception):
    """Base of every error that this project raises for a fact of the outside world."""


class ParametersError(CmflError):
    """A setting breaks an invariant of the protocol; the message names value and rule.

    Attributes:
        rule: what follows name and value in the message, all of it where there is no name.
        name: of the parameter; None where it is not a single one.
    """

    def __init__(self, rule: str, name: str | None = None, value: object = None) -> None:
        self.rule, self.name, self.value = rule, name, value
        super().__init__(rule if name is None else f"{name} = {value!s:.80}{rule}")


class EncodingError(CmflError):
    """Bytes that are not the canonical encoding of what they claim to be."""


class SignatureError(CmflError):
    """A signature that is malformed, not canonical or not recoverable."""


class ConsensusError(CmflError):
    """The committee could not agree on a decision in this round."""


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


class ProtocolRefusal(CmflError):  # noqa: N818 - a refusal is the contract working, not failing
    """The ledger refuses a transaction, for the one reason that the class names."""

    fact = ""

    def __init__(self, detail: str = "") -> None:
        self.detail = detail
        super().__init__(f"{self.reason} ({detail})" if detail else self.reason)

    @property
    def reason(self) -> str:
        """The contract's revert string."""
        return f"committee_ledger: {self.fact}"


class NotRegisteringError(ProtocolRefusal):
    """The ledger refuses: registration is closed."""

    fact = "registration is closed"


class RegistryMismatchError(ProtocolRefusal):
    """The ledger refuses: clients do not match the registry digest."""

    fact = "clients do not match the registry digest"


class MalformedClientError(ProtocolRefusal):
    """The ledger refuses: client record is malformed."""

    fact = "client record is malformed"


class ClientsNotAscendingError(ProtocolRefusal):
    """The ledger refuses: clients are not strictly ascending by address."""

    fact = "clients are not strictly ascending by address"


class RegistryEndError(ProtocolRefusal):
    """The ledger refuses: registry does not end at its last client."""

    fact = "registry does not end at its last client"


class NotSentByAccountError(ProtocolRefusal):
    """The ledger refuses: transaction comes from a contract."""

    fact = "transaction comes from a contract"


class DelegatedAccountError(ProtocolRefusal):
    """The ledger refuses: transaction comes from a delegated account."""

    fact = "transaction comes from a delegated account"


class NoRoundOpenError(ProtocolRefusal):
    """The ledger refuses: no round is open."""

    fact = "no round is open"


class WrongRoundError(ProtocolRefusal):
    """The ledger refuses: wrong round."""

    fact = "wrong round"


class NoCommitmentsError(ProtocolRefusal):
    """The ledger refuses: no commitments are given."""

    fact = "no commitments are given"


class UnknownClientError(ProtocolRefusal):
    """The ledger refuses: client is unknown."""

    fact = "client is unknown"


class ClientBannedError(ProtocolRefusal):
    """The ledger refuses: client is banned."""

    fact = "client is banned"


class NothingTakenError(ProtocolRefusal):
    """The ledger refuses: every client has committed already."""

    fact = "every client has committed already"


class CommitmentsClosedError(ProtocolRefusal):
    """The ledger refuses: commitments are closed."""

    fact = "commitments are closed"


class SignatureNotCanonicalError(ProtocolRefusal):
    """The ledger refuses: signature is not canonical."""

    fact = "signature is not canonical"


class CommitmentNotSignedError(ProtocolRefusal):
    """The ledger refuses: commitment is not signed by its client."""

    fact = "commitment is not signed by its client"


class WrongCommitteeError(ProtocolRefusal):
    """The ledger refuses: committee is not the elected one."""

    fact = "committee is not the elected one"


class RankingTooLongError(ProtocolRefusal):
    """The ledger refuses: more clients are ranked than train."""

    fact = "more clients are ranked than train"


class RankingTooShortError(ProtocolRefusal):
    """The ledger refuses: fewer clients are ranked than a committee needs."""

    fact = "fewer clients are ranked than a committee needs"


class RankingTooEarlyError(ProtocolRefusal):
    """The ledger refuses: fewer clients are ranked than train while commitments are open."""

    fact = "fewer clients are ranked than train while commitments are open"


class RankingNotSortedError(ProtocolRefusal):
    """The ledger refuses: ranking is not sorted."""

    fact = "ranking is not sorted"


class DistanceNotFiniteError(ProtocolRefusal):
    """The ledger refuses: distance is not finite."""

    fact = "distance is not finite"


class MemberRankedError(ProtocolRefusal):
    """The ledger refuses: client is a committee member."""

    fact = "client is a committee member"


class RepeatedClientError(ProtocolRefusal):
    """The ledger refuses: client is ranked twice."""

    fact = "client is ranked twice"


class NoCommitmentError(ProtocolRefusal):
    """The ledger refuses: client has not committed."""

    fact = "client has not committed"


class WrongAggregationSetError(ProtocolRefusal):
    """The ledger refuses: aggregation set is not the one that the ranking gives."""

    fact = "aggregation set is not the one that the ranking gives"


class WrongCandidatesError(ProtocolRefusal):
    """The ledger refuses: candidates are not those that the ranking gives."""

    fact = "candidates are not those that the ranking gives"


class RequestNotSignedError(ProtocolRefusal):
    """The ledger refuses: request is not signed by the primary of the view."""

    fact = "request is not signed by the primary of the view"


class SignersOutOfRangeError(ProtocolRefusal):
    """The ledger refuses: signers are not places of the committee."""

    fact = "signers are not places of the committee"


class PrimaryRepliesError(ProtocolRefusal):
    """The ledger refuses: primary replies to itself."""

    fact = "primary replies to itself"


class QuorumNotReachedError(ProtocolRefusal):
    """The ledger refuses: quorum is not reached."""

    fact = "quorum is not reached"


class SignatureCountError(ProtocolRefusal):
    """The ledger refuses: signatures do not match the signers."""

    fact = "signatures do not match the signers"


class MemberBannedError(ProtocolRefusal):
    """The ledger refuses: member is banned."""

    fact = "member is banned"


class ReplyNotSignedError(ProtocolRefusal):
    """The ledger refuses: reply is not signed by its member."""

    fact = "reply is not signed by its member"


class DeadlineNotReachedError(ProtocolRefusal):
    """The ledger refuses: deadline is not reached."""

    fact = "deadline is not reached"


class NotOpenedError(ProtocolRefusal):
    """The ledger refuses: no round has opened."""

    fact = "no round has opened"


class StatementsEqualError(ProtocolRefusal):
    """The ledger refuses: statements are the same."""

    fact = "statements are the same"


class ScoresDifferError(ProtocolRefusal):
    """The ledger refuses: score vectors are for different clients."""

    fact = "score vectors are for different clients"


class StatementNotSignedError(ProtocolRefusal):
    """The ledger refuses: statement is not signed by the client."""

    fact = "statement is not signed by the client"


REFUSALS: dict[str, type[ProtocolRefusal]] = {
    f"committee_ledger: {leaf.fact}": leaf for leaf in ProtocolRefusal.__subclasses__()
}
"""Each revert reason of the contract and the refusal that stands for it."""
