"""How long victims take until they have caught up, watched beside the rounds that follow."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from clients.testnet.network import WorkerSlot
    from tests.federation.cells import Cell
    from tests.federation.disturbances import Disturbance

RECOVERY_SECONDS = 90.0


@dataclass
class Recovery:
    cell: Cell
    round: int
    done: Disturbance
    seats: tuple[WorkerSlot, ...]
    seconds: float | None = None
    is_over: bool = False
    counts: bool | None = None

    def look(self, newest: int) -> None:
        if self.is_over or self.done.lifted_at is None:
            return
        waited = time.monotonic() - self.done.lifted_at
        if all(has_caught_up(seat, newest, self.done.lifted_on) for seat in self.seats):
            self.seconds, self.is_over = waited, True
        elif waited > RECOVERY_SECONDS:
            self.is_over = True


@dataclass
class Recoveries:
    on_settled: Callable[[Recovery], None]
    _open: list[Recovery] = field(default_factory=list)

    def add(self, one: Recovery) -> None:
        self._open.append(one)

    def look(self, newest: int) -> None:
        for one in self._open:
            one.look(newest)
        settled = [one for one in self._open if one.is_over and one.counts is not None]
        self._open = [one for one in self._open if one not in settled]
        for one in settled:
            self.on_settled(one)

    def away(self) -> list[WorkerSlot]:
        found = {seat.number: seat for one in self._open if not one.is_over for seat in one.seats}
        return [found[number] for number in sorted(found)]

    @property
    def are_any(self) -> bool:
        return bool(self._open)


def has_caught_up(seat: WorkerSlot, newest: int, since: float) -> bool:
    """Say whether a worker is in the newest round without a complaint, by what it says itself."""
    status = seat.status()
    said_after = float(status.get("at") or 0) > since
    is_there = seat.has_reported() and int(status.get("round") or 0) >= newest
    return said_after and is_there and not status.get("troubles")


def not_among(seats: Iterable[WorkerSlot], away: Iterable[WorkerSlot]) -> list[WorkerSlot]:
    numbers = {seat.number for seat in away}
    return [seat for seat in seats if seat.number not in numbers]
