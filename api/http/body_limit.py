"""Bodies of requests are bounded before anything reads them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.exceptions import HTTPException
from starlette.requests import Request

from api.http.problems import BODY_TOO_LARGE, problem

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

MAX_BODY_BYTES = 16_384


class BodyLimit:
    """Refuses a body that is too large, by what it says of itself and by what comes."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        said = dict(scope["headers"]).get(b"content-length", b"0")
        if not said.isdigit() or int(said[:20]) > MAX_BODY_BYTES:
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
