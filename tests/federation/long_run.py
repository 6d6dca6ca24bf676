"""One federation, and one fault in each of its rounds: done, lifted, recovered from, checked.

Nobody waits for a victim: while it recovers, the next round's fault befalls somebody else, and no
more than the protocol bears, whoever has not caught up yet and every empty seat counted in. Only if
that leaves nothing to do is it done a moment later: a victim needs one to say that it is back.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from clients.testnet.watch import RoundWatch, WatchedRound
from ledger.chain.contract.ledger import CommitteeLedger
from ledger.history.round import HistoryRound
from ledger.protocol.errors import ChainError
from ledger.protocol.parameters import Parameters
from ledger.protocol.types import ClientId, Digest
from ledger.storage.blobs import FolderBlobs
from tests.federation.cells import (
    CELLS,
    LIES,
    PRIMARIES,
    Cell,
    Fault,
    Margin,
    Role,
    effective,
    is_drawn_for_nothing,
    margin_of,
    roles_of,
    victims,
)
from tests.federation.checks import Checks, Wrong
from tests.federation.disturbances import Arena, Disturbance, begun
from tests.federation.disturbed import DisturbedNetwork
from tests.federation.recovery import Recoveries, Recovery, not_among
from tests.federation.retraining import Inspected, Inspection
from tests.federation.state import State

LONGEST_ROUND_SECONDS = 600.0  # on a slow machine, several views go by before a round is decided
INSPECTED_EVERY = 10
_POLL_SECONDS = 0.1
_CHAIN_POLL_SECONDS = 0.3
_UP_POLL_SECONDS = 1.0
_MOMENT_SECONDS = 1.5
"""After a round's beginning, for victims of the last one; it is less than faults wait by chance."""


@dataclass
class LongRun:
    federation: DisturbedNetwork
    state: State
    rng: np.random.Generator
    backups: Path
    possible: tuple[Cell, ...] = CELLS
    wanted: int = 10
    say: Callable[[str], None] = lambda _: None
    checks: Checks = field(init=False)
    _arena: Arena = field(init=False)
    _recoveries: Recoveries = field(init=False)
    _watch: RoundWatch = field(init=False)
    _ledger: CommitteeLedger = field(init=False)
    _inspection: Inspection = field(init=False)
    _model: Digest | None = None
    _audited: int = 0
    _newest: int = 0
    _looked_up_at: float = 0.0

    def __post_init__(self) -> None:
        self.checks = Checks(self.federation)
        self._arena = Arena(self.federation, self.backups, self.rng)
        self._recoveries = Recoveries(self._settled)

    def run(self, is_over: Callable[[], bool]) -> None:
        """Disturb round after round, until told, or every cell is full, or nobody is left."""
        with self.federation.reader() as reader:
            self._ledger = self.federation.ledger(reader)
            blobs = FolderBlobs(self.federation.home.blobs)
            self._model = self._ledger.deployment().model
            self._watch = RoundWatch(self._ledger, blobs, time.monotonic)
            with closing(Inspection(self._ledger, blobs)) as self._inspection:
                self._disturb_all(is_over)

    def _disturb_all(self, is_over: Callable[[], bool]) -> None:
        seats = self.federation.seats
        self.federation.start_workers()
        while not (is_over() or self.state.is_complete(self.possible, self.wanted)):
            one = self._opened()
            if one is None or self._too_few(one) or not self._round(one):
                break
        self._wait_for_recoveries()
        # Nobody plays on while the rest is inspected: it would take the machine, and count nowhere.
        for seat in seats:
            seat.kill()
        self._inspect_the_rest()

    def _round(self, one: HistoryRound) -> bool:
        begun_at = time.monotonic()
        self._newest = one.round
        until = begun_at + _MOMENT_SECONDS
        while True:
            away = self._recoveries.away()
            margin = margin_of(one, self._sizes, away)
            cell, done = self._disturbed(one, margin)
            if cell is not None or not away or time.monotonic() > until:
                break
            time.sleep(_POLL_SECONDS)
            self._recoveries.look(self._newest)
        recovery = None
        if cell is not None and done is not None:
            seats = done.seats or tuple(self.federation.seats)
            recovery = Recovery(cell, one.round, done, seats)
            self._recoveries.add(recovery)
        # What takes long comes after the fault, which has to be there before workers look.
        if any(cell.fault is Fault.RESTORED_BACKUP for cell in self.possible):
            self._arena.backup(one.round)
        self._inspect(cell)
        ended = self._ended(done)
        if done is not None:
            done.lift()
        self.state.seconds += time.monotonic() - begun_at
        if ended is None:
            self.checks.add(Wrong.STUCK, one.round, done)
            self._take_violations()
            self.say(f"round {one.round}: does not end")
            if recovery is not None:
                recovery.counts = False
            return False
        gone = frozenset(client for seat in away for client in seat.clients)
        faulty = gone if done is None else gone | done.clients
        is_drawn = not ended.is_decided and is_drawn_for_nothing(one, faulty)
        self._count(ended, done, gone, margin, is_drawn=is_drawn)
        if recovery is not None:
            recovery.counts = self._had_effect(recovery, ended)
            tally = self.state.cells[recovery.cell]
            tally.done += recovery.counts
            tally.missed += not recovery.counts
            tally.unhealed += recovery.done.is_unhealed
        self.say(_line(ended, recovery, margin))
        return True

    def _count(
        self,
        ended: WatchedRound,
        done: Disturbance | None,
        away: frozenset[ClientId],
        margin: Margin,
        *,
        is_drawn: bool = False,
    ) -> None:
        self.state.rounds += 1
        self.state.abandoned += not ended.is_decided
        self.state.beyond += not margin.is_kept
        self.state.drawn += is_drawn
        self.checks.ended(ended, done, away, is_borne=margin.is_kept, is_drawn=is_drawn)
        assert self._model is not None, "the contract names the first one"
        self.checks.models(ended, self._model, self._models(ended.number))
        self._model = ended.model or self._model
        self._newest = ended.number + 1
        with suppress(ChainError):
            self.checks.settled(self._ledger)
        self._take_violations()

    def _disturbed(
        self, one: HistoryRound, margin: Margin
    ) -> tuple[Cell | None, Disturbance | None]:
        """Choose the cell that lacks most and that somebody here can be the victim of; do it."""
        if not margin.is_kept:
            return None, None
        roles, tallies = roles_of(one), self.state.cells
        left = [c for c in self.possible if tallies[c].done < self.wanted]
        tie = {cell: float(self.rng.random()) for cell in left}
        whole = not_among(self.federation.seats, self._recoveries.away())

        def order(cell: Cell) -> tuple[int, bool, float]:
            # A primary is one client, and the least often a victim: what waits for it comes first.
            tried = tallies[cell].done + tallies[cell].missed
            return tried, cell.role not in PRIMARIES, tie[cell]

        for cell in sorted(left, key=order):
            if cell.fault is Fault.RESTORED_BACKUP and not self._arena.has_backup(one.round):
                continue
            seats = victims(cell, whole, roles, margin)
            if cell.role is not Role.EVERYBODY and not seats:
                continue
            seat = None
            if cell.role is not Role.EVERYBODY:
                seat = seats[int(self.rng.integers(len(seats)))]
            done = self._arena.disturb(cell.fault, seat, one)
            self.checks.begun(done, one.round)
            return cell, done
        return None, None

    def _had_effect(self, recovery: Recovery, ended: WatchedRound) -> bool:
        """Say whether a fault had its effect: a lie is on the record, a blob was damaged."""
        fault, done = recovery.cell.fault, recovery.done
        if fault in LIES:
            banned = frozenset(ban.client for ban in self._ledger.bans())
            liars = effective(fault, done.liars, ended, banned)
            self.checks.had_effect(ended.number, fault, liars)
            return bool(liars)
        return done.has_come and (fault is not Fault.TOO_MANY or not ended.is_decided)

    def _settled(self, one: Recovery) -> None:
        """Take down a fault whose victims have caught up, or never will."""
        if one.seconds is None:
            self.checks.add(Wrong.NO_RECOVERY, one.round, one.done)
            self._take_violations()
        elif one.counts:
            self.state.cells[one.cell].recovery_seconds.append(round(one.seconds, 2))
        how = "never" if one.seconds is None else f"after {one.seconds:.1f} s"
        came = "" if one.counts else ", without effect"
        self.say(f"round {one.round}: {one.cell.fault} of {one.cell.role}: recovered {how}{came}")

    def _opened(self) -> HistoryRound | None:
        """Return the round that is open, None after the last or if none ever opens."""
        deadline = time.monotonic() + LONGEST_ROUND_SECONDS
        while time.monotonic() < deadline:
            # A round may have gone by while an audit ran: nothing was done in it.
            while (quiet := self._watch.ended()) is not None:
                away = frozenset(c for seat in self._recoveries.away() for c in seat.clients)
                self._count(quiet, None, away, _UNKNOWN if away else _WHOLE)
                self.say(_line(quiet, None, _WHOLE))
            one = self._watch.open()
            if one is not None:
                return one
            if self._watch.is_finished():
                return None
            time.sleep(_POLL_SECONDS / 2)
        return None

    def _ended(self, done: Disturbance | None) -> WatchedRound | None:
        deadline, asked_at = time.monotonic() + LONGEST_ROUND_SECONDS, 0.0
        while (now := time.monotonic()) < deadline:
            if done is not None:
                done.step()
            # The node answers all workers, too.
            if now >= asked_at + _CHAIN_POLL_SECONDS:
                asked_at = now
                ended = self._watch.ended()
                if ended is not None:
                    return ended
            self._recoveries.look(self._newest)
            self._restart_ended(done)
            time.sleep(_POLL_SECONDS)
        return None

    def _wait_for_recoveries(self) -> None:
        while self._recoveries.open:
            with suppress(ChainError):
                self._newest = self._ledger.state().round
            self._recoveries.look(self._newest)
            self._restart_ended(None)
            time.sleep(_POLL_SECONDS)

    def _restart_ended(self, done: Disturbance | None) -> None:
        """Begin workers again that ended by themselves, but those that are to be down."""
        now = time.monotonic()
        if now < self._looked_up_at + _UP_POLL_SECONDS:
            return
        self._looked_up_at = now
        disturbed = () if done is None or done.lifted_at is not None else done.seats
        for seat in not_among(self.federation.seats, disturbed):
            if not seat.is_up():
                begun(seat)

    def _models(self, number: int) -> dict[str, str]:
        """Return the model that each worker says it holds in a round, of those that are in it."""
        found = {}
        for seat in self.federation.seats:
            status = seat.status()
            if status.get("round") == number:
                found[seat.name] = str(status.get("model"))
        return found

    @property
    def _sizes(self) -> Parameters:
        return self.federation.settings.configuration.parameters(dimension=1)

    def _too_few(self, one: HistoryRound) -> bool:
        """Say whether so many are banned that the next committee might not be filled."""
        left = sum(not client.banned_in for client in one.registry)
        return left < self._sizes.active + self._sizes.members

    def _inspect(self, cell: Cell | None) -> None:
        """Take the outcome of an inspection, and begin the next one where it is time."""
        self._take_inspected(self._inspection.taken())
        is_due = len(self.checks.untrained) >= INSPECTED_EVERY
        # What is about to be taken back is no history yet.
        is_safe = cell is None or cell.fault is not Fault.REORGANISED
        if is_due and is_safe and not self._inspection.is_running:
            self._begin_inspection()

    def _inspect_the_rest(self) -> None:
        self._take_inspected(self._inspection.taken(waits=True))
        with suppress(ChainError):
            self.checks.settled(self._ledger, has_ended=True)
        self._begin_inspection()
        self._take_inspected(self._inspection.taken(waits=True))

    def _begin_inspection(self) -> None:
        checks = self.checks
        self._inspection.begin(checks.earlier, checks.untrained, checks.liars)

    def _take_inspected(self, found: Inspected | None) -> None:
        if found is None:
            return
        self.checks.audited(found.report)
        self.checks.updates(found.differing)
        with suppress(ChainError):
            self.checks.history(self._ledger)
        self.state.audited += found.report.rounds - self._audited
        self._audited = found.report.rounds
        self._take_violations()

    def _take_violations(self) -> None:
        for one in self.checks.violations:
            self.say(f"VIOLATION {one.wrong}: round {one.round}, {one.fault}, {one.clients}")
        self.state.violations += self.checks.violations
        self.checks.violations.clear()


_WHOLE = Margin(members=0, trainers=0, bans=0)
_UNKNOWN = Margin(members=-1, trainers=0, bans=0)
"""Of a round that went by unseen, while somebody had not recovered."""


def _line(ended: WatchedRound, one: Recovery | None, margin: Margin) -> str:
    what = "nothing" if one is None else f"{one.cell.fault} of {one.cell.role}"
    how = (
        "abandoned"
        if ended.views is None
        else f"views {ended.views[0] + 1} and {ended.views[1] + 1}"
    )
    beyond = "" if margin.is_kept else ", too many away by chance"
    return f"round {ended.number}: {what}; {how} in {ended.seconds:.1f} s{beyond}"
