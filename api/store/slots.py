"""How many bodies may come for one client at once, and which of too many is cut.

A header that somebody else has seen can be shown again, so the slots are where a stranger competes
with the client itself: with nothing sent, byte by byte, or with junk. What comes under one digest
competes with itself first, and the one with the least progress of late goes, never the newcomer:
what a cut network has left behind would else keep an honest client out.
"""

from __future__ import annotations

import asyncio
import math
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from ledger.protocol.types import ClientId, Digest, Upload

DIGESTS_AT_ONCE = 8
"""So many different blobs or envelopes may come for one client."""

SAME_AT_ONCE = 2
"""So many bodies may come for one of them: one that hangs, and one that begins anew."""

SILENT_AT_ONCE = 16
"""Of so many may nothing have come yet; of more, the oldest goes."""

RECENT_SECONDS = 5.0
"""After so long a byte counts 1/e of what it counted when it came."""


@dataclass(slots=True, eq=False)
class Transfer:
    """A body that is coming.

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
        """Count bytes that have come."""
        self._recent_bytes = self.progress(now) + size
        self._counted_at = now

    def progress(self, now: float) -> float:
        """Return how many bytes came of late, the older for less."""
        return self._recent_bytes * math.exp((self._counted_at - now) / RECENT_SECONDS)

    def cut(self) -> None:
        """End it with TimeoutError, if it has not ended."""
        if not self.timeout.expired():
            self.timeout.reschedule(0)


@dataclass(slots=True)
class _ClientSlots:
    silent: list[Transfer] = field(default_factory=list)
    coming: dict[Digest, list[Transfer]] = field(default_factory=dict)

    def transfers(self, digest: Digest) -> list[Transfer]:
        return self.coming.get(digest, [])


class Slots:
    """The bodies that are coming, of all clients; for one event loop."""

    def __init__(self) -> None:
        self._clients: dict[ClientId, _ClientSlots] = {}

    @asynccontextmanager
    async def held(self, upload: Upload, seconds: float) -> AsyncIterator[Transfer]:
        """Hold a slot while a body comes.

        Args:
            upload: whose, and of which digest.
            seconds: how long it may come.

        Yields:
            The transfer; what comes of it has to be counted with `count`.

        Raises:
            TimeoutError: it has come for too long, or was cut for another.
        """
        slots = self._clients.setdefault(upload.client, _ClientSlots())
        async with asyncio.timeout(seconds) as timeout:
            transfer = Transfer(upload.digest, timeout, slots)
            if len(slots.silent) >= SILENT_AT_ONCE:
                slots.silent.pop(0).cut()
            slots.silent.append(transfer)
            try:
                yield transfer
            finally:
                self._leave(upload.client, transfer)

    def count(self, transfer: Transfer, size: int) -> None:
        """Count bytes that have come; the first make room for their transfer.

        Args:
            transfer: as it was held.
            size: how many.
        """
        slots, now = transfer.slots, asyncio.get_running_loop().time()
        if transfer in slots.silent:
            slots.silent.remove(transfer)
            _make_room(slots, transfer.digest, now)
            slots.coming.setdefault(transfer.digest, []).append(transfer)
        transfer.count(size, now)

    def _leave(self, client: ClientId, transfer: Transfer) -> None:
        slots = transfer.slots
        if transfer in slots.silent:
            slots.silent.remove(transfer)
        same = slots.transfers(transfer.digest)
        if transfer in same:
            same.remove(transfer)
            if not same:
                del slots.coming[transfer.digest]
        if not slots.silent and not slots.coming and self._clients.get(client) is slots:
            del self._clients[client]


def _make_room(slots: _ClientSlots, digest: Digest, now: float) -> None:
    """Cut what has the least progress, if there is no room for one more of a digest."""
    same = slots.transfers(digest)
    if len(same) >= SAME_AT_ONCE:
        slowest = min(same, key=lambda transfer: transfer.progress(now))
        same.remove(slowest)
        slowest.cut()
    elif not same and len(slots.coming) >= DIGESTS_AT_ONCE:
        total = {d: sum(t.progress(now) for t in ts) for d, ts in slots.coming.items()}
        for transfer in slots.coming.pop(min(total, key=total.__getitem__)):
            transfer.cut()
