"""One service behind one URL: questions out, schemas in, every failure named."""

from __future__ import annotations

from http import HTTPStatus
from typing import IO, TYPE_CHECKING, TypeAlias, TypeVar
from urllib.parse import urlencode

from pydantic import ValidationError

from api.schemas.problems import MAX_SHOWN, MEDIA_TYPE, Problem
from api.schemas.words import Schema
from ledger.io.http import HttpFailureError, HttpResponse, HttpServer
from ledger.protocol.errors import ServiceError

if TYPE_CHECKING:
    from collections.abc import Mapping

JSON = "application/json"
MAX_ANSWER_BYTES = 64 << 20
TIMEOUT_SECONDS = 60.0

S = TypeVar("S", bound=Schema)

Asked: TypeAlias = str | int | bool | None
"""A parameter of a query."""


class ServiceProblemError(ServiceError):
    """A service refuses a request, and says why (RFC 9457).

    Attributes:
        status: HTTP's.
        type: which problem, as a URN; `about:blank` where only HTTP has a name for it.
    """

    def __init__(self, shown_url: str, status: int, problem: Problem) -> None:
        self.status, self.type = status, problem.type
        title, detail = problem.title[:MAX_SHOWN], problem.detail[:MAX_SHOWN]
        super().__init__(f"{shown_url}: {status} {title}: {detail}")


class Connection:
    """A service; safe to share between threads.

    Args:
        url: http or https, up to where `/v1` begins.
        token: that the service wants to see; None for none.
        timeout_seconds: for one answer, from connecting to the last byte.

    Attributes:
        shown_url: the service's address without what may be a key.

    Raises:
        ServiceError: the URL or the token is none.
    """

    def __init__(
        self, url: str, token: str | None = None, timeout_seconds: float = TIMEOUT_SECONDS
    ) -> None:
        if "?" in url or "#" in url:
            raise ServiceError("the service's URL: it has a query or a fragment")
        try:
            self._server = HttpServer(url, timeout_seconds, token)
        except ValueError as error:
            raise ServiceError(f"the service's URL: {error}") from None
        self.shown_url = self._server.shown_url

    def read(self, kind: type[S], path: str, query: Mapping[str, Asked] | None = None) -> S:
        """Return an answer in JSON.

        Args:
            kind: the schema that it must have.
            path: below the URL.
            query: parameters; those that are None are left out.

        Raises:
            ServiceProblemError: the service refuses, and says why.
            ServiceError: it does not answer, or with something else.
        """
        return self._parsed(kind, path, self.fetch(path, JSON, MAX_ANSWER_BYTES, query))

    def begin(self, kind: type[S], path: str, asked: Schema) -> S:
        """Ask for work that goes on after the answer (202).

        Args:
            kind: the schema that the answer must have.
            path: below the URL.
            asked: what is sent, as JSON.

        Raises:
            ServiceProblemError: the service refuses, and says why.
            ServiceError: it does not answer, or with something else.
        """
        body = asked.model_dump_json().encode()
        try:
            answer = self._server.post_json_to(path, body, MAX_ANSWER_BYTES)
        except HttpFailureError as error:
            raise ServiceError(str(error)) from None
        self._require(path, answer, JSON, HTTPStatus.ACCEPTED)
        return self._parsed(kind, path, answer.body)

    def end(self, kind: type[S], path: str) -> S:
        """Ask for the end of work that was begun (202).

        Args:
            kind: the schema that the answer must have.
            path: of the work, below the URL.

        Raises:
            ServiceProblemError: the service refuses, and says why.
            ServiceError: it does not answer, or with something else.
        """
        try:
            answer = self._server.delete(path, MAX_ANSWER_BYTES)
        except HttpFailureError as error:
            raise ServiceError(str(error)) from None
        self._require(path, answer, JSON, HTTPStatus.ACCEPTED)
        return self._parsed(kind, path, answer.body)

    def _parsed(self, kind: type[S], path: str, body: bytes) -> S:
        """Return an answer's bytes as what they must be.

        Raises:
            ServiceError: they are something else.
        """
        try:
            # What this version knows nothing of is refused, not left out unnoticed.
            return kind.model_validate_json(body, strict=True)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            place = ".".join(map(str, first["loc"]))[:MAX_SHOWN]
            raise ServiceError(
                f"{self.shown_url}{path}: answers with what is no {kind.__name__}: "
                f"{place}: {first['msg'][:MAX_SHOWN]}"
            ) from None

    def fetch(
        self, path: str, media_type: str, max_bytes: int, query: Mapping[str, Asked] | None = None
    ) -> bytes:
        """Return the bytes of an answer.

        Args:
            path: below the URL.
            media_type: that they must have.
            max_bytes: how many there may be.
            query: parameters; those that are None are left out.

        Raises:
            ServiceProblemError: the service refuses, and says why.
            ServiceError: it does not answer, or with something else.
        """
        try:
            answer = self._server.get(path + _encoded(query), max_bytes)
        except HttpFailureError as error:
            raise ServiceError(str(error)) from None
        self._require(path, answer, media_type)
        return answer.body

    def save(
        self,
        path: str,
        media_type: str,
        max_bytes: int,
        file: IO[bytes],
        query: Mapping[str, Asked] | None = None,
    ) -> None:
        """Write the bytes of an answer into a file, piece by piece.

        Args:
            path: below the URL.
            media_type: that they must have.
            max_bytes: how many there may be.
            file: opened for writing; worth nothing if this raises.
            query: parameters; those that are None are left out.

        Raises:
            ServiceProblemError: the service refuses, and says why.
            ServiceError: it does not answer, or with something else.
            OSError: the file cannot be written.
        """
        try:
            answer = self._server.save(path + _encoded(query), max_bytes, file)
        except HttpFailureError as error:
            raise ServiceError(str(error)) from None
        self._require(path, answer, media_type)

    def close(self) -> None:
        """Close the connections."""
        self._server.close()

    def _require(
        self, path: str, answer: HttpResponse, media_type: str, status: HTTPStatus = HTTPStatus.OK
    ) -> None:
        """Refuse an answer that is none.

        Raises:
            ServiceProblemError: it says why there is none.
            ServiceError: it is of another status or media type.
        """
        if answer.status != status:
            self._raise_problem(path, answer)
        if answer.media_type != media_type:
            raise ServiceError(
                f"{self.shown_url}{path}: answers with {answer.media_type!r}, not {media_type}"
            )

    def _raise_problem(self, path: str, answer: HttpResponse) -> None:
        """Raise what an answer without success says.

        Raises:
            ServiceProblemError: it is a problem as RFC 9457 has it.
            ServiceError: it is not.
        """
        where = f"{self.shown_url}{path}"
        if answer.media_type == MEDIA_TYPE:
            try:
                problem = Problem.model_validate_json(answer.body, extra="ignore")
            except ValidationError:
                pass
            else:
                raise ServiceProblemError(where, answer.status, problem)
        is_elsewhere = HTTPStatus.MULTIPLE_CHOICES <= answer.status < HTTPStatus.BAD_REQUEST
        onward = ": redirects are not followed" if is_elsewhere else ""
        raise ServiceError(f"{where}: answers with HTTP status {answer.status}{onward}")


def _encoded(query: Mapping[str, Asked] | None) -> str:
    """Return a query as a URL has it."""
    given = {name: value for name, value in (query or {}).items() if value is not None}
    plain = {n: str(v).lower() if isinstance(v, bool) else str(v) for n, v in given.items()}
    return f"?{urlencode(plain)}" if plain else ""
