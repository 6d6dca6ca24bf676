"""One deployment as a service tells it; proofs and bundles are to be checked on this side."""

from __future__ import annotations

from typing import IO, TYPE_CHECKING, TypeVar

from api.client.connection import JSON
from api.client.queries import ALL_ROUNDS, FIRST_PAGE
from api.client.verifications import RemoteVerifications
from api.schemas.clients import ClientAnswer, ClientRoundsAnswer, ClientsAnswer
from api.schemas.deployments import DeploymentAnswer
from api.schemas.digests import DigestAnswer
from api.schemas.evidence import EvidenceAnswer
from api.schemas.federation import FederationAnswer
from api.schemas.rounds import (
    AggregationAnswer,
    CommitteeAnswer,
    ExplanationAnswer,
    RoundAnswer,
    RoundsAnswer,
    ScoresAnswer,
    UpdatesAnswer,
    VotesAnswer,
)
from api.schemas.series import SeriesAnswer
from ledger.protocol.errors import ServiceError

if TYPE_CHECKING:
    from collections.abc import Sized

    from api.client.connection import Asked, Connection
    from api.client.queries import Paging, RoundFilter
    from ledger.protocol.types import Digest

MAX_PROOF_BYTES = 64 << 20
MAX_BUNDLE_BYTES = 16 << 30
"""More than the largest round whose parts are all allowed; what is in it has bounds of its own."""
TAR = "application/x-tar"

R = TypeVar(
    "R",
    RoundAnswer,
    ExplanationAnswer,
    UpdatesAnswer,
    ScoresAnswer,
    VotesAnswer,
    CommitteeAnswer,
    AggregationAnswer,
)


class RemoteDeployment:
    """One deployment behind a connection; every method raises ServiceError without an answer.

    Attributes:
        address: of its contract, EIP-55.
        path: of the deployment, below the service's URL.
        verifications: audits of it that the service runs.
    """

    def __init__(self, connection: Connection, chain: str, address: str) -> None:
        self._connection = connection
        self.address = address
        self.path = f"{chain}/deployments/{address}"
        self.verifications = RemoteVerifications(connection, self.path)

    def whole(self) -> DeploymentAnswer:
        """Return what is fixed, and where it stands."""
        return self._connection.read(DeploymentAnswer, self.path)

    def rounds(
        self,
        only: RoundFilter = ALL_ROUNDS,
        paging: Paging = FIRST_PAGE,
        *,
        full: bool = False,
    ) -> RoundsAnswer:
        """Return a page of rounds.

        Args:
            only: which of them.
            paging: which page.
            full: whether each is told whole.
        """
        query = only.query() | paging.query() | {"order": paging.order, "full": full or None}
        return self._connection.read(RoundsAnswer, f"{self.path}/rounds", query)

    def round(self, number: int, *, full: bool = False) -> RoundAnswer:
        """Return one round in numbers, or whole.

        Args:
            number: t.
            full: whether all parts but the score vectors are told.
        """
        return self._of_round(RoundAnswer, number, "", {"full": full or None})

    def explanation(self, number: int) -> ExplanationAnswer:
        """Return one round in plain words."""
        return self._of_round(ExplanationAnswer, number, "/explanation")

    def updates(self, number: int) -> UpdatesAnswer:
        """Return what became of each trainer's update."""
        return self._of_round(UpdatesAnswer, number, "/updates")

    def scores(self, number: int, *, vectors: bool = False) -> ScoresAnswer:
        """Return the members' signed score claims.

        Args:
            number: t.
            vectors: whether the score vectors are told, too.
        """
        query: dict[str, Asked] = {"include": "vectors" if vectors else None}
        return self._of_round(ScoresAnswer, number, "/scores", query)

    def votes(self, number: int) -> VotesAnswer:
        """Return both certificates with all signatures."""
        return self._of_round(VotesAnswer, number, "/votes")

    def committee(self, number: int) -> CommitteeAnswer:
        """Return the committee and the next one."""
        return self._of_round(CommitteeAnswer, number, "/committee")

    def aggregation(self, number: int) -> AggregationAnswer:
        """Return what was aggregated."""
        return self._of_round(AggregationAnswer, number, "/aggregation")

    def clients(self, paging: Paging = FIRST_PAGE) -> ClientsAnswer:
        """Return a page of clients, ascending."""
        return self._connection.read(ClientsAnswer, f"{self.path}/clients", paging.query())

    def client(self, client: int) -> ClientAnswer:
        """Return one client.

        Raises:
            ServiceError: there is no answer, or one of another client.
        """
        told = self._connection.read(ClientAnswer, f"{self.path}/clients/{client}")
        self._require("client", told.client.client, client)
        return told

    def client_rounds(
        self,
        client: int,
        paging: Paging = FIRST_PAGE,
    ) -> ClientRoundsAnswer:
        """Return a page of the rounds that a client took part in."""
        query = paging.query() | {"order": paging.order}
        path = f"{self.path}/clients/{client}/rounds"
        return self._connection.read(ClientRoundsAnswer, path, query)

    def evidence(
        self,
        client: int | None = None,
        paging: Paging = FIRST_PAGE,
    ) -> EvidenceAnswer:
        """Return what is held against clients.

        Args:
            client: against whom; None for all.
            paging: which page; `limit` counts rounds.
        """
        query = paging.query() | {"order": paging.order, "client": client}
        return self._connection.read(EvidenceAnswer, f"{self.path}/evidence", query)

    def federation(self) -> FederationAnswer:
        """Return where its open round stands: who has done what, and who is late."""
        return self._connection.read(FederationAnswer, f"{self.path}/federation")

    def digest(self, digest: Digest, paging: Paging = FIRST_PAGE) -> DigestAnswer:
        """Return a page of the places where a digest stands, the deployment's first.

        Args:
            digest: of a file, or any other 32 bytes.
            paging: which page.

        Raises:
            ServiceError: there is no answer, or one of another digest.
        """
        path = f"{self.path}/digests/{digest.hex()}"
        told = self._connection.read(DigestAnswer, path, paging.query())
        self._require("digest", told.digest, f"0x{digest.hex()}")
        return told

    def series(self) -> SeriesAnswer:
        """Return the run over its rounds, as columns of equal length.

        Raises:
            ServiceError: there is no answer, or its columns are not.
        """
        told = self._connection.read(SeriesAnswer, f"{self.path}/series")
        columns: list[Sized] = [told.status, told.ranked, told.accepted]
        columns += [told.views, told.committee]
        if told.claimed is not None:
            claimed = told.claimed
            columns += [claimed.accuracy, claimed.floor, claimed.malicious_accepted]
        if {len(column) for column in columns} != {len(told.round)}:
            raise ServiceError(f"{self._connection.shown_url}: a series of unequal columns")
        return told

    def proof(self, number: int, client: int, *, whole: bool = False) -> bytes:
        """Return what became of a client, as a document for `ledger.audit.proofs`.

        Args:
            number: t.
            client: its index.
            whole: whether all links are in it, so that a head alone suffices to check it.
        """
        path = f"{self.path}/rounds/{number}/proof/{client}"
        return self._connection.fetch(path, JSON, MAX_PROOF_BYTES, {"whole": whole or None})

    def save_bundle(self, number: int, file: IO[bytes], *, whole: bool = False) -> None:
        """Write a whole round into a file, for `ledger.audit.bundles`.

        Args:
            number: t.
            file: opened for writing; worth nothing if this raises.
            whole: whether all links are in it, so that a head alone suffices to check it.
        """
        path, query = f"{self.path}/rounds/{number}/bundle", {"whole": whole or None}
        self._connection.save(path, TAR, MAX_BUNDLE_BYTES, file, query)

    def _of_round(
        self, kind: type[R], number: int, part: str, query: dict[str, Asked] | None = None
    ) -> R:
        """Return an answer about one round.

        Raises:
            ServiceError: there is none, or one of another round.
        """
        told = self._connection.read(kind, f"{self.path}/rounds/{number}{part}", query)
        self._require("round", told.round, number)
        return told

    def _require(self, what: str, told: object, asked: object) -> None:
        """Refuse an answer about something else.

        Raises:
            ServiceError: it is one.
        """
        if told != asked:
            raise ServiceError(
                f"{self._connection.shown_url}: answers of {what} {told}, not of {what} {asked}"
            )
