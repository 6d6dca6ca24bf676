"""The port behind which rounds are read: from a chain's own logs, or from an index of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from ledger.blobs.store import BlobReader
    from ledger.chain.contract.calls import DecideCall
    from ledger.chain.contract.events import Recorded
    from ledger.history.documents import Documents
    from ledger.history.participation import Tally
    from ledger.history.paths import DeploymentPath
    from ledger.history.round import Round
    from ledger.protocol.ledger_state import Deployment, EquivocationReport
    from ledger.protocol.types import RegisteredClient


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

    def documents(self, one: Round) -> Documents:
        """Return the documents that a round's decision names."""

    def registered(self) -> tuple[RegisteredClient, ...]:
        """Return the clients registered so far, with the bans that the chain holds."""

    def tally(self) -> Tally:
        """Return every client's counts over the rounds that have ended."""

    def time_of(self, block_number: int) -> int:
        """Return a block's time, in Unix seconds."""

    def ban_report(self, recorded: Recorded) -> EquivocationReport | None:
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
