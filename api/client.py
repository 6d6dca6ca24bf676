"""A typed client of the service; an audit or a proof checks whether its answers are true.

It needs httpx and pydantic, and no server. It validates the service's answers by the types in
`ledger/history`, by which the service declares them. Answers are bounded in size and in time;
links are made here, not followed, and redirects are refused.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sized
from contextlib import suppress
from functools import cache
from http import HTTPStatus
from typing import IO, Any, Self, TypeAlias, TypeVar, cast
from urllib.parse import urlencode

from pydantic import TypeAdapter, ValidationError

from api.schemas import (
    MAX_SHOWN,
    MEDIA_TYPE,
    ChainsAnswer,
    DeploymentAnswer,
    DeploymentsAnswer,
    FederationAnswer,
    Problem,
    StatusAnswer,
)
from ledger.history.answers_clients import (
    ClientAnswer,
    ClientRoundsAnswer,
    ClientsAnswer,
    DigestAnswer,
)
from ledger.history.answers_rounds import (
    ExplanationAnswer,
    FullRound,
    RoundAnswer,
    RoundsAnswer,
    SeriesAnswer,
)
from ledger.history.answers_signed import EvidenceAnswer
from ledger.history.fields import CHAIN_NAME, RoundQuery
from ledger.history.training import TrainingAnswer, joined
from ledger.io.http import HttpFailureError, HttpResponse, HttpServer
from ledger.protocol.encoding import eip55
from ledger.protocol.errors import ServiceError
from ledger.protocol.types import Digest

MAX_ANSWER_BYTES = 64 << 20
MAX_PROOF_BYTES = 64 << 20
MAX_BUNDLE_BYTES = 16 << 30
"""More than the largest round whose parts are all allowed; its parts have bounds of their own."""

MAX_COVERAGE_PAGES = 1_000  # answers about the coverage of a run, each of thousands of updates
MAX_COVERED_UPDATES = 2_000_000
MAX_PAGE = 100  # entries of one page; a list with a greater limit is read in several pages
TIMEOUT_SECONDS = 60.0
JSON = "application/json"

T = TypeVar("T")

Parameters: TypeAlias = "Mapping[str, str | int | bool | None]"
"""Of a query; those that are None are left out."""


class ServiceProblemError(ServiceError):
    """A service rejects a request with a problem (RFC 9457), whose type is a URN."""

    def __init__(self, where: str, status: int, problem: Problem) -> None:
        self.status, self.type = status, problem.type
        title, detail = problem.title[:MAX_SHOWN], problem.detail[:MAX_SHOWN]
        super().__init__(f"{where}: {status} {title}: {detail}")


class Service:
    """A service behind a URL, without `/v1`; a context that threads may share."""

    def __init__(
        self, url: str, token: str | None = None, timeout_seconds: float = TIMEOUT_SECONDS
    ) -> None:
        if "?" in url or "#" in url:
            raise ServiceError("the service's URL must not have a query or a fragment")
        try:
            self._server = HttpServer(url, timeout_seconds, token)
        except ValueError as error:
            raise ServiceError(f"the service's URL: {error}") from None
        self.shown_url = self._server.shown_url

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._server.close()

    def status(self) -> StatusAnswer:
        return self.read(StatusAnswer, "/v1/status")

    def chains(self) -> ChainsAnswer:
        answer = self.read(ChainsAnswer, "/v1/chains")
        for chain in answer["chains"]:
            _path_of(chain["name"])  # rejects a name that must not get into a path
        return answer

    def deployments(self, chain: str) -> DeploymentsAnswer:
        return self.read(DeploymentsAnswer, f"{_path_of(chain)}/deployments")

    def deployment(self, chain: str, address: str) -> RemoteDeployment:
        """Return one deployment, without a request, by its chain's name and its address."""
        return RemoteDeployment(self, _path_of(chain), eip55(address))

    def read(self, kind: type[T], path: str, query: Parameters | None = None) -> T:
        body = self.fetch(path, JSON, MAX_ANSWER_BYTES, query)
        try:
            # Unknown fields are rejected, not dropped unnoticed.
            answer: T = _adapter(cast("Hashable", kind)).validate_json(body, strict=True)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            place = ".".join(map(str, first["loc"]))[:MAX_SHOWN]
            raise ServiceError(
                f"{self.shown_url}{path}: expected a {kind.__name__} in the response, but "
                f"{place} is invalid ({first['msg'][:MAX_SHOWN]})"
            ) from None
        if "as_of" in kind.__annotations__ and "as_of" not in cast("Mapping[str, object]", answer):
            raise ServiceError(f"{self.shown_url}{path}: the response does not name its block")
        return answer

    def fetch(
        self,
        path: str,
        media_type: str,
        max_bytes: int,
        query: Parameters | None = None,
        file: IO[bytes] | None = None,
    ) -> bytes:
        """Return an answer's bytes, or write them to a file, which is incomplete if this raises."""
        values = {name: value for name, value in (query or {}).items() if value is not None}
        plain = {n: str(v).lower() if isinstance(v, bool) else str(v) for n, v in values.items()}
        asked, where = f"{path}?{urlencode(plain)}" if plain else path, f"{self.shown_url}{path}"
        try:
            if file is None:
                answer = self._server.get(asked, max_bytes)
            else:
                answer = self._server.save(asked, max_bytes, file)
        except HttpFailureError as error:
            raise ServiceError(str(error)) from None
        if answer.status != HTTPStatus.OK:
            raise _refusal(where, answer)
        if answer.media_type != media_type:
            raise ServiceError(f"{where}: returned {answer.media_type!r}, not {media_type}")
        return answer.body


def _refusal(where: str, answer: HttpResponse) -> ServiceError:
    if answer.media_type == MEDIA_TYPE:
        with suppress(ValidationError):
            problem = Problem.model_validate_json(answer.body, extra="ignore")
            return ServiceProblemError(where, answer.status, problem)
    is_elsewhere = HTTPStatus.MULTIPLE_CHOICES <= answer.status < HTTPStatus.BAD_REQUEST
    onward = ": redirects are not followed" if is_elsewhere else ""
    return ServiceError(f"{where}: answers with HTTP status {answer.status}{onward}")


_adapter = cache(TypeAdapter[Any])


def _path_of(chain: str) -> str:
    if CHAIN_NAME.fullmatch(chain) is None:
        raise ServiceError(f"{chain!r:.120} is not a chain name (chain id and 8 hex digits)")
    return f"/v1/chains/{chain}"


ALL_ROUNDS = RoundQuery()


def _query_of(query: RoundQuery) -> dict[str, str | int | None]:
    rounds = {"order": query.order, "from": query.rounds.first, "to": query.rounds.last}
    return {**rounds, "client": query.client, "kind": query.kind}


class RemoteDeployment:
    """The history of one deployment, read from a service; `LocalHistory` gives the same answers.

    Every method raises ServiceError where the service does not answer as it should. Lists are read
    in as many pages as the limit needs, from a `next_cursor` or from the beginning.
    """

    def __init__(self, service: Service, chain: str, address: str) -> None:
        self._service = service
        self.address = address
        self.path = f"{chain}/deployments/{address}"

    def read(self, kind: type[T], part: str, query: Parameters | None = None) -> T:
        return self._service.read(kind, f"{self.path}/{part}".rstrip("/"), query)

    def details(self) -> DeploymentAnswer:
        return self.read(DeploymentAnswer, "")

    def rounds(
        self,
        query: RoundQuery = ALL_ROUNDS,
        limit: int = 20,
        cursor: str | None = None,
        *,
        full: bool = False,
    ) -> RoundsAnswer:
        parameters = {
            "status": query.status,
            "role": None if query.client is None else query.role,
            "view_min": query.view_min or None,
            "since_block": query.blocks.first,
            "until_block": query.blocks.last,
            "since": query.times.first,
            "until": query.times.last,
            "full": full or None,
            **_query_of(query),
        }
        return self._list(RoundsAnswer, "rounds", "rounds", limit, cursor, parameters)

    def full_round(self, number: int) -> FullRound:
        answer = self.read(RoundAnswer, f"rounds/{number}", {"full": True})
        self._require("round", answer["round"], number)
        if answer["parts"] is None:
            raise ServiceError(f"{self._service.shown_url}: returned a round without parts")
        return cast("FullRound", answer)

    def explanation(self, number: int) -> ExplanationAnswer:
        answer = self.read(ExplanationAnswer, f"rounds/{number}/explanation")
        self._require("round", answer["round"], number)
        return answer

    def clients(self, limit: int = 20, cursor: str | None = None) -> ClientsAnswer:
        return self._list(ClientsAnswer, "clients", "clients", limit, cursor)

    def client(self, client: int) -> ClientAnswer:
        answer = self.read(ClientAnswer, f"clients/{client}")
        self._require("client", answer["client"]["client"], client)
        return answer

    def client_rounds(
        self,
        client: int,
        query: RoundQuery = ALL_ROUNDS,
        limit: int = 20,
        cursor: str | None = None,
    ) -> ClientRoundsAnswer:
        part = f"clients/{client}/rounds"
        return self._list(ClientRoundsAnswer, part, "rounds", limit, cursor, _query_of(query))

    def evidence(
        self, query: RoundQuery = ALL_ROUNDS, limit: int = 20, cursor: str | None = None
    ) -> EvidenceAnswer:
        return self._list(EvidenceAnswer, "evidence", "evidence", limit, cursor, _query_of(query))

    def digest(self, digest: Digest, limit: int = 20, cursor: str | None = None) -> DigestAnswer:
        answer = self._list(DigestAnswer, f"digests/{digest.hex()}", "items", limit, cursor)
        self._require("digest", answer["digest"], f"0x{digest.hex()}")
        return answer

    def federation(self) -> FederationAnswer:
        return self.read(FederationAnswer, "federation")

    def series(self) -> SeriesAnswer:
        answer = self.read(SeriesAnswer, "series")
        columns: list[Sized] = [answer["status"], answer["ranked"], answer["accepted"]]
        columns += [answer["views"], answer["committee"]]
        claimed = answer["claimed"]
        if claimed is not None:
            columns += [claimed["accuracy"], claimed["floor"], claimed["malicious_accepted"]]
        if {len(column) for column in columns} != {len(answer["round"])}:
            raise ServiceError(f"{self._service.shown_url}: returned columns of unequal length")
        return answer

    def training(self, first: int | None = None, last: int | None = None) -> TrainingAnswer:
        """Return which updates auditors have repeated, of some ended rounds or of all."""
        pages: list[TrainingAnswer] = []
        start = first
        for _ in range(MAX_COVERAGE_PAGES):
            page = self.read(TrainingAnswer, "training", {"from": start, "to": last})
            follows = start is None or page["first"] == start
            if not follows or (page["next_from"] not in {None, page["last"] + 1}):
                raise ServiceError(
                    f"{self._service.shown_url}: returned the coverage of other rounds"
                )
            pages.append(page)
            if page["next_from"] is None:
                return joined(pages)
            is_endless = sum(len(each["updates"]) for each in pages) > MAX_COVERED_UPDATES
            if page["last"] < page["first"] or is_endless:
                break
            # Without bounds the first answer has the number of rounds: later ones may end.
            start, last = page["next_from"], page["ended"] if last is None else last
        raise ServiceError(f"{self._service.shown_url}: returned coverage without an end")

    def proof(self, number: int, client: int, *, whole: bool = False) -> bytes:
        """Return the proof of a client's part in a round; a head suffices to check a whole one."""
        path = f"{self.path}/rounds/{number}/proof/{client}"
        return self._service.fetch(path, JSON, MAX_PROOF_BYTES, {"whole": whole or None})

    def save_bundle(self, number: int, file: IO[bytes], *, whole: bool = False) -> None:
        """Write a round into a file, for `ledger.audit.proofs`; see `proof` for whole ones."""
        path, query = f"{self.path}/rounds/{number}/bundle", {"whole": whole or None}
        self._service.fetch(path, "application/x-tar", MAX_BUNDLE_BYTES, query, file)

    def _list(
        self,
        kind: type[T],
        part: str,
        entries: str,
        limit: int,
        cursor: str | None,
        query: Parameters | None = None,
    ) -> T:
        """Return as many pages of a list as the limit needs, joined as one."""
        joined: dict[str, Any] = {}
        # No more pages are read than full ones would be, with any cursors.
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
        if received != requested:
            raise ServiceError(
                f"{self._service.shown_url}: expected a response about {subject} {requested}, "
                f"got {subject} {received}"
            )
