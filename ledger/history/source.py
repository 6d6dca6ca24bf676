"""The port of a deployment's answers: made here from its chain, or read from a service."""

from __future__ import annotations

from typing import Protocol

from ledger.history.queries import RoundQuery
from ledger.history.responses.clients import ClientRoundsPage, ClientsPage, OneClient
from ledger.history.responses.digests import DigestPage
from ledger.history.responses.rounds import FullRound, RoundExplanation, RoundsPage
from ledger.history.status import Order
from ledger.protocol.types import Digest


class History(Protocol):
    """Responses about one deployment: made from its chain, or read from a service."""

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

    def digest(self, digest: Digest, limit: int, cursor: str | None) -> DigestPage:
        """Return a page of the places of a digest, the deployment's first."""
