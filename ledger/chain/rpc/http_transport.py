"""JSON-RPC over HTTP, bounded in time and size, with every failure named.

It is a web3 provider, so that web3's own interface runs over the same connection and limits. A
node's address is shown without user, password, path and query, since any of them may be a key.
"""

from __future__ import annotations

import ipaddress
import json
import threading
import time
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlsplit

import requests
from web3.providers.base import JSONBaseProvider

from ledger.chain.ports import ChainUnreachableError
from ledger.chain.rpc import wire
from ledger.protocol.errors import ChainError

if TYPE_CHECKING:
    from web3.types import RPCEndpoint, RPCResponse

_CHUNK_BYTES = 65_536


class AnswerTooLargeError(ChainError):
    """The node's answer is larger than we are willing to read."""


class HttpTransport(JSONBaseProvider):
    """A connection to one node; safe to share between threads.

    Args:
        url: http or https.
        timeout_seconds: for one request, from connecting to the last byte.
        most_bytes: how large one answer may be.
    """

    def __init__(self, url: str, timeout_seconds: float, most_bytes: int) -> None:
        super().__init__()
        self.shown_url = _without_secrets(url)
        self._url = url
        self._timeout_seconds = timeout_seconds
        self._most_bytes = most_bytes
        self._local = threading.local()
        self._sessions: list[requests.Session] = []
        self._trust_environment = not _is_loopback(url)

    def ask(self, method: str, *parameters: object) -> Any:
        """Return the result of one request.

        Args:
            method: its name.
            parameters: values that JSON knows.

        Raises:
            RpcFault: the node answered with an error.
        """
        answer: Any = self.make_request(cast("RPCEndpoint", method), list(parameters))
        if "error" in answer:
            error = answer["error"]
            detail = error if isinstance(error, dict) else {"message": error}
            code = detail.get("code")
            raise wire.RpcFault(
                code if isinstance(code, int) else wire.SERVER_ERROR,
                f"{self.shown_url}: {method}: {str(detail.get('message'))[:200]}",
                detail.get("data"),
            )
        return answer["result"]

    def make_request(self, method: RPCEndpoint, params: Any) -> RPCResponse:
        """Return the answer to one request, with `result` or with `error`.

        Args:
            method: its name.
            params: its parameters, in any form that web3 can turn into JSON.

        Raises:
            MalformedAnswerError: it is no JSON-RPC answer.
        """
        body = self._post(self.encode_rpc_request(method, params))
        try:
            answer = json.loads(body)
        except (ValueError, RecursionError) as error:
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
        deadline = time.monotonic() + self._timeout_seconds
        try:
            with self._session().post(
                self._url,
                data=body,
                headers={"Content-Type": "application/json"},
                timeout=self._timeout_seconds,
                stream=True,
                allow_redirects=False,
            ) as response:
                content = self._read(response, deadline)
                status = response.status_code
        except (requests.RequestException, ValueError, OSError) as error:
            # `from None`: the library's own text repeats the whole address, keys included.
            raise ChainUnreachableError(
                f"{self.shown_url}: unreachable ({type(error).__name__})"
            ) from None
        # Some nodes send their JSON errors with a status of 4xx or 5xx.
        if status != requests.codes.ok and not content.lstrip().startswith(b"{"):
            raise ChainUnreachableError(f"{self.shown_url}: answers with HTTP status {status}")
        return content

    def _read(self, response: requests.Response, deadline: float) -> bytes:
        content = bytearray()
        for chunk in response.iter_content(_CHUNK_BYTES):
            content += chunk
            if len(content) > self._most_bytes:
                raise AnswerTooLargeError(
                    f"{self.shown_url}: an answer of over {self._most_bytes} bytes"
                )
            if time.monotonic() > deadline:
                raise ChainUnreachableError(
                    f"{self.shown_url}: no whole answer in {self._timeout_seconds:g} s"
                )
        return bytes(content)

    def _session(self) -> requests.Session:
        session: requests.Session | None = getattr(self._local, "session", None)
        if session is None:
            session = self._local.session = requests.Session()
            session.trust_env = self._trust_environment
            self._sessions.append(session)
        return session

    def is_connected(self, show_traceback: bool = False) -> bool:  # noqa: ARG002 - web3's
        """Return whether the node answers.

        Args:
            show_traceback: without effect.
        """
        try:
            self.ask("eth_chainId")
        except ChainError:
            return False
        return True

    def close(self) -> None:
        """Close the connections."""
        while self._sessions:
            self._sessions.pop().close()


def _without_secrets(url: str) -> str:
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise ChainError("the node's address is not a URL") from error
    if parts.scheme not in {"http", "https"} or not host:
        raise ChainError("the node's address is not an http or https URL")
    shown = f"[{host}]" if ":" in host else host
    return f"{parts.scheme}://{shown}" + (f":{port}" if port else "")


def _is_loopback(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
