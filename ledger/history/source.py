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
    from ledger.history.responses.evidence import EvidencePage
    from ledger.history.responses.rounds import FullRound, RoundExplanation, RoundsPage
    from ledger.history.round import HistoryRound
    from ledger.history.status import Order
    from ledger.protocol.ledger_state import Deployment, EquivocationReport
    from ledger.protocol.types import ClientId, Digest, RegisteredClient
    from ledger.storage.blobs import BlobReader


class SourceUnusableError(CmflError):
    """An index cannot be read or contradicts itself: the chain is read instead."""


class TooLongError(CmflError):
    """A history is too long for a search without an index."""


class HistorySource(Protocol):
    """Rounds and clients of one deployment as of one block, from its chain or from an index.

    Both give the same answers. Every method may raise a ChainError.
    """

    @property
    def path(self) -> DeploymentPath:
        """The deployment's path: its chain's name and the contract's address."""

    @property
    def fixed(self) -> Deployment:
        """The parameters of the contract."""

    @property
    def blobs(self) -> BlobReader:
        """Records, score vectors and payloads."""

    def newest(self) -> int:
        """Return the number of the newest round that has opened, 0 before the first."""

    def round(self, number: int) -> HistoryRound | None:
        """Return a round with its activity, None if it has not opened."""

    def rounds(self, first: int, last: int) -> list[HistoryRound]:
        """Return the opened rounds first..last by their openings and ends, ascending."""

    def some(self, numbers: Iterable[int]) -> list[HistoryRound]:
        """Return opened rounds, given in ascending order, by their openings and ends."""

    def page(self, query: RoundQuery, limit: int, cursor: str | None) -> RoundPage:
        """Return one page of rounds; see `pages.read_page`."""

    def parts(self, client: ClientId, rounds: Sequence[HistoryRound]) -> list[Participation]:
        """Return the parts of a client in rounds of a page.

        Raises:
            ValueError: it took no part in one of them.
        """

    def occurrences(self, digest: Digest, first: int, limit: int) -> list[Occurrence]:
        """Return the places of a digest from the `first` on: the deployment, then rounds ascending.

        Raises:
            TooLongError: the search needs an index.
        """

    def documents(self, round_: HistoryRound) -> Documents:
        """Return the documents that a round's decision names."""

    def registered(self) -> tuple[RegisteredClient, ...]:
        """Return the clients registered so far, with the recorded bans."""

    def tally(self) -> Tally:
        """Return every client's counts over the ended rounds."""

    def time_of(self, block_number: int) -> int:
        """Return a block's time, in Unix seconds."""

    def ban_report(self, recorded: RecordedEvent) -> EquivocationReport | None:
        """Return the two statements that prove a ban; None as in `decision_call`."""

    def decision_call(self, round_: HistoryRound) -> DecideCall | None:
        """Return the call data that decided a round.

        Returns:
            None if another contract called the contract: the signatures are then not available.
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

    def explanation(self, number: int) -> RoundExplanation:
        """Return a round in plain words."""

    def clients(self, limit: int, cursor: str | None) -> ClientsPage:
        """Return a page of clients, ascending."""

    def client(self, client: int) -> OneClient:
        """Return one client."""

    def client_rounds(
        self, client: int, order: Order, limit: int, cursor: str | None
    ) -> ClientRoundsPage:
        """Return a page of the rounds that a client took part in."""

    def evidence(self, order: Order, limit: int, cursor: str | None) -> EvidencePage:
        """Return the evidence against clients in a page of rounds."""

    def digest(self, digest: Digest, limit: int, cursor: str | None) -> DigestPage:
        """Return a page of the places of a digest, the deployment's first."""


class HistoryIndex(Protocol):
    """An index of histories; safe to share between threads."""

    def history(
        self, ledger: CommitteeLedger, blobs: BlobReader, block: Block
    ) -> AbstractContextManager[HistorySource | None]:
        """Open the history of a deployment as of one block.

        It is None where the index is at another block, or is not used.

        Raises:
            SourceUnusableError: the index cannot be read; also within the context.
        """

    def failed(self, error: SourceUnusableError) -> None:
        """Report that the index could not be used; it is not tried for a while."""
