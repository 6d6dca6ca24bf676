"""One federation, and one fault in each of its rounds: done, lifted, recovered from, checked."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from clients.federation.watching import Watch
from ledger.blobs.store import FolderBlobs
from ledger.protocol.errors import ChainError
from tests.federation.cells import CELLS, Cell, Fault, Role, roles_of, victims
from tests.federation.checks import Checks, Wrong
from tests.federation.disturbances import Arena

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import numpy as np

    from clients.federation.federation import Federation
    from clients.federation.seat import Seat
    from clients.federation.watching import EndedRound
    from ledger.chain.contract.committee_ledger import CommitteeLedger
    from ledger.history.round import Round
    from tests.federation.disturbances import Disturbance
    from tests.federation.state import State

PATIENCE_SECONDS = 300.0
RECOVERY_SECONDS = 90.0
AUDITED_EVERY = 10
_POLL_SECONDS = 0.1


@dataclass
class LongRun:
    """A federation under faults.

    Attributes:
        federation: whose workers are not running yet.
        state: what all sessions have come to.
        rng: draws victims, moments and lengths.
        possible: the cells that can be done here.
        wanted: how often each of them.
        say: is told a line for each round.
    """

    federation: Federation
    state: State
    rng: np.random.Generator
    backups: Path
    possible: tuple[Cell, ...] = CELLS
    wanted: int = 10
    say: Callable[[str], None] = lambda _: None
    checks: Checks = field(init=False)
    _arena: Arena = field(init=False)
    _watch: Watch = field(init=False)
    _ledger: CommitteeLedger = field(init=False)

    def __post_init__(self) -> None:
        self.checks = Checks(self.federation)
        self._arena = Arena(self.federation, self.backups, self.rng)

    def run(self, is_over: Callable[[], bool]) -> None:
        """Disturb round after round, until told, or every cell is full, or nobody is left.

        Args:
            is_over: says whether it is time to end.
        """
        with self.federation.reader() as reader:
            self._ledger = self.federation.ledger(reader)
            blobs = FolderBlobs(self.federation.home.blobs)
            self._watch = Watch(self._ledger, blobs, time.monotonic)
            self.federation.start_workers()
            while not (is_over() or self.state.is_complete(self.possible, self.wanted)):
                one = self._opened()
                if one is None or self._too_few(one) or not self._round(one):
                    break
                if one.round % AUDITED_EVERY == 0:
                    self._audit()
            self._audit()

    def _round(self, one: Round) -> bool:
        """Disturb one round, and say whether it ended."""
        begun = time.monotonic()
        self._arena.backup(one.round)
        cell, done = self._disturbed(one)
        ended = self._ended(done)
        if done is not None:
            done.lift()
        self.state.seconds += time.monotonic() - begun
        if ended is None:
            self.checks.add(Wrong.STUCK, one.round, done)
            self.say(f"round {one.round}: does not end")
            return False
        self.state.rounds += 1
        self.state.abandoned += not ended.is_decided
        self.checks.ended(ended, done)
        recovered = None if done is None else self._recovered(done)
        self.checks.models(ended, self._models(ended), "" if done is None else str(done.fault))
        if cell is not None and done is not None:
            tally = self.state.cells[cell]
            has_effect = self._has_effect(cell, done, ended)
            tally.done += has_effect
            tally.missed += not has_effect
            tally.unhealed += done.is_unhealed
            if recovered is None:
                self.checks.add(Wrong.NO_RECOVERY, one.round, done)
            elif has_effect:
                tally.recovery_seconds.append(round(recovered, 2))
        self.state.violations += self.checks.violations
        self.checks.violations.clear()
        self.say(_line(ended, cell, recovered))
        return True

    def _disturbed(self, one: Round) -> tuple[Cell | None, Disturbance | None]:
        """Choose the cell that lacks most and that somebody here can be the victim of; do it."""
        roles, tallies = roles_of(one), self.state.cells
        sizes = self.federation.settings.configuration.parameters(dimension=1)
        left = [c for c in self.possible if tallies[c].done < self.wanted]
        tie = {cell: float(self.rng.random()) for cell in left}
        for cell in sorted(left, key=lambda c: (tallies[c].done + tallies[c].missed, tie[c])):
            if cell.fault is Fault.RESTORED_BACKUP and not self._arena.has_backup(one.round):
                continue
            seats = victims(cell, self.federation.seats, roles, sizes)
            if cell.role is not Role.EVERYBODY and not seats:
                continue
            seat = None
            if cell.role is not Role.EVERYBODY:
                seat = seats[int(self.rng.integers(len(seats)))]
            done = self._arena.disturb(cell.fault, seat, one)
            self.checks.begun(done)
            return cell, done
        return None, None

    def _has_effect(self, cell: Cell, done: Disturbance, ended: EndedRound) -> bool:
        """Say whether a lie got onto the record, in time; other faults have happened anyway."""
        clients = done.clients
        match cell.fault:
            case Fault.LATE:
                return bool(clients & set(ended.late))
            case Fault.NOT_FINITE | Fault.TRUNCATED | Fault.COPIED:
                return bool(clients & {*ended.unusable, *ended.late})
            case Fault.FALSE_SCORES:
                return bool(clients & set(ended.refused))
            case Fault.EQUIVOCATING | Fault.SELF_BAN:
                return bool(clients & set(ended.banned)) or self._is_banned(done)
            case Fault.WRONG_PROPOSAL:
                return ended.views is None or ended.views != (0, 0)
            case Fault.TOO_MANY:
                return not ended.is_decided
            case _:
                return True

    def _is_banned(self, done: Disturbance) -> bool:
        return any(ban.client in done.clients for ban in self._ledger.bans())

    def _opened(self) -> Round | None:
        """Return the round that is open, None after the last or if none ever opens."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < deadline:
            # Rounds may have gone by while a victim recovered: nothing was done in them.
            while (quiet := self._watch.ended()) is not None:
                self.state.rounds += 1
                self.state.abandoned += not quiet.is_decided
                self.checks.ended(quiet, None)
                self.say(_line(quiet, None, None))
            one = self._watch.open()
            if one is not None:
                return one
            if self._watch.is_finished():
                return None
            time.sleep(_POLL_SECONDS / 2)
        return None

    def _ended(self, done: Disturbance | None) -> EndedRound | None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < deadline:
            if done is not None:
                done.step()
            ended = self._watch.ended()
            if ended is not None:
                return ended
            self._restart_ended(done)
            time.sleep(_POLL_SECONDS)
        return None

    def _restart_ended(self, done: Disturbance | None) -> None:
        """Begin workers again that ended by themselves, but those that are to be down."""
        disturbed = () if done is None else done.seats
        for seat in self.federation.seats:
            if seat not in disturbed and not seat.is_up():
                seat.start()

    def _recovered(self, done: Disturbance) -> float | None:
        """Return how long after the end of a fault its victims had caught up, None if never."""
        assert done.lifted_at is not None, "it has been lifted"
        seats = done.seats or tuple(self.federation.seats)
        deadline = done.lifted_at + RECOVERY_SECONDS
        while time.monotonic() < deadline:
            if all(map(self._has_caught_up, seats)):
                return time.monotonic() - done.lifted_at
            for seat in seats:
                if not seat.is_up():
                    seat.start()
            time.sleep(_POLL_SECONDS)
        return None

    def _models(self, ended: EndedRound) -> dict[str, str]:
        """Return the model that each worker in the round after this one says that it holds."""
        found = {}
        for seat in self.federation.seats:
            status = seat.status()
            if status.get("round") == ended.number + 1:
                found[seat.name] = str(status.get("model"))
        return found

    def _has_caught_up(self, seat: Seat) -> bool:
        """Say whether a worker says that it is in the newest round, and is the one that runs."""
        try:
            newest = self._ledger.state().round
        except ChainError:
            return False
        status = seat.status()
        is_there = seat.has_spoken() and int(status.get("round") or 0) >= newest
        return is_there and not status.get("troubles")

    def _too_few(self, one: Round) -> bool:
        """Say whether so many are banned that the next committee might not be filled."""
        left = sum(not client.banned_in for client in one.registry)
        sizes = self.federation.settings.configuration.parameters(dimension=1)
        return left < sizes.active + sizes.members

    def _audit(self) -> None:
        try:
            report = self.checks.whole(self._ledger)
            self.checks.history(self._ledger)
            self.state.audited += report.rounds
        except ChainError:
            return  # the node is being restarted; the next audit takes these rounds too
        finally:
            self.state.violations += self.checks.violations
            self.checks.violations.clear()


def _line(ended: EndedRound, cell: Cell | None, recovered: float | None) -> str:
    what = "nothing" if cell is None else f"{cell.fault} of {cell.role}"
    how = (
        "abandoned"
        if ended.views is None
        else f"views {ended.views[0] + 1} and {ended.views[1] + 1}"
    )
    after = "" if recovered is None else f", recovered after {recovered:.1f} s"
    return f"round {ended.number}: {what}; {how} in {ended.seconds:.1f} s{after}"
