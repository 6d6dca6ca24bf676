"""A connection to one service, with validated responses and named failures."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from functools import cache
from http import HTTPStatus
from typing import IO, Any, TypeAlias, TypeVar, cast
from urllib.parse import urlencode

from pydantic import TypeAdapter, ValidationError

from api.schemas.service import MAX_SHOWN, MEDIA_TYPE, Problem
from ledger.io.http import HttpFailureError, HttpResponse, HttpServer
from ledger.protocol.errors import ServiceError

JSON = "application/json"
MAX_ANSWER_BYTES = 64 << 20
TIMEOUT_SECONDS = 60.0

T = TypeVar("T")

Parameters: TypeAlias = "Mapping[str, str | int | bool | None]"
"""Of a query; those that are None are left out."""


class ServiceProblemError(ServiceError):
    """A service rejects a request with a problem (RFC 9457).

    Attributes:
        type: of the problem, as a URN; `about:blank` where only HTTP has a name for it.
    """

    def __init__(self, shown_url: str, status: int, problem: Problem) -> None:
        self.status, self.type = status, problem.type
        title, detail = problem.title[:MAX_SHOWN], problem.detail[:MAX_SHOWN]
        super().__init__(f"{shown_url}: {status} {title}: {detail}")


class Connection:
    """A service; safe to share between threads.

    Args:
        url: http or https, without `/v1`.
        token: bearer token; None for none.
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

    def read(self, kind: type[T], path: str, query: Parameters | None = None) -> T:
        """Return the response of a type at a path below the URL."""
        return self._parsed(kind, path, self.fetch(path, JSON, MAX_ANSWER_BYTES, query))

    def _parsed(self, kind: type[T], path: str, body: bytes) -> T:
        """Return an answer's bytes as a response (ServiceError: they are invalid)."""
        try:
            # Unknown fields are rejected, not dropped unnoticed.
            answer: T = _adapter(cast("Hashable", kind)).validate_json(body, strict=True)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            place = ".".join(map(str, first["loc"]))[:MAX_SHOWN]
            raise ServiceError(
                f"{self.shown_url}{path}: answers with what is no {kind.__name__}: "
                f"{place}: {first['msg'][:MAX_SHOWN]}"
            ) from None
        return answer

    def fetch(
        self, path: str, media_type: str, max_bytes: int, query: Parameters | None = None
    ) -> bytes:
        """Return the bytes of an answer of at most `max_bytes`, at a path below the URL."""
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
        query: Parameters | None = None,
    ) -> None:
        """Write the bytes of an answer into an open file, piece by piece; see `fetch`.

        The file is incomplete if this raises.
        """
        try:
            answer = self._server.save(path + _encoded(query), max_bytes, file)
        except HttpFailureError as error:
            raise ServiceError(str(error)) from None
        self._require(path, answer, media_type)

    def close(self) -> None:
        self._server.close()

    def _require(self, path: str, answer: HttpResponse, media_type: str) -> None:
        """Reject an answer without success or of another media type."""
        if answer.status != HTTPStatus.OK:
            self._raise_problem(path, answer)
        if answer.media_type != media_type:
            raise ServiceError(
                f"{self.shown_url}{path}: answers with {answer.media_type!r}, not {media_type}"
            )

    def _raise_problem(self, path: str, answer: HttpResponse) -> None:
        """Raise the error for an answer without success."""
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


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def _encoded(query: Parameters | None) -> str:
    """Return a query string with `?`, or nothing."""
    values = {name: value for name, value in (query or {}).items() if value is not None}
    plain = {n: str(v).lower() if isinstance(v, bool) else str(v) for n, v in values.items()}
    return f"?{urlencode(plain)}" if plain else ""
