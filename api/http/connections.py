"""Connections with time limits on the peer.

A server has a limited number of connections. A peer that sends nothing or half a head, or does not
read its answer, would otherwise occupy one for ever.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from uvicorn.protocols.http.h11_impl import H11Protocol

if TYPE_CHECKING:
    import asyncio

TURN_SECONDS = 20.0
"""For a whole head, from the connection or the last answer on; and to take an answer, beyond the
time that its bytes need."""

LEAST_BYTES_PER_SECOND = 65_536


class TimedConnection(H11Protocol):
    """One connection, made by uvicorn.

    While a request is being answered the app sets the limits; otherwise the peer has
    `TURN_SECONDS`. If all connections are in use, a new one replaces the longest silent one.
    """

    _turn: asyncio.TimerHandle | None = None
    _turn_began = 0.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin with the peer's turn."""
        super().connection_made(transport)
        self._begin_turn()
        if self.limit_concurrency is not None and len(self.connections) >= self.limit_concurrency:
            self._replace_silent()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timer."""
        self._end_turn()
        super().connection_lost(exc)

    def handle_events(self) -> None:
        """Handle received data; a complete head ends the peer's turn."""
        super().handle_events()
        # A peer that does not read its answer gains no time by another request.
        if self._is_answering and not self.flow.write_paused:
            self._end_turn()

    def on_response_complete(self) -> None:
        """Begin the peer's turn: to read the rest of the answer, and to send the next request."""
        self._begin_turn()
        super().on_response_complete()

    def pause_writing(self) -> None:
        """Begin the peer's turn: to read what is buffered."""
        super().pause_writing()
        self._begin_turn()

    def resume_writing(self) -> None:
        """End the peer's turn while the answer goes on."""
        super().resume_writing()
        if self._is_answering:
            self._end_turn()

    @property
    def _is_answering(self) -> bool:
        # There is none before the first request.
        return not getattr(self.cycle, "response_complete", True)

    def _begin_turn(self) -> None:
        self._end_turn()
        unread = self.transport.get_write_buffer_size()
        seconds = TURN_SECONDS + unread / LEAST_BYTES_PER_SECOND
        self._turn_began = self.loop.time()
        self._turn = self.loop.call_later(seconds, self.transport.abort)

    def _end_turn(self) -> None:
        if self._turn is not None:
            self._turn.cancel()
            self._turn = None

    def _replace_silent(self) -> None:
        """Abort the connection that has been silent the longest, if one is silent."""
        others: set[Any] = self.connections - {self}
        silent = [each for each in others if each._turn is not None and not each._is_answering]
        if silent:
            oldest = min(silent, key=lambda each: each._turn_began)
            oldest.transport.abort()
            # Its `connection_lost` is called later, and its place is needed now.
            self.connections.discard(oldest)
