"""The files of a log as an ASGI app (c2sp.org/tlog-tiles); any server of static files does, too."""

from __future__ import annotations

import re
from pathlib import Path

from anyio import to_thread
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from api.http.middleware import HeadAsGet, SafeHeaders
from ledger.io.home import read_file
from ledger.transparency.tiles import CHECKPOINT, MAX_FILE_BYTES
from ledger.transparency.witness import TEXT_TYPE

_TILE = re.compile(r"tile/(entries|[0-9]{1,2})/(x[0-9]{3}/){0,5}[0-9]{3}(\.p/[0-9]{1,3})?")
_CHANGES = {"Cache-Control": "no-cache", "Content-Type": TEXT_TYPE}
_STAYS = {
    "Cache-Control": "public, max-age=31536000, immutable",
    "Content-Type": "application/octet-stream",
}


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

    app = Starlette(
        routes=[Route("/{path:path}", file)],
        middleware=[Middleware(SafeHeaders), Middleware(HeadAsGet)],
    )
    app.router.redirect_slashes = False
    return app
