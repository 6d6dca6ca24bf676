"""A limit on the size of request bodies."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.exceptions import HTTPException
from starlette.requests import Request

from api.http.problems import BODY_TOO_LARGE, problem

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

MAX_BODY_BYTES = 16_384


class BodyLimit:
    """Rejects a body that is too large, by its header or by the received bytes."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        length = dict(scope["headers"]).get(b"content-length", b"0")
        if not length.isdigit() or int(length[:20]) > MAX_BODY_BYTES:
            detail = f"a request's body has at most {MAX_BODY_BYTES} bytes"
            await problem(Request(scope), BODY_TOO_LARGE, detail)(scope, receive, send)
            return
        left = MAX_BODY_BYTES

        async def bounded() -> Message:
            nonlocal left
            message = await receive()
            left -= len(message.get("body", b""))
            if left < 0:
                raise HTTPException(413)
            return message

        await self._app(scope, bounded, send)
