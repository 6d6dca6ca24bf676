"""One deployment of a remote service; proofs and bundles are for the caller to check."""

from __future__ import annotations

from collections.abc import Sized
from typing import IO, Any, TypeVar, cast

from api.client.connection import JSON, Connection, Parameters
from api.schemas.federation import FederationAnswer
from ledger.history.answers import (
    ClientAnswer,
    ClientRoundsAnswer,
    ClientsAnswer,
    DeploymentAnswer,
    DigestAnswer,
    EvidenceAnswer,
    SeriesAnswer,
    TrainingAnswer,
    TrainingCoverage,
)
from ledger.history.answers_rounds import ExplanationAnswer, FullRoundAnswer, RoundsAnswer
from ledger.history.queries import Order, RoundQuery
from ledger.history.training import joined
from ledger.protocol.errors import ServiceError
from ledger.protocol.types import Digest

MAX_PROOF_BYTES = 64 << 20
MAX_BUNDLE_BYTES = 16 << 30
"""More than the largest round whose parts are all allowed; its parts have bounds of their own."""
TAR = "application/x-tar"
MAX_COVERAGE_PAGES = 1_000
"""Answers about the coverage of a run, each of thousands of updates."""

MAX_COVERED_UPDATES = 2_000_000

MAX_PAGE = 100
"""Entries of one page; a list with a greater limit is read in several pages."""

T = TypeVar("T")

ALL_ROUNDS = RoundQuery()


class RemoteDeployment:
    """The history of one deployment, read from a service; `LocalHistory` gives the same answers.

    Every method raises ServiceError where the service does not answer as it should.

    Attributes:
        address: of its contract, EIP-55.
        path: of the deployment, below the service's URL.
    """

    def __init__(self, connection: Connection, chain: str, address: str) -> None:
        self._connection = connection
        self.address = address
        self.path = f"{chain}/deployments/{address}"

    def read(self, kind: type[T], part: str, query: Parameters | None = None) -> T:
        """Return any response below the deployment's path.

        Args:
            query: parameters; those that are None are left out.
        """
        return self._connection.read(kind, f"{self.path}/{part}".rstrip("/"), query)

    def details(self) -> DeploymentAnswer:
        """Return the fixed parameters of the deployment, and its current state."""
        return self.read(DeploymentAnswer, "")

    def rounds(
        self,
        query: RoundQuery = ALL_ROUNDS,
        limit: int = 20,
        cursor: str | None = None,
        *,
        full: bool = False,
    ) -> RoundsAnswer:
        """Return a page of rounds.

        Args:
            limit: how many at most.
            cursor: `next_cursor` of the page before; None for the first.
        """
        parameters = {
            "status": query.status,
            "client": query.client,
            "role": None if query.client is None else query.role,
            "view_min": query.view_min or None,
            "since_block": query.blocks.first,
            "until_block": query.blocks.last,
            "since": query.times.first,
            "until": query.times.last,
            "order": query.order,
            "full": full or None,
        }
        return self._list(RoundsAnswer, "rounds", "rounds", limit, cursor, parameters)

    def full_round(self, number: int) -> FullRoundAnswer:
        """Return one round with all its parts but the score vectors."""
        answer = self.read(FullRoundAnswer, f"rounds/{number}", {"full": True})
        self._require("round", answer["round"], number)
        return answer

    def explanation(self, number: int) -> ExplanationAnswer:
        """Return one round in plain words."""
        answer = self.read(ExplanationAnswer, f"rounds/{number}/explanation")
        self._require("round", answer["round"], number)
        return answer

    def clients(self, limit: int = 20, cursor: str | None = None) -> ClientsAnswer:
        """Return a page of clients, ascending."""
        return self._list(ClientsAnswer, "clients", "clients", limit, cursor)

    def client(self, client: int) -> ClientAnswer:
        """Return one client."""
        answer = self.read(ClientAnswer, f"clients/{client}")
        self._require("client", answer["client"]["client"], client)
        return answer

    def client_rounds(
        self, client: int, order: Order = Order.NEWEST, limit: int = 20, cursor: str | None = None
    ) -> ClientRoundsAnswer:
        """Return a page of the rounds that a client took part in."""
        part = f"clients/{client}/rounds"
        return self._list(ClientRoundsAnswer, part, "rounds", limit, cursor, {"order": order})

    def evidence(
        self, order: Order = Order.NEWEST, limit: int = 20, cursor: str | None = None
    ) -> EvidenceAnswer:
        """Return the evidence against clients in a page of rounds; `limit` counts rounds."""
        return self._list(EvidenceAnswer, "evidence", "evidence", limit, cursor, {"order": order})

    def digest(self, digest: Digest, limit: int = 20, cursor: str | None = None) -> DigestAnswer:
        """Return a page of the places of a digest, the deployment's first."""
        answer = self._list(DigestAnswer, f"digests/{digest.hex()}", "items", limit, cursor)
        self._require("digest", answer["digest"], f"0x{digest.hex()}")
        return answer

    def federation(self) -> FederationAnswer:
        """Return the status of the open round: the actions of each client, and the late ones."""
        return self.read(FederationAnswer, "federation")

    def series(self) -> SeriesAnswer:
        """Return the run over its rounds, as columns of equal length."""
        answer = self.read(SeriesAnswer, "series")
        columns: list[Sized] = [answer["status"], answer["ranked"], answer["accepted"]]
        columns += [answer["views"], answer["committee"]]
        claimed = answer["claimed"]
        if claimed is not None:
            columns += [claimed["accuracy"], claimed["floor"], claimed["malicious_accepted"]]
        if {len(column) for column in columns} != {len(answer["round"])}:
            raise ServiceError(f"{self._connection.shown_url}: a series of unequal columns")
        return answer

    def training(self, first: int | None = None, last: int | None = None) -> TrainingCoverage:
        """Return which updates auditors have repeated, of some ended rounds or of all."""
        pages: list[TrainingCoverage] = []
        start = first
        for _ in range(MAX_COVERAGE_PAGES):
            page = self.read(TrainingAnswer, "training", {"from": start, "to": last})
            follows = start is None or page["first"] == start
            if not follows or (page["next_from"] not in {None, page["last"] + 1}):
                raise ServiceError(f"{self._connection.shown_url}: coverage of other rounds")
            pages.append(page)
            if page["next_from"] is None:
                return joined(pages)
            is_endless = sum(len(each["updates"]) for each in pages) > MAX_COVERED_UPDATES
            if page["last"] < page["first"] or is_endless:
                break
            # Without bounds the first answer says how many rounds there are: later ones may end.
            start, last = page["next_from"], page["ended"] if last is None else last
        raise ServiceError(f"{self._connection.shown_url}: coverage without end")

    def proof(self, number: int, client: int, *, whole: bool = False) -> bytes:
        """Return the proof of a client's part in a round, for `ledger.audit.proofs`.

        A whole one has all links, so that a head alone suffices to check it.
        """
        path = f"{self.path}/rounds/{number}/proof/{client}"
        return self._connection.fetch(path, JSON, MAX_PROOF_BYTES, {"whole": whole or None})

    def save_bundle(self, number: int, file: IO[bytes], *, whole: bool = False) -> None:
        """Write a round into a file, for `ledger.audit.proofs`; see `proof` for whole ones."""
        path, query = f"{self.path}/rounds/{number}/bundle", {"whole": whole or None}
        self._connection.save(path, TAR, MAX_BUNDLE_BYTES, file, query)

    def _list(
        self,
        kind: type[T],
        part: str,
        entries: str,
        limit: int,
        cursor: str | None,
        query: Parameters | None = None,
    ) -> T:
        """Return as many pages of a list as the limit needs, joined as one.

        Args:
            limit: entries at most.
            cursor: where the list begins; None for its beginning.
        """
        joined: dict[str, Any] = {}
        # Whatever cursors a service sends, no more pages are read than full ones would be.
        for start in range(0, limit, MAX_PAGE):
            paging = {"limit": min(MAX_PAGE, limit - start), "cursor": cursor}
            page = cast("dict[str, Any]", self.read(kind, part, {**(query or {}), **paging}))
            if joined:
                page[entries] = joined[entries] + page[entries]
                if "scanned" in page:
                    page["scanned"] += joined["scanned"]
            joined, cursor = page, page["next_cursor"]
            if cursor is None:
                break
        return cast("T", joined)

    def _require(self, subject: str, received: object, requested: object) -> None:
        """Reject an answer about something else."""
        if received != requested:
            raise ServiceError(
                f"{self._connection.shown_url}: answers of {subject} {received}, not of {subject} "
                f"{requested}"
            )
