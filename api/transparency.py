"""The files of a log, and a witness, as ASGI apps (C2SP)."""

from __future__ import annotations

import asyncio
import logging
import re
from http import HTTPStatus
from pathlib import Path

from anyio import to_thread
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from api.http.answers import IMMUTABLE
from api.http.limits import HeadAsGet, SafeHeaders
from ledger.io.home import read_file
from ledger.transparency import witness
from ledger.transparency.network import WitnessFolder
from ledger.transparency.notes import NoteError, WitnessError
from ledger.transparency.tree import CHECKPOINT, MAX_FILE_BYTES

_TILE = re.compile(r"tile/(entries|[0-9]{1,2})/(x[0-9]{3}/){0,5}[0-9]{3}(\.p/[0-9]{1,3})?")
_CHANGES = {"Cache-Control": "no-cache", "Content-Type": witness.TEXT_TYPE}
_STAYS = {"Cache-Control": IMMUTABLE, "Content-Type": "application/octet-stream"}


def create_static_log(folder: Path) -> Starlette:
    """Return a log's files as an ASGI app: its checkpoint and tiles, and nothing else."""

    async def file(request: Request) -> Response:
        path = request.url.path.removeprefix("/")
        is_tile = _TILE.fullmatch(path) is not None
        if not is_tile and path != CHECKPOINT:
            return PlainTextResponse("there is nothing at this path\n", 404)
        try:
            data = await to_thread.run_sync(read_file, folder / path, MAX_FILE_BYTES)
        except (FileNotFoundError, NotADirectoryError):
            return PlainTextResponse("the log has no such file\n", 404)
        return Response(data, headers=_STAYS if is_tile else _CHANGES)

    return _app([Route("/{path:path}", file)])


def _app(routes: list[Route]) -> Starlette:
    async def fault(_: Request, error: Exception) -> Response:
        _log.error("%s", error)
        return _text(HTTPStatus.INTERNAL_SERVER_ERROR, "this is a fault of the server's folder")

    app = Starlette(
        routes=routes,
        middleware=[Middleware(SafeHeaders), Middleware(HeadAsGet)],
        exception_handlers={OSError: fault, WitnessError: fault},
    )
    app.router.redirect_slashes = False
    return app


BODY_SECONDS = 10.0  # how long a request's body may take to arrive
_NO_STORE = {"Cache-Control": "no-store"}
_log = logging.getLogger(__name__)


def create_witness(folder: WitnessFolder) -> Starlette:
    """Return a witness as an ASGI app; no other process may use its folder."""

    def replied(body: bytes) -> witness.WitnessReply:
        try:
            return folder.add_checkpoint(witness.parse_request(body))
        except NoteError as error:
            return witness.WitnessReply(HTTPStatus.BAD_REQUEST, f"{error}\n".encode())

    async def add_checkpoint(request: Request) -> Response:
        body = await _body(request)
        if isinstance(body, Response):
            return body
        reply = await to_thread.run_sync(replied, body)
        if reply.evidence is not None:
            _log.error("%s has signed two trees of one size: see evidence/", reply.origin)
        return Response(reply.body, reply.status, _NO_STORE | {"Content-Type": reply.media_type})

    async def newest(request: Request) -> Response:
        note = await to_thread.run_sync(folder.newest_note, request.path_params["origin_hash"])
        if note is None:
            return _text(HTTPStatus.NOT_FOUND, "no checkpoint of that log was cosigned here")
        return Response(note, headers=_NO_STORE | {"Content-Type": witness.TEXT_TYPE})

    async def health(_: Request) -> Response:
        return _text(HTTPStatus.OK, "ok")

    return _app(
        [
            Route("/add-checkpoint", add_checkpoint, methods=["POST"]),
            Route("/health", health),
            Route("/{origin_hash}/checkpoint", newest),
        ]
    )


async def _body(request: Request) -> bytes | Response:
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for piece in request.stream():
                body += piece
                if len(body) > witness.MAX_REQUEST_BYTES:
                    fault = f"a request has at most {witness.MAX_REQUEST_BYTES} bytes"
                    return _text(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, fault)
    except TimeoutError:
        return _text(HTTPStatus.REQUEST_TIMEOUT, f"the request took over {BODY_SECONDS:g} s")
    except ClientDisconnect:
        return _text(HTTPStatus.BAD_REQUEST, "the request was cut off")
    return bytes(body)


def _text(status: HTTPStatus, sentence: str) -> Response:
    closing = {"Connection": "close"} if status >= HTTPStatus.BAD_REQUEST else {}
    return PlainTextResponse(f"{sentence}\n", status, _NO_STORE | closing)
