"""One service behind one URL: questions out, schemas in, every failure named."""

from __future__ import annotations

from functools import cache
from http import HTTPStatus
from typing import IO, TYPE_CHECKING, Any, TypeAlias, TypeVar, cast
from urllib.parse import urlencode

from pydantic import TypeAdapter, ValidationError

from api.schemas.problems import MAX_SHOWN, MEDIA_TYPE, Problem
from ledger.io.http import HttpFailureError, HttpResponse, HttpServer
from ledger.protocol.errors import ServiceError

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping

    from pydantic import BaseModel

JSON = "application/json"
MAX_ANSWER_BYTES = 64 << 20
TIMEOUT_SECONDS = 60.0

T = TypeVar("T")

Parameters: TypeAlias = "Mapping[str, str | int | bool | None]"
"""Of a query; those that are None are left out."""


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

    def read(self, kind: type[T], path: str, query: Parameters | None = None) -> T:
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

    def begin(self, kind: type[T], path: str, request: BaseModel) -> T:
        """Ask for work that goes on after the answer (202).

        Args:
            kind: the schema that the answer must have.
            path: below the URL.
            request: what is sent, as JSON.

        Raises:
            ServiceProblemError: the service refuses, and says why.
            ServiceError: it does not answer, or with something else.
        """
        body = request.model_dump_json().encode()
        try:
            answer = self._server.post_json_to(path, body, MAX_ANSWER_BYTES)
        except HttpFailureError as error:
            raise ServiceError(str(error)) from None
        self._require(path, answer, JSON, HTTPStatus.ACCEPTED)
        return self._parsed(kind, path, answer.body)

    def end(self, kind: type[T], path: str) -> T:
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

    def _parsed(self, kind: type[T], path: str, body: bytes) -> T:
        """Return an answer's bytes as what they must be.

        Raises:
            ServiceError: they are something else.
        """
        try:
            # What this version knows nothing of is refused, not left out unnoticed.
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
        query: Parameters | None = None,
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


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def _encoded(query: Parameters | None) -> str:
    """Return a query as a URL has it."""
    given = {name: value for name, value in (query or {}).items() if value is not None}
    plain = {n: str(v).lower() if isinstance(v, bool) else str(v) for n, v in given.items()}
    return f"?{urlencode(plain)}" if plain else ""
