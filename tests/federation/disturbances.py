"""How each fault is done to a running federation, and undone.

Every worker is begun as one that may be told to lie (`CMFL_WORKER_FAULT=told:FILE`): so a lie
begins with its round, and the worker is honest before and after without having been begun again.
"""

from __future__ import annotations

import shutil
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np

from clients.testnet import ChainKind
from clients.testnet.network import WorkerSlot
from clients.worker.status import WorkerFolder
from ledger.history.round import HistoryRound
from ledger.io.processes import CommandProcess
from ledger.protocol.errors import ChainError
from ledger.protocol.types import ClientId, Digest
from ledger.storage.blobs import FolderBlobs
from tests.federation import worker_files
from tests.federation.cells import LIES, Fault, Role, liars, roles_of, seats_of_members, tolerated
from tests.federation.disturbed import DisturbedNetwork
from tests.federation.relay import LinkCondition
from tests.federation.worker_files import back_up, clear_fault, restore, set_fault
from tests.patience import wait_until

_CONDITIONS = {
    Fault.SLOW: LinkCondition.SLOW,
    Fault.CUT: LinkCondition.CUT,
    Fault.SILENT: LinkCondition.SILENT,
    Fault.WRONG_ANSWERS: LinkCondition.WRONG,
}
SLOW_SECONDS = 0.2
_LATEST_BEGIN_SECONDS = 4.0
_LONGEST_SECONDS = 6.0


@dataclass
class Disturbance:
    fault: Fault
    seats: tuple[WorkerSlot, ...]
    clients: frozenset[ClientId]
    liars: frozenset[ClientId] = frozenset()
    lifted_at: float | None = None
    lifted_on: float = 0.0
    has_come: bool = True
    _has_begun: bool = False
    is_unhealed: bool = False
    _acts: list[tuple[float, Callable[[], None]]] = field(default_factory=list)
    _undo: Callable[[], None] = lambda: None
    _look: Callable[[], None] = lambda: None

    def step(self) -> None:
        now = time.monotonic()
        while self._acts and self._acts[0][0] <= now:
            self._has_begun = True
            self._acts.pop(0)[1]()
            if not self._acts and self._undo is _NOTHING:
                self._is_over()
        self._look()

    def lift(self) -> None:
        """Do at once what is left, if anything was done at all, and undo what lasts."""
        if self._acts and not self._has_begun:
            self._acts.clear()
            self.has_come = False  # its round was over before its moment
        while self._acts:
            self._acts.pop(0)[1]()
        self._undo()
        self._undo, self._look = _NOTHING, _NOTHING
        self._is_over()

    def _is_over(self) -> None:
        if self.lifted_at is None:
            self.lifted_at, self.lifted_on = time.monotonic(), time.time()


def _NOTHING() -> None:  # noqa: N802 - a constant that can be called
    """Do nothing."""


class Arena:
    def __init__(
        self, federation: DisturbedNetwork, backups: Path, rng: np.random.Generator
    ) -> None:
        self.federation = federation
        self._backups = backups
        self._rng = rng

    def backup(self, round_number: int) -> None:
        """Copy every worker's folder, and forget those of two rounds ago."""
        for seat in self.federation.seats:
            back_up(seat.folder, self._backups / str(round_number) / seat.name)
        shutil.rmtree(self._backups / str(round_number - 2), ignore_errors=True)

    def has_backup(self, round_number: int) -> bool:
        return (self._backups / str(round_number - 1)).is_dir()

    def disturb(self, fault: Fault, seat: WorkerSlot | None, one: HistoryRound) -> Disturbance:
        roles = roles_of(one)
        if seat is None:
            seats = self._too_many(one) if fault is Fault.TOO_MANY else ()
        else:
            seats = (seat,)
        mine = {c: roles[c] for place in seats for c in place.clients if c in roles}
        made = Disturbance(fault, seats, frozenset(mine))
        made._undo = made._look = _NOTHING
        if fault in _CONDITIONS and seat is not None:
            self._on_path(made, seat, _CONDITIONS[fault])
        elif fault in LIES and seat is not None:
            set_fault(seat.folder, LIES[fault], one.round)
            made.liars = liars(fault, mine)
            made._undo = partial(clear_fault, seat.folder)
        elif seat is not None:
            self._on_seat(made, seat, one)
        elif fault is Fault.TOO_MANY:
            for frozen in seats:
                _signal(frozen, frozen=True)
            made._undo = lambda: _thawed(seats)
        else:
            made._acts = [(self._soon(), self._reorganise)]
        made.step()
        return made

    def _on_path(self, made: Disturbance, seat: WorkerSlot, condition: LinkCondition) -> None:
        def turned(to: LinkCondition) -> Callable[[], None]:
            def turn() -> None:
                for relay in self.federation.relays_of(seat):
                    self.federation.relays.turn(relay, to, SLOW_SECONDS)

            return turn

        if made.fault is Fault.SLOW:
            turned(condition)()
            made._undo = turned(LinkCondition.WHOLE)
            return
        begin = self._soon()
        made._acts = [
            (begin, turned(condition)),
            (begin + self._lasting(), turned(LinkCondition.WHOLE)),
        ]

    def _on_seat(self, made: Disturbance, seat: WorkerSlot, one: HistoryRound) -> None:
        begin, end = self._soon(), 0.0
        end = begin + self._lasting()
        match made.fault:
            case Fault.KILLED:
                again = begin + float(self._rng.uniform(0.1, 2.0))
                made._acts = [(begin, seat.kill), (again, lambda: begun(seat))]
            case Fault.FROZEN:
                made._acts = [
                    (begin, lambda: _signal(seat, frozen=True)),
                    (end, lambda: _signal(seat, frozen=False)),
                ]
            case Fault.FULL_DISK:
                made._acts = [
                    (begin, lambda: worker_files.fill(seat.folder)),
                    (end, lambda: worker_files.empty(seat.folder)),
                ]
            case Fault.RESTORED_BACKUP:
                copy = self._backups / str(one.round - 1) / seat.name
                made._acts = [(begin, lambda: _restored(seat, copy))]
            case Fault.TWO_PROCESSES:
                folder = seat.folder.with_name(f"{seat.folder.name}-again-{one.round}")
                folder.mkdir(exist_ok=True)
                second = seat.start_with_folder(folder, f"{seat.name}-again")
                made._undo = lambda: _gone(second, folder)
            case Fault.CORRUPTED_BLOB:
                damage = _Damage(self.federation, seat, one.round, min(made.clients))
                made._look = damage.look
                made._undo = lambda: damage.repair(made)
            case _:
                raise ValueError(f"{made.fault} befalls no single worker")

    def _too_many(self, one: HistoryRound) -> tuple[WorkerSlot, ...]:
        """Return seats with one more member than may be silent beside the empty seats."""
        sizes = self.federation.settings.configuration.parameters(dimension=1)
        count = tolerated(sizes) - len(one.vacant_members) + 1
        members = {c for c, its in roles_of(one).items() if Role.TRAINER not in its}
        return tuple(seats_of_members(self.federation.seats, members, count))

    def _reorganise(self) -> None:
        """Take back as many blocks as workers do not rely on yet, or one less."""
        node, depth = self.federation.node, self.federation.settings.clocks.confirmations
        if node.kind is ChainKind.ANVIL:
            node.ask("anvil_reorg", depth, [])
            return
        kept = node.file.with_name("older")
        with self.federation.reader() as reader:
            last = reader.head().number + depth
        node.stop()
        files = [*node.file.parent.glob(f"{node.file.name}*")]
        shutil.rmtree(kept, ignore_errors=True)
        kept.mkdir()
        for file in files:
            shutil.copy2(file, kept)
        node.start()
        _wait_for_block(self.federation, last)
        node.stop()
        for file in kept.iterdir():
            shutil.copy2(file, node.file.parent)
        node.start()

    def _soon(self) -> float:
        return time.monotonic() + float(self._rng.uniform(0, _LATEST_BEGIN_SECONDS))

    def _lasting(self) -> float:
        return float(self._rng.uniform(1, _LONGEST_SECONDS))


class _Damage:
    """One flipped bit in a client's payload, as soon as it is in the store."""

    def __init__(
        self, federation: DisturbedNetwork, seat: WorkerSlot, round_number: int, client: ClientId
    ) -> None:
        self._blobs = FolderBlobs(federation.home.blobs)
        self._seat = seat
        self._name = f"{round_number}-{client}-*.update"
        self._found: Path | None = None
        self._bytes = b""

    def look(self) -> None:
        if self._found is not None:
            return
        for own in WorkerFolder(self._seat.folder).payloads.glob(self._name):
            digest = Digest(bytes.fromhex(own.stem.rpartition("-")[2]))
            if self._blobs.has(digest):
                self._found = self._blobs.folder / digest.hex()[:2] / digest.hex()
                self._bytes = self._found.read_bytes()
                damaged = bytearray(self._bytes)
                damaged[len(damaged) // 2] ^= 1
                self._found.write_bytes(damaged)
                return

    def repair(self, made: Disturbance) -> None:
        """Put the bytes back, and note whether they were damaged at all, and still were."""
        made.has_come = self._found is not None
        if self._found is None:
            return
        made.is_unhealed = not self._found.exists() or self._found.read_bytes() != self._bytes
        if made.is_unhealed:
            self._blobs.put(self._bytes)
            self._blobs.sync()


def begun(seat: WorkerSlot) -> None:
    seat.start()


def _restored(seat: WorkerSlot, copy: Path) -> None:
    seat.kill()
    restore(seat.folder, copy)
    begun(seat)


def _gone(second: CommandProcess, folder: Path) -> None:
    second.kill()
    shutil.rmtree(folder, ignore_errors=True)


def _signal(seat: WorkerSlot, *, frozen: bool) -> None:
    if seat.process is not None:
        seat.process.signal(signal.SIGSTOP if frozen else signal.SIGCONT)


def _thawed(seats: tuple[WorkerSlot, ...]) -> None:
    for seat in seats:
        _signal(seat, frozen=False)


def _wait_for_block(federation: DisturbedNetwork, number: int) -> None:
    with federation.reader() as reader:

        def is_there() -> bool:
            with suppress(ChainError):
                return reader.head().number >= number
            return False

        wait_until(is_there)
