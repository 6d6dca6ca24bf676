"""Connections that nobody can hold by doing nothing: whose turn it is has so long, then it is cut.

A server has room for so many. One that is opened and says nothing, sends half a head, or leaves its
answer lying would else take a place for ever, and readers find none.
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
    """One connection; uvicorn makes them.

    While a request is being answered it is the server's turn, and the app bounds how long a body
    may take. Else it is the peer's. Where all places are taken, who comes takes that of whoever has
    been silent the longest.
    """

    _turn: asyncio.TimerHandle | None = None
    _turn_began = 0.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin with the peer's turn.

        Args:
            transport: of the connection.
        """
        super().connection_made(transport)
        self._begin_turn()
        if self.limit_concurrency is not None and len(self.connections) >= self.limit_concurrency:
            self._take_place()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection.

        Args:
            exc: why it was lost, if there is something to say.
        """
        self._end_turn()
        super().connection_lost(exc)

    def handle_events(self) -> None:
        """Take what has come; a whole head ends the peer's turn, half a one does not."""
        super().handle_events()
        # Who leaves its answer lying gains no time by asking for more.
        if self._is_answering and not self.flow.write_paused:
            self._end_turn()

    def on_response_complete(self) -> None:
        """Leave the next request, and what still lies here of the answer, to the peer."""
        self._begin_turn()
        super().on_response_complete()

    def pause_writing(self) -> None:
        """Leave it to the peer to take what lies here."""
        super().pause_writing()
        self._begin_turn()

    def resume_writing(self) -> None:
        """Go on with the answer, if there is more of it."""
        super().resume_writing()
        if self._is_answering:
            self._end_turn()

    @property
    def _is_answering(self) -> bool:
        # There is none before the first request.
        return not getattr(self.cycle, "response_complete", True)

    def _begin_turn(self) -> None:
        self._end_turn()
        lying = self.transport.get_write_buffer_size()
        seconds = TURN_SECONDS + lying / LEAST_BYTES_PER_SECOND
        self._turn_began = self.loop.time()
        self._turn = self.loop.call_later(seconds, self.transport.abort)

    def _end_turn(self) -> None:
        if self._turn is not None:
            self._turn.cancel()
            self._turn = None

    def _take_place(self) -> None:
        """Cut the connection that has been silent the longest, if one is silent."""
        others: set[Any] = self.connections - {self}
        silent = [one for one in others if one._turn is not None and not one._is_answering]
        if silent:
            oldest = min(silent, key=lambda one: one._turn_began)
            oldest.transport.abort()
            # What it is told of being cut comes later, and its place is needed now.
            self.connections.discard(oldest)
