"""The history of one deployment as responses, from its chain."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ledger.history.documents import missing_payloads
from ledger.history.explain import explain_missing_payloads
from ledger.history.queries import RoundQuery
from ledger.history.serialise.serialise_clients import client_rounds_page, clients_page, one_client
from ledger.history.serialise.serialise_digests import digest_page
from ledger.history.serialise.serialise_evidence import evidence_page
from ledger.history.serialise.serialise_rounds import explanation, full_round, rounds_page
from ledger.history.serialise.values import DocumentedRound
from ledger.history.status import Order
from ledger.protocol.errors import ConfigurationError
from ledger.protocol.types import ClientId, Digest

if TYPE_CHECKING:
    from ledger.history.history import FoldedHistory
    from ledger.history.responses.clients import ClientRoundsPage, ClientsPage, OneClient
    from ledger.history.responses.digests import DigestPage
    from ledger.history.responses.evidence import EvidencePage
    from ledger.history.responses.rounds import FullRound, RoundExplanation, RoundsPage


@dataclass(frozen=True, slots=True)
class LocalHistory:
    """Responses about one deployment, made here; `RemoteDeployment` reads the same ones.

    Every method that is given a round or a client raises ConfigurationError where there is none.
    """

    source: FoldedHistory

    @property
    def address(self) -> str:
        """Of the contract, EIP-55."""
        return self.source.path.address

    def rounds(
        self, query: RoundQuery, limit: int, cursor: str | None, *, full: bool = False
    ) -> RoundsPage:
        """Return a page of rounds."""
        clients = self.source.fixed.clients
        if query.client is not None and query.client >= clients:
            raise ConfigurationError(
                f"--client {query.client}: there are {clients} clients, from 0"
            )
        return rounds_page(self.source, self.source.page(query, limit, cursor), full=full)

    def full_round(self, number: int) -> FullRound:
        """Return a round with all its parts but the score vectors."""
        return full_round(self._view(number))

    def explanation(self, number: int) -> RoundExplanation:
        """Return a round in plain words."""
        return explanation(self._view(number))

    def missing_payloads(self, number: int) -> list[str]:
        """Return a sentence about a round's payloads that are not stored here, if there are any."""
        documents = self._view(number).documents
        return explain_missing_payloads(documents, missing_payloads(documents, self.source.blobs))

    def clients(self, limit: int, cursor: str | None) -> ClientsPage:
        """Return a page of clients, ascending."""
        return clients_page(self.source, limit, cursor)

    def client(self, client: int) -> OneClient:
        return one_client(self.source, self._registered(client))

    def client_rounds(
        self, client: int, order: Order, limit: int, cursor: str | None
    ) -> ClientRoundsPage:
        """Return a page of the rounds that a client took part in."""
        index = self._registered(client)
        query = RoundQuery("client rounds", order, client=index)
        return client_rounds_page(self.source, index, self.source.page(query, limit, cursor))

    def evidence(self, order: Order, limit: int, cursor: str | None) -> EvidencePage:
        """Return the evidence against clients in a page of rounds."""
        query = RoundQuery("evidence", order)
        return evidence_page(self.source, self.source.page(query, limit, cursor))

    def digest(self, digest: Digest, limit: int, cursor: str | None) -> DigestPage:
        """Return a page of the places of a digest, the deployment's first."""
        return digest_page(self.source, digest, limit, cursor)

    def _view(self, number: int) -> DocumentedRound:
        round_ = self.source.round(number)
        if round_ is None:
            raise ConfigurationError(
                f"round {number} has not opened; the newest of {self.source.fixed.rounds} is "
                f"{self.source.newest()}"
            )
        return DocumentedRound.of(self.source, round_)

    def _registered(self, client: int) -> ClientId:
        registered = len(self.source.registered())
        if client >= registered:
            raise ConfigurationError(f"client {client}: there are {registered} clients, from 0")
        return ClientId(client)
