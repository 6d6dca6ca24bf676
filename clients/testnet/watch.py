"""Following a test network: its rounds by chain and blobs, its logs, and processes that end."""

from __future__ import annotations

import os
import time
from collections import defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from clients.testnet import ChainKind
from clients.testnet.network import LocalNetwork
from ledger.chain.contract.ledger import CommitteeLedger
from ledger.history.history import FoldedHistory
from ledger.history.round import HistoryRound, read_documents
from ledger.io.processes import CommandError, CommandProcess
from ledger.protocol.errors import ChainError
from ledger.protocol.ledger_state import LedgerStage
from ledger.protocol.types import ClientId, Digest, DropoutReason
from ledger.storage.blobs import BlobReader

MOST_RESTARTS = 5
RESTART_SECONDS = 60.0
"""What ends more often than that within this time has a reason to be looked at."""

_POLL_SECONDS = 0.1
_MOST_AT_ONCE = 1 << 20


@dataclass(frozen=True, slots=True)
class WatchedRound:
    """An ended round, by chain and record; without views it was abandoned."""

    number: int
    seconds: float
    views: tuple[int, int] | None
    accepted: tuple[ClientId, ...]
    late: tuple[ClientId, ...]  # active clients without a commitment by the closing block
    unusable: tuple[ClientId, ...]  # with a commitment, whose payload is not in the record
    refused: tuple[ClientId, ...]
    banned: tuple[ClientId, ...]
    model: Digest | None
    head: Digest
    malformed: tuple[ClientId, ...] = ()  # unusable clients whose payload is not d finite numbers
    accused: tuple[ClientId, ...] = ()

    @property
    def is_decided(self) -> bool:
        return self.views is not None


class RoundWatch:
    """Follows the rounds of a contract in order."""

    def __init__(
        self, ledger: CommitteeLedger, blobs: BlobReader, now: Callable[[], float]
    ) -> None:
        """Start at round 1; `now` returns seconds by the watcher's clock."""
        self.ledger, self._blobs, self._now = ledger, blobs, now
        self._next, self._since = 1, now()

    def is_finished(self) -> bool:
        try:
            return self.ledger.state().stage is not LedgerStage.OPEN
        except ChainError:
            return False

    def open(self) -> HistoryRound | None:
        try:
            round_ = FoldedHistory.of(self.ledger, self._blobs).round(self._next)
        except ChainError:
            return None
        return round_ if round_ is not None and round_.ended is None else None

    def ended(self) -> WatchedRound | None:
        try:
            # Polled many times a second: all else is read once a round has ended.
            now_open = self.ledger.state()
            if now_open.round <= self._next and now_open.stage is LedgerStage.OPEN:
                return None
            round_ = FoldedHistory.of(self.ledger, self._blobs).round(self._next)
        except ChainError:
            return None
        if round_ is None or round_.end is None:
            return None
        now = self._now()
        watched = self._watched(round_, round_.end.head, now - self._since)
        self._next, self._since = self._next + 1, now
        return watched

    def _watched(self, round_: HistoryRound, head: Digest, seconds: float) -> WatchedRound:
        documents, decided = read_documents(self._blobs, round_), round_.decided
        refused, malformed, unusable = set[ClientId](), set[ClientId](), set[ClientId]()
        if (record := documents.record) is not None:
            refused = {each.signed.scores.member for each in record.refused}
            unusable = {*round_.counted} - {update.client for update in record.updates}
            reason = DropoutReason.PAYLOAD_MALFORMED
            malformed = {each.client for each in record.dropouts if each.reason is reason}
        return WatchedRound(
            number=round_.round,
            seconds=seconds,
            views=None if decided is None else decided.views,
            accepted=() if decided is None else decided.accepted,
            late=tuple(sorted(round_.participants.expected - round_.counted)),
            unusable=tuple(sorted(unusable)),
            refused=tuple(sorted(refused)),
            banned=tuple(round_.bans),
            model=None if decided is None else decided.model,
            head=head,
            malformed=tuple(sorted(malformed)),
            accused=tuple(sorted({i.member for i in documents.reported_incidents if i.votes})),
        )


class LogFollower:
    """Follows the logs in a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._read: dict[Path, int] = {}

    def show(self, say: Callable[[str], None]) -> None:
        """Print the complete lines since the last call; a line without end is printed in pieces."""
        for path in sorted(self._folder.glob("*.log")):
            with path.open("rb") as file:
                start = self._read.get(path, 0)
                if start > file.seek(0, os.SEEK_END):
                    start = 0  # it was cut meanwhile
                file.seek(start)
                data = file.read(_MOST_AT_ONCE)
            whole = data[: data.rfind(b"\n") + 1]
            if len(data) == _MOST_AT_ONCE and not whole:
                whole = data
            self._read[path] = start + len(whole)
            for line in whole.decode("utf-8", "replace").splitlines():
                say(f"{path.stem}: {line}")


@dataclass(frozen=True, slots=True)
class NetworkSummary:
    """Totals of a test network; restarts are of workers that ended by themselves."""

    rounds: int
    decided: int
    seconds: float
    restarts: int

    @property
    def rounds_a_minute(self) -> float:
        return 60 * self.rounds / self.seconds if self.seconds else 0.0


class NetworkSupervisor:
    """Supervises the processes of a network until its rounds are over; restarts what ends."""

    def __init__(self, federation: LocalNetwork, watch: RoundWatch) -> None:
        self.federation, self.watch = federation, watch
        self._ended: dict[str, deque[float]] = defaultdict(lambda: deque(maxlen=MOST_RESTARTS))
        self._restarts = 0

    def play(
        self,
        rounds: int,
        on_round: Callable[[WatchedRound], None],
        patience_seconds: float,
        on_look: Callable[[], None] = lambda: None,
    ) -> NetworkSummary:
        """Supervise the workers until a number of rounds, or the last one, has ended."""
        begun = time.monotonic()
        ended: list[WatchedRound] = []
        last = begun
        while len(ended) < rounds:
            on_look()
            is_finished = self.watch.is_finished()
            watched = self.watch.ended()
            if watched is None:
                if is_finished:
                    break
                self._mind()
                if time.monotonic() - last > patience_seconds:
                    raise CommandError(f"no round has ended for {patience_seconds:g} s")
                time.sleep(_POLL_SECONDS)
                continue
            last = time.monotonic()
            ended.append(watched)
            on_round(watched)
        return NetworkSummary(
            rounds=len(ended),
            decided=sum(round_.is_decided for round_ in ended),
            seconds=last - begun,
            restarts=self._restarts,
        )

    def _mind(self) -> None:
        now = time.monotonic()
        for seat in self.federation.seats:
            if seat.process is not None and seat.process.code() not in {None, 0}:
                self._require_few(seat.process, now)
                self._restarts += 1
                seat.start()
        node, store = self.federation.node, self.federation.store
        if node.process.code() is not None:
            self._require_few(node.process, now)
            if node.kind is ChainKind.ANVIL:
                raise CommandError(f"the node ({node.kind}) has ended, and its chain is lost")
            node.start()
        if store is not None and store.code() is not None:
            self._require_few(store, now)
            self.federation.restart_store()

    def _require_few(self, process: CommandProcess, now: float) -> None:
        before = self._ended[process.name]
        if len(before) == MOST_RESTARTS and now - before[0] < RESTART_SECONDS:
            raise CommandError(
                f"{process.name} has ended {MOST_RESTARTS + 1} times within {RESTART_SECONDS:g} s: "
                f"{process.log_tail()}"
            )
        before.append(now)
