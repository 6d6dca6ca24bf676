"""Supervision of a test network: it restarts ended processes, and kills workers on request.

A chain in a file and a store are restarted like workers; a chain in memory is lost with its
process.
"""

from __future__ import annotations

import time
from collections import defaultdict, deque
from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING

from clients.testnet.kinds import ChainKind
from ledger.io.forked_commands import CommandError

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np

    from clients.testnet.local_network import LocalNetwork
    from clients.testnet.round_watch import RoundWatch, WatchedRound
    from clients.testnet.worker_slot import WorkerSlot
    from ledger.io.forked_commands import CommandProcess

MOST_RESTARTS = 5
RESTART_SECONDS = 60.0
"""What ends more often than that within this time has a reason to be looked at."""

_FIRST_ROUND_SECONDS = 6.0
_POLL_SECONDS = 0.1


class KillStep(Enum):
    """Next step of a planned kill."""

    NOTHING = auto()
    """Its time has not come, or it is over: the worker is minded like any other."""
    KILL = auto()
    WAIT = auto()
    """The worker is down because it was killed."""
    BEGIN = auto()


@dataclass
class PlannedKill:
    """Times at which a worker is killed and restarted; late polls only delay them.

    Attributes:
        at: time of the kill, in seconds.
        down_seconds: until the restart.
        is_over: whether it has been restarted.
    """

    at: float
    down_seconds: float
    is_over: bool = False
    _killed_at: float | None = None

    def turn(self, now: float, *, is_up: bool) -> KillStep:
        """Return the step that is due, and assume that it is done.

        Args:
            now: in seconds.
            is_up: whether the worker runs; one that has ended by itself is restarted first.
        """
        if self.is_over:
            return KillStep.NOTHING
        if self._killed_at is None:
            if now < self.at or not is_up:
                return KillStep.NOTHING
            self._killed_at = now
            return KillStep.KILL
        if now < self._killed_at + self.down_seconds:
            return KillStep.WAIT
        self.is_over = True
        return KillStep.BEGIN


@dataclass(frozen=True, slots=True)
class NetworkSummary:
    """Totals of a test network.

    Attributes:
        rounds: that ended.
        decided: rounds that a committee decided.
        seconds: of all rounds.
        kills: workers killed on purpose.
        restarts: workers restarted after they ended by themselves.
        chain_bytes: between workers and node.
        store_bytes: between workers and store; 0 for a folder.
    """

    rounds: int
    decided: int
    seconds: float
    kills: int
    restarts: int
    chain_bytes: int
    store_bytes: int

    @property
    def rounds_a_minute(self) -> float:
        """Ended rounds a minute."""
        return 60 * self.rounds / self.seconds if self.seconds else 0.0

    def bytes_a_round(self) -> int:
        """Return the bytes moved for one round."""
        return (self.chain_bytes + self.store_bytes) // max(1, self.rounds)


class NetworkSupervisor:
    """Supervises the workers of a network until its rounds are over.

    Attributes:
        federation: the network.
        watch: follows its rounds.
        faults: of workers, by slot.
        killed: workers killed in the newest round.
    """

    def __init__(
        self,
        federation: LocalNetwork,
        watch: RoundWatch,
        chaos: np.random.Generator | None = None,
        faults: dict[int, str] | None = None,
    ) -> None:
        """Prepare; no worker runs yet.

        Args:
            federation: the network.
            watch: follows its rounds.
            chaos: draws a worker to kill in each round, and the time; None to kill none.
            faults: of workers, by slot.
        """
        self.federation = federation
        self.watch = watch
        self.faults = faults or {}
        self._chaos = chaos
        self._ended: dict[str, deque[float]] = defaultdict(lambda: deque(maxlen=MOST_RESTARTS))
        self.killed: list[str] = []
        self._victim: tuple[WorkerSlot, PlannedKill] | None = None
        self._kills = 0
        self._restarts = 0

    def start(self) -> None:
        """Start every worker, some with faults."""
        self.federation.start_workers(self.faults)

    def play(
        self,
        rounds: int,
        on_round: Callable[[WatchedRound], None],
        patience_seconds: float,
        on_look: Callable[[], None] = lambda: None,
    ) -> NetworkSummary:
        """Supervise the workers until a number of rounds, or the last one, has ended.

        Args:
            rounds: at most.
            on_round: called with each ended round.
            patience_seconds: limit of one round.
            on_look: called at every poll.

        Raises:
            CommandError: a round does not end, or a process ends again and again.
        """
        begun, moved = time.monotonic(), self._moved()
        ended: list[WatchedRound] = []
        last = begun
        self._plan(_FIRST_ROUND_SECONDS)
        while len(ended) < rounds:
            on_look()
            is_finished = self.watch.is_finished()
            watched = self.watch.ended()
            if watched is None:
                if is_finished:
                    break
                self._mind()
                self._require_progress(last, patience_seconds)
                time.sleep(_POLL_SECONDS)
                continue
            last = time.monotonic()
            ended.append(watched)
            on_round(watched)
            self.killed.clear()
            self._plan(watched.seconds)
        chain_bytes, store_bytes = self._moved()
        return NetworkSummary(
            rounds=len(ended),
            decided=sum(round_.is_decided for round_ in ended),
            seconds=last - begun,
            kills=self._kills,
            restarts=self._restarts,
            chain_bytes=chain_bytes - moved[0],
            store_bytes=store_bytes - moved[1],
        )

    def _plan(self, seconds: float) -> None:
        """Draw a worker to kill in the open round, and the time."""
        if self._chaos is None or (self._victim is not None and not self._victim[1].is_over):
            return
        honest = [seat for seat in self.federation.seats if seat.number not in self.faults]
        at = time.monotonic() + float(self._chaos.uniform(0, seconds / 2))
        kill = PlannedKill(at, down_seconds=float(self._chaos.uniform(0.1, 1.0)))
        self._victim = honest[int(self._chaos.integers(len(honest)))], kill

    def _mind(self) -> None:
        now = time.monotonic()
        if self._victim is not None:
            victim, kill = self._victim
            turn = kill.turn(now, is_up=victim.is_up())
            if turn is KillStep.KILL:
                victim.kill()
                self.killed.append(victim.name)
                self._kills += 1
            elif turn is KillStep.BEGIN:
                victim.start(self.faults.get(victim.number))
            if turn in {KillStep.KILL, KillStep.WAIT}:
                return  # it is down because we want it to be
        for seat in self.federation.seats:
            if seat.process is not None and seat.process.code() not in {None, 0}:
                self._require_few(seat.process, now)
                self._restarts += 1
                seat.start(self.faults.get(seat.number))
        self._mind_others(now)

    def _mind_others(self, now: float) -> None:
        """Restart chain and store if they have ended.

        Raises:
            CommandError: one has ended too often, or cannot be restarted.
        """
        node, store = self.federation.node, self.federation.store
        if node.process.code() is not None:
            self._require_few(node.process, now)
            if node.kind is ChainKind.ANVIL:
                raise CommandError(f"the node has ended, and its chain with it: {node.kind}")
            node.start()
        if store is not None and store.code() is not None:
            self._require_few(store, now)
            self.federation.restart_store()

    def _require_few(self, process: CommandProcess, now: float) -> None:
        """Accept that a process has ended by itself (CommandError: it has ended too often)."""
        before = self._ended[process.name]
        if len(before) == MOST_RESTARTS and now - before[0] < RESTART_SECONDS:
            raise CommandError(
                f"{process.name} has ended {MOST_RESTARTS + 1} times within {RESTART_SECONDS:g} s: "
                f"{process.log_tail()}"
            )
        before.append(now)

    def _require_progress(self, last: float, patience_seconds: float) -> None:
        if time.monotonic() - last > patience_seconds:
            raise CommandError(f"no round has ended for {patience_seconds:g} s")

    def _moved(self) -> tuple[int, int]:
        """Return the bytes that have passed the workers' relays, to node and store."""
        paths = [seat.paths for seat in self.federation.seats]
        stores = [path.store.bytes_moved for path in paths if path.store is not None]
        return sum(path.chain.bytes_moved for path in paths), sum(stores)
