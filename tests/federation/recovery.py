"""How long victims take until they have caught up, watched beside the rounds that follow."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

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
    since: float = 0.0  # when the victim last had no client active
    counts: bool | None = None

    def look(self, newest: int) -> None:
        if self.is_over or self.done.lifted_at is None:
            return
        now = time.monotonic()
        told = [status_in(newest, seat, self.done.lifted_on) for seat in self.seats]
        roles = {each["role"] for status in told if status for each in status["roles"].values()}
        if all(status and not status["troubles"] for status in told):
            self.seconds, self.is_over = now - self.done.lifted_at, True
        elif all(told) and roles <= {"idle", "banned"}:
            self.since = now  # it repeats what failed when a client is active again
        elif now - max(self.since, self.done.lifted_at) > RECOVERY_SECONDS:
            self.is_over = True


@dataclass
class Recoveries:
    on_settled: Callable[[Recovery], None]
    open: list[Recovery] = field(default_factory=list)

    def add(self, one: Recovery) -> None:
        self.open.append(one)

    def look(self, newest: int) -> None:
        for one in self.open:
            one.look(newest)
        settled = [one for one in self.open if one.is_over and one.counts is not None]
        self.open = [one for one in self.open if one not in settled]
        for one in settled:
            self.on_settled(one)

    def away(self) -> list[WorkerSlot]:
        found = {seat.number: seat for one in self.open if not one.is_over for seat in one.seats}
        return [seat for _, seat in sorted(found.items())]


def status_in(newest: int, seat: WorkerSlot, since: float) -> dict[str, Any] | None:
    """Return a worker's status if it has said since then that it is in the newest round."""
    status = seat.status()
    is_there = seat.has_reported() and int(status.get("round") or 0) >= newest
    return status if is_there and float(status.get("at") or 0) > since else None


def not_among(seats: Iterable[WorkerSlot], away: Iterable[WorkerSlot]) -> list[WorkerSlot]:
    numbers = {seat.number for seat in away}
    return [seat for seat in seats if seat.number not in numbers]
