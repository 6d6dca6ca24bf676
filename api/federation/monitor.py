"""Looks at live federations for everybody who asks: once a second, and at each new block."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from api.federation.chain_time import ChainTime
from api.federation.mail import RoundMail
from api.federation.serialise import open_round, paced_round
from api.http.problems import BLOB_NOT_FOUND, BUSY, FEDERATION_NOT_WATCHED, ProblemError
from ledger.actors.view import ChainView
from ledger.history.documents import read_run
from ledger.history.serialise.deployments import stage_name
from ledger.protocol.ledger_state import LedgerStage
from ledger.storage.locations import parse_locations

if TYPE_CHECKING:
    from collections.abc import Callable

    from api.request_view import RequestView
    from api.schemas.federation import FederationAnswer, PacedRound
    from ledger.actors.status.open_round_status import OpenRoundStatus
    from ledger.history.chain_history import ChainHistory
    from ledger.history.deployments import ServedDeployment
    from ledger.history.round import Round
    from ledger.protocol.documents.run import RunDocument
    from ledger.protocol.ledger_state import Deployment
    from ledger.protocol.parameters import Parameters

KEPT_SECONDS = 1.0
"""How long a look is good for while no block comes."""

PATIENCE_SECONDS = 2.0
"""How long one waits for somebody else's first look."""

SHOWN_ROUNDS = 10


@dataclass(frozen=True, slots=True)
class FederationSnapshot:
    """What was seen of a federation.

    Attributes:
        answer: of the service.
        block_hash: of that block.
        taken_at: by the service's clock.
    """

    answer: FederationAnswer
    block_hash: bytes
    taken_at: float

    def is_good_for(self, block_hash: bytes, moment: float) -> bool:
        """Say whether one need not look again.

        Args:
            block_hash: of the newest block.
            moment: by the service's clock.
        """
        return block_hash == self.block_hash and moment - self.taken_at < KEPT_SECONDS

    def differs_from(self, other: FederationSnapshot | None) -> bool:
        """Say whether there is anything new in it but the time."""
        return other is None or _timeless(self.answer) != _timeless(other.answer)


class FederationMonitor:
    """The federations whose mail one service reads; safe to share between threads.

    One thread looks at a federation at a time, and whoever comes meanwhile is given what was seen
    last: a mailbox that does not answer holds up nobody but the thread that asks it.
    """

    def __init__(self, place: str | None, clock: Callable[[], float] = time.monotonic) -> None:
        """Take note of where the mail is; nothing is opened yet.

        Args:
            place: of the mailbox; None for a service that watches no federation.
            clock: tells seconds since anything, and is never set.

        Raises:
            BlobError: that is no place.
        """
        if place is not None:
            parse_locations("mailbox", place)
        self._place = place
        self._clock = clock
        self._lock = threading.Lock()
        self._opened = 0
        self._watched: dict[str, _Watched] = {}

    @property
    def are_watched(self) -> bool:
        """Whether this service reads a mailbox."""
        return self._place is not None

    def look(self, reading: RequestView, address: str) -> FederationSnapshot:
        """Return what is seen of a federation.

        Args:
            reading: of the chain.
            address: of the contract.

        Raises:
            ProblemError: no mailbox is read, no such deployment is served, its configuration is
                not here, or somebody else's first look takes long.
        """
        if self._place is None:
            raise ProblemError(FEDERATION_NOT_WATCHED, "this service reads no mailbox")
        served = reading.deployment(address)
        watched = self._of(reading, served, self._place)
        known, moment = watched.latest, self._clock()
        if known is not None and known.is_good_for(reading.chain.block.hash, moment):
            return known
        if not watched.lock.acquire(timeout=PATIENCE_SECONDS if known is None else 0):
            if known is None:
                raise ProblemError(BUSY, "the mailbox is being read for somebody else")
            return known
        try:
            watched.latest = seen = watched.look(reading, served, self._clock())
        finally:
            watched.lock.release()
        return seen

    def _of(self, reading: RequestView, served: ServedDeployment, place: str) -> _Watched:
        """Return what is known of a deployment; nothing of one chain is known of another's."""
        with self._lock:
            if self._opened != reading.chain.opened:
                self._opened, self._watched = reading.chain.opened, {}
            return self._watched.setdefault(served.manifest.address, _Watched(place))


class _Watched:
    """One deployment, and what is known of its open round."""

    def __init__(self, place: str) -> None:
        self.lock = threading.Lock()
        self.latest: FederationSnapshot | None = None
        self._mail = RoundMail(place)
        self._time = ChainTime()
        self._document: RunDocument | None = None
        self._ended: dict[int, PacedRound] = {}

    def look(
        self, reading: RequestView, served: ServedDeployment, taken_at: float
    ) -> FederationSnapshot:
        """Return what is seen now.

        Args:
            reading: of the chain.
            served: the deployment.
            taken_at: the time by the service's clock.

        Raises:
            ProblemError: its configuration is not here, or the chain moved meanwhile.
        """
        now = reading.chain
        history = now.history(served)
        newest = history.newest()
        rounds = history.rounds(max(1, newest - SHOWN_ROUNDS + 1), newest) if newest else []
        moment = self._time.now(now.block, taken_at)
        stage = now.state(served).stage
        status: OpenRoundStatus | None = None
        one = history.round(newest) if newest and stage is LedgerStage.OPEN else None
        if one is not None and one.ended is None:
            chain = self._chain(reading, served, one)
            inputs = chain.inputs()
            closed_at = 0.0 if inputs is None else float(history.time_of(inputs.closing.block))
            status = self._mail.standing(chain, closed_at, moment)
        reading.verify_unmoved()
        answer: FederationAnswer = {
            "as_of": reading.as_of,
            "now": round(moment, 3),
            "stage": stage_name(stage),
            "view_seconds": self._run(reading, served).parameters.view_seconds,
            "mailbox": {"read": self._mail.is_read, "read_at": self._mail.read_at},
            "open": None if status is None else open_round(history, status),
            "rounds": [self._paced(history, each) for each in reversed(rounds)],
            "links": {
                "self": f"{history.path}/federation",
                "events": f"{history.path}/federation/events",
                "deployment": str(history.path),
            },
        }
        return FederationSnapshot(answer, now.block.hash, taken_at)

    def _paced(self, history: ChainHistory, round_: Round) -> PacedRound:
        """Return a round's line; one that has ended in a final block is not read again."""
        cached = self._ended.get(round_.round)
        if cached is not None:
            return cached
        line = paced_round(history, round_)
        if round_.ended is not None and round_.ended.block_number <= history.final:
            first = round_.round - SHOWN_ROUNDS + 1
            self._ended = {n: kept for n, kept in self._ended.items() if n >= first}
            self._ended[round_.round] = line
        return line

    def _chain(self, reading: RequestView, served: ServedDeployment, one: Round) -> ChainView:
        """Return the open round, with the newest block taken for one that stays.

        What is shown is no vote: a block that is taken back is seen to be, and read again.
        """
        document = self._run(reading, served)
        return ChainView(
            parameters=document.parameters,
            layout=document.layout,
            domain=served.manifest.domain(),
            registry=one.registry,
            round=one.round,
            seed=one.seed,
            committee=one.committee,
            opened_block=one.opening.opened_block,
            final_block=reading.chain.block.number,
            commitments=one.mined,
        )

    def _run(self, reading: RequestView, served: ServedDeployment) -> RunDocument:
        """Return the run's configuration.

        Raises:
            ProblemError: it is not here, or another's.
        """
        config = served.fixed.config
        if self._document is None:
            found = read_run(reading.chain.blobs, config)
            if found is None or not _agree(found.parameters, served.fixed):
                raise ProblemError(BLOB_NOT_FOUND, f"{config.hex()} is not here")
            self._document = found
        return self._document


def _agree(parameters: Parameters, fixed: Deployment) -> bool:
    """Say whether a configuration says of a contract what the contract does."""
    names = ("clients", "trainers", "members", "commit_blocks", "deadline_blocks", "replies")
    return all(getattr(parameters, name) == getattr(fixed, name) for name in names)


def _timeless(answer: FederationAnswer) -> dict[str, object]:
    """Return an answer without the times at which it was made."""
    values = {name: value for name, value in answer.items() if name != "now"}
    return values | {"mailbox": answer["mailbox"]["read"]}
