"""JSON-RPC over HTTP with limits on time and size, and typed failures.

It is a web3 provider, so web3's own interface uses the same connection and limits.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Any, cast

from web3.providers.base import JSONBaseProvider

from ledger.chain.ports import ChainUnreachableError, NotServedError
from ledger.chain.rpc import wire
from ledger.io.http import HttpFailureError, HttpServer, ResponseTooLargeError
from ledger.io.json import parse_json
from ledger.protocol.errors import ChainError

if TYPE_CHECKING:
    from web3.types import RPCEndpoint, RPCResponse


_SERVERS_FAULT = HTTPStatus.INTERNAL_SERVER_ERROR
_LONGEST_MESSAGE = 200


class AnswerTooLargeError(NotServedError):
    """The node's answer exceeds the size limit."""


class MomentaryFailureError(ChainUnreachableError):
    """No complete answer, or a server error: a retry may succeed.

    Attributes:
        retry_after_seconds: pause requested by the server; 0 for none.
    """

    def __init__(self, message: str, retry_after_seconds: int = 0) -> None:
        super().__init__(message)
        self.retry_after_seconds = retry_after_seconds


class HttpTransport(JSONBaseProvider):
    """A connection to one node; safe to share between threads.

    Attributes:
        shown_url: the node's address without parts that may be secret.
    """

    def __init__(self, url: str, timeout_seconds: float, max_bytes: int) -> None:
        super().__init__()
        try:
            self._server = HttpServer(url, timeout_seconds)
        except ValueError as error:
            raise ChainError(f"the node's URL: {error}") from None
        self.shown_url = self._server.shown_url
        self._most_bytes = max_bytes

    def ask(self, method: str, *parameters: object) -> Any:
        """Return the result of one request; raise RpcFault if the node answers with an error."""
        answer: Any = self.make_request(cast("RPCEndpoint", method), list(parameters))
        if "error" in answer:
            error = answer["error"]
            detail = error if isinstance(error, dict) else {"message": error}
            code = detail.get("code")
            raise wire.RpcFault(
                code if isinstance(code, int) else wire.SERVER_ERROR,
                str(detail.get("message"))[:_LONGEST_MESSAGE],
                detail.get("data"),
                by=f"{self.shown_url}: {method}: ",
            )
        return answer["result"]

    def make_request(self, method: RPCEndpoint, params: Any) -> RPCResponse:
        """Return the answer to one request, with `result` or with `error`."""
        body = self._post(self.encode_rpc_request(method, params))
        try:
            answer = parse_json(body)
        except ValueError as error:
            raise wire.MalformedAnswerError(
                f"{self.shown_url}: {method}: the answer is not JSON"
            ) from error
        if not isinstance(answer, dict) or not answer.keys() & {"result", "error"}:
            raise wire.MalformedAnswerError(
                f"{self.shown_url}: {method}: the answer has neither result nor error"
            )
        if answer.get("error") is None:
            answer.pop("error", None)
        if "error" not in answer and "result" not in answer:
            raise wire.MalformedAnswerError(f"{self.shown_url}: {method}: the answer is empty")
        return cast("RPCResponse", answer)

    def _post(self, body: bytes) -> bytes:
        try:
            answer = self._server.post_json(body, self._most_bytes)
        except ResponseTooLargeError as error:
            raise AnswerTooLargeError(str(error)) from None
        except HttpFailureError as error:
            raise MomentaryFailureError(str(error)) from None
        status = f"{self.shown_url}: answers with HTTP status {answer.status}"
        # Whatever the body: gateways and rate limiters answer in JSON too, and not for the chain.
        if answer.status == HTTPStatus.TOO_MANY_REQUESTS or answer.status >= _SERVERS_FAULT:
            raise MomentaryFailureError(
                f"{status}{_message_in(answer.body)}", answer.retry_after_seconds
            )
        # Some nodes send JSON errors with a 4xx status.
        if answer.status != HTTPStatus.OK and not answer.body.lstrip().startswith(b"{"):
            raise ChainUnreachableError(status)
        return answer.body

    def is_connected(self, show_traceback: bool = False) -> bool:  # noqa: ARG002 - web3's
        """Return whether the node answers; `show_traceback` has no effect."""
        try:
            self.ask("eth_chainId")
        except ChainError:
            return False
        return True

    def close(self) -> None:
        """Close the connections."""
        self._server.close()


def _message_in(body: bytes) -> str:
    """Return ": MESSAGE" of a JSON-RPC error; empty if there is none."""
    try:
        error = parse_json(body)["error"]
        message = error["message"] if isinstance(error, dict) else error
    except (ValueError, LookupError, TypeError):
        return ""
    return f": {message[:_LONGEST_MESSAGE]}" if isinstance(message, str) and message else ""
