"""HTTP to untrusted servers: one request, one response, bounded in time and size.

Time-outs of httpx apply to single waits. So requests run on an event loop, where one deadline
covers name resolution, proxy, TLS, sending, headers and the last byte: a server that drips a byte a
second blocks no caller. (The system's name resolution cannot be cancelled; if it hangs, the end of
the program waits for it.) Bytes are counted as they arrive, and compressed responses are refused.
Redirects are not followed, so that a token goes nowhere else, and cookies are dropped. Messages
show an address without user, password, path and query, since any of them may be a key.
"""

from __future__ import annotations

import asyncio
import functools
import ipaddress
import logging
import os
import re
import ssl
import threading
import weakref
from collections.abc import Callable, Collection
from concurrent.futures import Future
from dataclasses import dataclass
from http.cookiejar import CookieJar
from typing import IO, Any, cast
from urllib.parse import urlsplit

import httpx

from ledger.protocol.errors import CmflError

_HIGHEST_PORT = 65_535
_PRINTABLE = re.compile("[!-~]+")  # ASCII without blanks
_LONGEST = 100
# One per process: a forked child has its parent's, but not the thread that it runs on.
_LOOPS: dict[int, asyncio.AbstractEventLoop] = {}
_OPEN: set[httpx.AsyncClient] = set()
# It logs each request with the whole URL.
logging.getLogger("httpx").setLevel(logging.WARNING)


class HttpFailureError(CmflError):
    """No whole answer could be had; the message names the server."""


class ResponseTooLargeError(HttpFailureError):
    """The answer is larger than the caller is willing to read."""


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """A server's response."""

    status: int
    body: bytes
    media_type: str = ""  # in lower case and without parameters
    retry_after_seconds: int = 0  # pause that the server requests; 0 for none


class HttpServer:
    """A server behind one http or https URL; threads and forked processes may share it.

    User and password in the URL are sent as basic authentication, a token as bearer token. The
    environment's proxies are used for all but loopback. `silence_seconds` bounds each single wait;
    None leaves the deadline alone.
    """

    def __init__(
        self,
        url: str,
        timeout_seconds: float,
        token: str | None = None,
        silence_seconds: float | None = None,
    ) -> None:
        self._url = _parsed(url)
        self._authorization = _authorization(self._url, token)
        self.shown_url = f"{self._url.scheme}://{self._url.netloc.decode('ascii')}"
        self.base_url = _base_url(self._url)
        self._timeout_seconds, self._silence_seconds = timeout_seconds, silence_seconds
        self._clients = {os.getpid(): _new_client(self._url, silence_seconds)}
        # Not every reader is closed; what it leaves open goes with it.
        weakref.finalize(self, _close, self._clients).atexit = False

    def get(self, path: str, max_bytes: int) -> HttpResponse:
        """Send GET to a path below the URL; the path begins with a slash."""
        return self._ask("GET", path, max_bytes)

    def save(self, path: str, max_bytes: int, file: IO[bytes]) -> HttpResponse:
        """Write the body of a response with status 200 into a file; other bodies are returned."""
        return self._ask("GET", path, max_bytes, file)

    def head(self, path: str) -> HttpResponse:
        return self._ask("HEAD", path, 0)

    def put(self, path: str, body: bytes, headers: dict[str, str], max_bytes: int) -> HttpResponse:
        return self._ask("PUT", path, max_bytes, headers=headers, content=body)

    def post(self, path: str, body: bytes, headers: dict[str, str], max_bytes: int) -> HttpResponse:
        return self._ask("POST", path, max_bytes, headers=headers, content=body)

    def _ask(
        self, method: str, path: str, most: int, file: IO[bytes] | None = None, **parts: Any
    ) -> HttpResponse:
        own, mark, query = self._url.raw_path.partition(b"?")
        below = own.rstrip(b"/") + path.encode("ascii") if path else own
        request = httpx.Request(method, self._url.copy_with(raw_path=below + mark + query), **parts)
        request.headers.update({"Accept-Encoding": "identity", "User-Agent": "cmfl-ledger"})
        request.headers.update(self._authorization)
        given_up: Future[None] = Future()
        try:
            answer = self._answer(request, most, given_up, file)
            return asyncio.run_coroutine_threadsafe(answer, _loop()).result()
        except TimeoutError:
            fault = f"no whole answer in {self._timeout_seconds:g} s"
        except httpx.TimeoutException:
            fault = f"silent for {self._silence_seconds:g} s"
        except _NotWrittenError as error:
            raise error.args[0] from None
        except (httpx.HTTPError, httpx.InvalidURL, OSError, ValueError) as error:
            fault = f"unreachable ({type(error).__name__})"
        finally:
            # A caller that is interrupted, even before it waits, leaves no request behind.
            given_up.cancel()
        raise HttpFailureError(f"{self.shown_url}: {fault}")

    async def _answer(
        self, request: httpx.Request, most: int, given_up: Future[None], file: IO[bytes] | None
    ) -> HttpResponse:
        loop, task = asyncio.get_running_loop(), cast("asyncio.Task[Any]", asyncio.current_task())
        given_up.add_done_callback(lambda _: loop.call_soon_threadsafe(task.cancel))
        opened: list[Any] = []

        async def note(event: str, told: dict[str, Any]) -> None:
            if event == "connection.connect_tcp.complete":
                opened.append(told["return_value"])

        request.extensions["trace"] = note
        try:
            async with asyncio.timeout(self._timeout_seconds):
                response = await self._client().send(request, stream=True)
                try:
                    body = bytearray()
                    take: Callable[[bytes], object] = body.extend
                    if file is not None and response.status_code == httpx.codes.OK:
                        take = functools.partial(_write, file)
                    await self._read(response, most, take)
                    media_type, _, _ = response.headers.get("Content-Type", "").partition(";")
                    retry_after = response.headers.get("Retry-After", "")
                    is_number = re.fullmatch("[0-9]{1,10}", retry_after)  # a date counts as 0
                    return HttpResponse(
                        response.status_code,
                        bytes(body),
                        media_type.strip().lower()[:_LONGEST],
                        int(retry_after) if is_number else 0,
                    )
                finally:
                    await response.aclose()
        except BaseException:
            # Cancelled in a TLS handshake, httpcore 1.0 leaves the connection to the collector.
            for stream in opened:
                await stream.aclose()
            raise

    def _client(self) -> httpx.AsyncClient:
        client = self._clients.get(os.getpid())
        if client is None:
            client = self._clients[os.getpid()] = _new_client(self._url, self._silence_seconds)
        _OPEN.add(client)
        return client

    async def _read(
        self, response: httpx.Response, most: int, take: Callable[[bytes], object]
    ) -> None:
        encoding = response.headers.get("Content-Encoding", "identity")
        if encoding.lower() not in {"identity", ""}:
            raise HttpFailureError(f"{self.shown_url}: unsupported encoding {encoding[:20]!r}")
        left = most
        async for piece in response.aiter_raw():
            left -= len(piece)
            if left < 0:
                raise ResponseTooLargeError(f"{self.shown_url}: the response has over {most} bytes")
            take(piece)

    def close(self) -> None:
        closed = _close(self._clients)
        if closed is not None:
            closed.result()


class _NoCookies(CookieJar):
    """A jar that keeps no cookie: httpx would collect as many as a server sets."""

    def extract_cookies(self, response: object, request: object) -> None:
        """Ignore the cookies of a response."""


class _NotWrittenError(Exception):
    """The file is at fault, not the server; the argument is the error."""


def base_url(url: str) -> str:
    """Return a server's URL in the canonical form that both ends of a connection compare."""
    return _base_url(_parsed(url))


def _base_url(url: httpx.URL) -> str:
    path = url.raw_path.partition(b"?")[0].rstrip(b"/")
    return f"{url.scheme}://{url.netloc.decode('ascii')}{path.decode('ascii')}"


def _write(file: IO[bytes], piece: bytes) -> None:
    try:
        file.write(piece)
    except OSError as error:
        raise _NotWrittenError(error) from error


def _authorization(url: httpx.URL, token: str | None) -> dict[str, str]:
    if token is None:
        return {}
    # The token is not named: it is a key.
    if not _PRINTABLE.fullmatch(token):
        raise ValueError("the token must be printable ASCII without spaces")
    if url.userinfo:
        raise ValueError("the address has a user or password, besides the token; give one")
    return {"Authorization": f"Bearer {token}"}


def _parsed(url: str) -> httpx.URL:
    if not _PRINTABLE.fullmatch(url):
        raise ValueError("the address must be a URL of printable ASCII without spaces")
    try:
        parsed = httpx.URL(url)
        host = parsed.host
    except (httpx.InvalidURL, ValueError):
        raise ValueError("the address is not a URL") from None
    if parsed.scheme not in {"http", "https"} or not host:
        raise ValueError("the address must be an http or https URL")
    if parsed.port is not None and not 0 < parsed.port <= _HIGHEST_PORT:
        raise ValueError(f"the address has a port above {_HIGHEST_PORT}")
    return parsed


def _new_client(url: httpx.URL, silence_seconds: float | None) -> httpx.AsyncClient:
    try:
        return httpx.AsyncClient(
            cookies=_NoCookies(),
            limits=httpx.Limits(max_connections=None),
            timeout=silence_seconds,
            trust_env=not is_loopback(url.host),
            verify=_trusted(url.scheme),
        )
    except (ValueError, ImportError, httpx.InvalidURL) as error:
        raise ValueError(
            "one of the environment's http_proxy, https_proxy, all_proxy and no_proxy cannot "
            f"be used ({type(error).__name__}); a proxy must be an http URL"
        ) from None


@functools.cache
def _trusted(scheme: str) -> ssl.SSLContext:
    # Without a certificate, whose loading takes 20 ms, the other context trusts nobody.
    is_secure = scheme == "https"
    return ssl.create_default_context() if is_secure else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


def names_this_host(host: str, names: Collection[str] = ()) -> bool:
    """Return whether a `Host` header names an address, localhost, a given name, or nothing.

    A page of another site can let its name resolve to this machine (DNS rebinding) and then read
    the answers of a server here. Its requests show its name in this header.
    """
    try:
        name = (urlsplit(f"//{host}").hostname or "").removesuffix(".")
    except ValueError:
        return False
    if not name or name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return name in {allowed.lower().removesuffix(".") for allowed in names}
    return True


def is_loopback(host: str) -> bool:
    """Return whether a host is this machine, by its address or as localhost."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _close(clients: dict[int, httpx.AsyncClient]) -> Future[None] | None:
    client, loop = clients.pop(os.getpid(), None), _LOOPS.get(os.getpid())
    if client is None or loop is None:
        return None

    async def closing() -> None:
        await client.aclose()
        _OPEN.discard(client)

    return asyncio.run_coroutine_threadsafe(closing(), loop)


def _loop() -> asyncio.AbstractEventLoop:
    """Return this process's event loop, which runs on a thread until the process ends."""
    running = _LOOPS.get(os.getpid())
    if running is None:
        new = asyncio.new_event_loop()
        running = _LOOPS.setdefault(os.getpid(), new)
        if running is new:
            arguments = (new, _OPEN)
            threading.Thread(target=_run, args=arguments, name="bounded-http", daemon=True).start()
        else:
            new.close()
    return running


def _run(loop: asyncio.AbstractEventLoop, _: set[httpx.AsyncClient]) -> None:
    # A daemon's frame outlives the interpreter: at exit nothing waits for the loop, and what is
    # open is left to the system, not to the collector, which would warn of each connection.
    loop.run_forever()
