"""HEAD is answered like GET, without the body."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send


class HeadAsGet:
    """Answers HEAD on every path of a GET, with the same headers.

    The endpoint sees a disconnect, so that no endless stream is made for nothing.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http" or scope["method"] != "HEAD":
            await self._app(scope, receive, send)
            return
        is_answered = False

        async def headers_only(message: Message) -> None:
            nonlocal is_answered
            if message["type"] == "http.response.start":
                await send(message)
                await send({"type": "http.response.body", "body": b""})
                is_answered = True

        async def gone_once_answered() -> Message:
            return {"type": "http.disconnect"} if is_answered else await receive()

        await self._app({**scope, "method": "GET"}, gone_once_answered, headers_only)
