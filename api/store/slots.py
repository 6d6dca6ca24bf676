"""Slots for the bodies that may arrive for one client at once.

A header that somebody else has seen can be shown again, so the slots are where a stranger competes
with the client itself: with nothing sent, byte by byte, or with junk. Bodies of one digest compete
with each other first, and the one with the least recent progress is cut, never the newcomer: else
the remains of a cut connection would keep an honest client out.
"""

from __future__ import annotations

import asyncio
import math
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from api.store.auditors import writer_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from api.store.auditors import Writer
    from ledger.protocol.types import Digest, Upload

DIGESTS_AT_ONCE = 8
"""Different blobs or envelopes that may arrive for one client."""

SAME_AT_ONCE = 2
"""Bodies that may arrive for one digest: one that hangs, and one that starts anew."""

SILENT_AT_ONCE = 16
"""Bodies of which nothing has arrived yet; with more, the oldest is cut."""

RECENT_SECONDS = 5.0
"""After this time a byte counts 1/e of what it counted when it arrived."""


@dataclass(slots=True, eq=False)
class Transfer:
    """A body that is arriving.

    Attributes:
        digest: that was announced.
        timeout: cuts it.
        slots: of its client.
    """

    digest: Digest
    timeout: asyncio.Timeout
    slots: _ClientSlots
    _recent_bytes: float = 0.0
    _counted_at: float = 0.0

    def count(self, size: int, now: float) -> None:
        """Count bytes that have arrived."""
        self._recent_bytes = self.progress(now) + size
        self._counted_at = now

    def progress(self, now: float) -> float:
        """Return the bytes that have arrived, weighted by their age."""
        return self._recent_bytes * math.exp((self._counted_at - now) / RECENT_SECONDS)

    def cut(self) -> None:
        """End the transfer with TimeoutError, if it has not ended."""
        if not self.timeout.expired():
            self.timeout.reschedule(0)


@dataclass(slots=True)
class _ClientSlots:
    silent: list[Transfer] = field(default_factory=list)
    arriving: dict[Digest, list[Transfer]] = field(default_factory=dict)

    def transfers(self, digest: Digest) -> list[Transfer]:
        return self.arriving.get(digest, [])


class Slots:
    """The bodies that are arriving, of all clients; for one event loop."""

    def __init__(self) -> None:
        self._clients: dict[Writer, _ClientSlots] = {}

    @asynccontextmanager
    async def hold(self, upload: Upload, seconds: float) -> AsyncIterator[Transfer]:
        """Hold a slot while a body arrives.

        Yields:
            The transfer, whose bytes have to be counted with `count`.

        Raises:
            TimeoutError: the time is over, or the transfer was cut for another.
        """
        writer = writer_of(upload)
        slots = self._clients.setdefault(writer, _ClientSlots())
        async with asyncio.timeout(seconds) as timeout:
            transfer = Transfer(upload.digest, timeout, slots)
            if len(slots.silent) >= SILENT_AT_ONCE:
                slots.silent.pop(0).cut()
            slots.silent.append(transfer)
            try:
                yield transfer
            finally:
                self._leave(writer, transfer)

    def count(self, transfer: Transfer, size: int) -> None:
        """Count bytes that have arrived; the first bytes make room for their transfer."""
        slots, now = transfer.slots, asyncio.get_running_loop().time()
        if transfer in slots.silent:
            slots.silent.remove(transfer)
            _make_room(slots, transfer.digest, now)
            slots.arriving.setdefault(transfer.digest, []).append(transfer)
        transfer.count(size, now)

    def _leave(self, writer: Writer, transfer: Transfer) -> None:
        slots = transfer.slots
        if transfer in slots.silent:
            slots.silent.remove(transfer)
        same = slots.transfers(transfer.digest)
        if transfer in same:
            same.remove(transfer)
            if not same:
                del slots.arriving[transfer.digest]
        if not slots.silent and not slots.arriving and self._clients.get(writer) is slots:
            del self._clients[writer]


def _make_room(slots: _ClientSlots, digest: Digest, now: float) -> None:
    """Cut the transfers with the least progress, if there is no room for one more of a digest."""
    same = slots.transfers(digest)
    if len(same) >= SAME_AT_ONCE:
        slowest = min(same, key=lambda transfer: transfer.progress(now))
        same.remove(slowest)
        slowest.cut()
    elif not same and len(slots.arriving) >= DIGESTS_AT_ONCE:
        total = {d: sum(t.progress(now) for t in ts) for d, ts in slots.arriving.items()}
        for transfer in slots.arriving.pop(min(total, key=total.__getitem__)):
            transfer.cut()
