"""The ports of a history: rounds from a chain or an index, and responses made here or remote."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from ledger.protocol.errors import CmflError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from contextlib import AbstractContextManager

    from ledger.chain.contract.calls import DecideCall
    from ledger.chain.contract.committee_ledger import CommitteeLedger
    from ledger.chain.contract.event_logs import RecordedEvent
    from ledger.chain.ports import Block
    from ledger.history.digests import Occurrence
    from ledger.history.documents import Documents
    from ledger.history.participation import Participation, Tally
    from ledger.history.paths import DeploymentPath
    from ledger.history.queries import RoundPage, RoundQuery
    from ledger.history.responses.clients import ClientRoundsPage, ClientsPage, OneClient
    from ledger.history.responses.digests import DigestPage
    from ledger.history.responses.rounds import Explanation, FullRound, RoundsPage
    from ledger.history.round import Round
    from ledger.history.status import Order
    from ledger.protocol.ledger_state import Deployment, EquivocationReport
    from ledger.protocol.types import ClientId, Digest, RegisteredClient
    from ledger.storage.blobs import BlobReader


class SourceUnusableError(CmflError):
    """What stands beside a chain cannot be read, or contradicts itself: the chain tells then."""


class TooLongError(CmflError):
    """A history is too long for what is asked of it without an index."""


class HistorySource(Protocol):
    """The history of one deployment as of one block; the same answers whoever gives them.

    Every method may raise a ChainError where a chain is behind it.
    """

    @property
    def path(self) -> DeploymentPath:
        """Its name: the chain's, and the contract's address."""

    @property
    def fixed(self) -> Deployment:
        """What was fixed at deployment."""

    @property
    def blobs(self) -> BlobReader:
        """Where records, score vectors and payloads are."""

    def newest(self) -> int:
        """Return the number of the newest round that has opened, 0 before the first."""

    def round(self, number: int) -> Round | None:
        """Return a round with all that came in, None if it has not opened.

        Args:
            number: t.
        """

    def rounds(self, first: int, last: int) -> list[Round]:
        """Return the rounds of a range by their openings and ends, ascending.

        Args:
            first: its first round, at least 1.
            last: its last round, one that has opened.
        """

    def some(self, numbers: Iterable[int]) -> list[Round]:
        """Return some rounds by their openings and ends, ascending.

        Args:
            numbers: of rounds that have opened, ascending.
        """

    def page(self, walk: RoundQuery, limit: int, cursor: str | None) -> RoundPage:
        """Return one page of rounds, the same whoever gives it.

        Args:
            walk: which rounds, in which order.
            limit: how many at most.
            cursor: where the page begins; None for the beginning.

        Raises:
            CursorError: the cursor is not one of this walk's.
        """

    def parts(self, client: ClientId, rounds: Sequence[Round]) -> list[Participation]:
        """Return what a client was and did in some rounds, in their order.

        Args:
            client: its index.
            rounds: those of a page, in each of which it took part.

        Raises:
            ValueError: it took no part in one of them.
        """

    def occurrences(self, digest: Digest, first: int, limit: int) -> list[Occurrence]:
        """Return where a digest stands: the deployment first, then ascending by round.

        Args:
            digest: any 32 bytes.
            first: how many places are passed over.
            limit: how many are told at most.

        Raises:
            TooLongError: that takes an index.
        """

    def documents(self, one: Round) -> Documents:
        """Return the documents that a round's decision names."""

    def registered(self) -> tuple[RegisteredClient, ...]:
        """Return the clients registered so far, with the bans that the chain holds."""

    def tally(self) -> Tally:
        """Return every client's counts over the rounds that have ended."""

    def time_of(self, block_number: int) -> int:
        """Return a block's time, in Unix seconds."""

    def ban_report(self, recorded: RecordedEvent) -> EquivocationReport | None:
        """Return the two statements that a ban rests on.

        Args:
            recorded: the ban, and where the chain holds it.

        Returns:
            None if the transaction was not sent to the contract; see `decision_call`.
        """

    def decision_call(self, one: Round) -> DecideCall | None:
        """Return the call data that decided a round.

        Args:
            one: a decided round.

        Returns:
            None if the transaction was not sent to the contract, but to an account with code of
            its own that called it: the signatures are then not to be had.
        """


class History(Protocol):
    """Responses about one deployment: made from its chain or an index, or read from a service."""

    @property
    def address(self) -> str:
        """Of the contract, EIP-55."""

    def rounds(
        self, query: RoundQuery, limit: int, cursor: str | None, *, full: bool = False
    ) -> RoundsPage:
        """Return a page of rounds, each as a line or whole."""

    def full_round(self, number: int) -> FullRound:
        """Return a round with all its parts but the score vectors."""

    def explanation(self, number: int) -> Explanation:
        """Return a round in plain words."""

    def clients(self, limit: int, cursor: str | None) -> ClientsPage:
        """Return a page of clients, ascending."""

    def client(self, client: int) -> OneClient:
        """Return one client."""

    def client_rounds(
        self, client: int, order: Order, limit: int, cursor: str | None
    ) -> ClientRoundsPage:
        """Return a page of the rounds that a client took part in."""

    def digest(self, digest: Digest, limit: int, cursor: str | None) -> DigestPage:
        """Return a page of the places of a digest, the deployment's first."""


class HistoryIndex(Protocol):
    """An index of histories that may stand beside a chain; safe to share between threads."""

    def history(
        self, ledger: CommitteeLedger, blobs: BlobReader, block: Block
    ) -> AbstractContextManager[HistorySource | None]:
        """Open the history of a deployment as of one block.

        Args:
            ledger: the contract, for what only the chain has.
            blobs: where the documents are.
            block: as of which; another block of this number is another.

        Returns:
            The history; None where the index does not stand at this block, or is not used.

        Raises:
            SourceUnusableError: the index cannot be read; also within the context.
        """

    def failed(self, error: SourceUnusableError) -> None:
        """Take note that the index could not be used, so that it is left alone for a while.

        Args:
            error: why.
        """
