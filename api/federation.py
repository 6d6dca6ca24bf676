"""The mail of live federations: the open round, and the auditors' attestations.

Only signed data counts. Workers' own status files are not read: anyone could have written them.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from api import open_round
from api.histories import stage_name
from api.http import answers as kinds
from api.http.answers import ProblemError
from api.schemas import FederationAnswer, OpenRound, PacedRound
from ledger.actors.view import ChainView, RoundView
from ledger.chain.contract.deploy import deployed_domain
from ledger.chain.finality import LatestBlock
from ledger.chain.ports import Block, ChainReader
from ledger.history.round import read_run
from ledger.history.training import TrainingAnswer, training_coverage
from ledger.protocol.documents.envelope import EnvelopeKind
from ledger.protocol.errors import BlobError, ConfigurationError
from ledger.protocol.inputs import Evidence, Inputs
from ledger.protocol.ledger_state import LedgerStage
from ledger.protocol.parameters import Parameters
from ledger.storage.blobs import FolderObjects, ObjectStore, parse_locations
from ledger.storage.mailbox import Mailbox
from ledger.storage.opening import ReplicatedObjects, mail_objects_at, mailbox_at

if TYPE_CHECKING:
    from api.histories import ServedDeployment
    from api.http.answers import RequestView
    from api.settings import Settings
    from ledger.history.history import FoldedHistory
    from ledger.history.round import HistoryRound

_log = logging.getLogger(__name__)

BATCH_SIZE = 4_096
"""Envelopes of one kind that one reading checks; the next reading checks the rest."""

_KINDS = (EnvelopeKind.PAYLOAD, EnvelopeKind.SCORES, EnvelopeKind.REQUEST, EnvelopeKind.REPLY)


FRESH_SECONDS = 1.0  # how long a snapshot is used while no block comes
FIRST_SNAPSHOT_SECONDS = 2.0
"""How long a request waits for the first snapshot, or the mailbox, that another request reads."""
SHOWN_ROUNDS = 10

MAX_UPDATES, MAX_SECONDS = 5_000, 5.0
"""Updates and time after which an answer about coverage ends: its reader holds a thread."""


class ChainTime:
    """The newest block's time, and the seconds since it was first seen: never ahead of its blocks.

    With a wall clock every client would seem late where the chain falls behind, or where the
    service's clock is ahead. Like a worker (`clients/worker/background.py`), this drops the time of
    a block that the chain does not have any more.
    """

    def __init__(self) -> None:
        self._newest: bytes | None = None
        self._latest = LatestBlock()
        self._ahead = 0.0
        self._last = 0.0

    def now(self, newest: Block, steady: float) -> float:
        """Return the time in the chain's seconds, given a monotonic clock's."""
        if self._latest.is_gone(newest):
            self._last = 0.0
        if newest.hash != self._newest:
            self._newest, self._ahead = newest.hash, newest.timestamp - steady
        self._last = max(self._last, self._ahead + steady)
        return self._last


@dataclass(frozen=True, slots=True)
class FederationSnapshot:
    """The state of a federation at a block."""

    answer: FederationAnswer
    block_hash: bytes
    taken_at: float

    def differs_from(self, other: FederationSnapshot | None) -> bool:
        if other is None:
            return True
        own, others = (
            {**each.answer, "now": 0.0, "mailbox": each.answer["mailbox"]["read"]}
            for each in (self, other)
        )
        return own != others


class FederationMonitor:
    """The federations whose mail one service reads; safe to share between threads.

    One thread reads a federation's mail at a time, and the others get the latest snapshot: a
    mailbox that does not answer blocks one thread only. The clock is monotonic, in seconds.
    """

    def __init__(self, settings: Settings, clock: Callable[[], float] = time.monotonic) -> None:
        self._location = settings.mailbox
        self.is_enabled = self._location is not None
        if self._location is not None:
            parse_locations("mailbox", self._location)
        self._blobs = settings.blob_folder
        self._clock = clock
        self._lock, self._coverage_lock = threading.Lock(), threading.Lock()
        self._chain: ChainReader | None = None
        self._deployments: dict[str, _MonitoredDeployment] = {}

    def snapshot(self, reading: RequestView, address: str) -> FederationSnapshot:
        if self._location is None:
            raise ProblemError(kinds.FEDERATION_NOT_WATCHED, "this service does not read a mailbox")
        served, chain = reading.deployment(address), reading.chain
        with self._lock:
            # A chain that is opened anew starts without any.
            if self._chain is not chain.chain:
                self._chain, self._deployments = chain.chain, {}
            deployment = self._deployments.setdefault(
                served.manifest.address, _MonitoredDeployment(self._location)
            )
        latest, moment = deployment.latest, self._clock()
        if latest is not None and (
            latest.block_hash == chain.block.hash and moment - latest.taken_at < FRESH_SECONDS
        ):
            return latest
        if not deployment.lock.acquire(timeout=FIRST_SNAPSHOT_SECONDS if latest is None else 0):
            if latest is None:
                raise ProblemError(kinds.BUSY, "another request is reading the mailbox")
            return latest
        try:
            deployment.latest = deployment.take_snapshot(reading, served, self._clock())
            return deployment.latest
        finally:
            deployment.lock.release()

    def coverage(
        self, reading: RequestView, address: str, rounds: tuple[int | None, int | None]
    ) -> TrainingAnswer:
        """Return the coverage of ended rounds that fit; without a mailbox, it reads the blobs."""
        history = reading.history(address)
        domain = deployed_domain(history.ledger, allow_unknown_creation=True)
        if not self._coverage_lock.acquire(timeout=FIRST_SNAPSHOT_SECONDS):
            raise ProblemError(kinds.BUSY, "another request is reading the mailbox")
        try:
            place, end = self._location, self._clock() + MAX_SECONDS
            mailbox = Mailbox(FolderObjects(self._blobs)) if place is None else mailbox_at(place)

            def is_enough(updates: int) -> bool:
                return updates >= MAX_UPDATES or self._clock() >= end

            return training_coverage(history, domain, mailbox, rounds, is_enough)
        except ConfigurationError as error:
            raise ProblemError(kinds.REQUEST_INVALID, str(error)) from error
        except (BlobError, OSError) as error:
            _log.warning("the mailbox cannot be read for attestations: %s", error)
            raise ProblemError(
                kinds.MAILBOX_UNREADABLE, "the mailbox does not respond; retry later"
            ) from error
        finally:
            self._coverage_lock.release()


class _MonitoredDeployment:
    """One deployment and its open round, by the mail of one reader; for one thread at a time."""

    def __init__(self, location: str) -> None:
        self.lock = threading.Lock()
        self.latest: FederationSnapshot | None = None
        self._time = ChainTime()
        self._parameters: Parameters | None = None
        self._location = location
        self._objects: ObjectStore | None = None
        self._mailbox: Mailbox | None = None
        self._view: RoundView | None = None
        self._positions: dict[EnvelopeKind, int] = {}
        self._first_seen = open_round.FirstSeen()
        self._read_at: float | None = None
        self._is_read = True

    def take_snapshot(
        self, reading: RequestView, served: ServedDeployment, taken_at: float
    ) -> FederationSnapshot:
        chain = reading.chain
        history, stage = chain.history(served), chain.state(served).stage
        newest = history.newest()
        rounds = history.rounds(max(1, newest - SHOWN_ROUNDS + 1), newest) if newest else []
        moment = self._time.now(chain.block, taken_at)
        status: OpenRound | None = None
        if rounds and stage is LedgerStage.OPEN and rounds[-1].ended is None:
            view = self._chain(reading, served, rounds[-1])
            status = self._status(view, history.time_of, moment)
        reading.verify_unmoved()
        answer: FederationAnswer = {
            "as_of": reading.as_of,
            "now": round(moment, 3),
            "stage": stage_name(stage),
            "view_seconds": self._parameters_of(reading, served).view_seconds,
            "mailbox": {"read": self._is_read, "read_at": self._read_at},
            "open": status,
            "rounds": [_paced(history, each) for each in reversed(rounds)],
            "links": {
                "self": f"{history.path}/federation",
                "events": f"{history.path}/federation/events",
                "deployment": str(history.path),
            },
        }
        return FederationSnapshot(answer, chain.block.hash, taken_at)

    def _chain(
        self, reading: RequestView, served: ServedDeployment, current: HistoryRound
    ) -> ChainView:
        """Return the open round, with the newest block taken for final: a view does not vote."""
        return ChainView(
            parameters=self._parameters_of(reading, served),
            domain=served.manifest.domain(),
            registry=current.registry,
            round=current.round,
            seed=current.seed,
            committee=current.committee,
            opened_block=current.opening.opened_block,
            final_block=reading.chain.block.number,
            commitments=current.mined,
        )

    def _parameters_of(self, reading: RequestView, served: ServedDeployment) -> Parameters:
        """Return the parameters of the run's document, if the contract has them."""
        if self._parameters is None:
            fixed = served.fixed
            document = read_run(reading.chain.blobs, fixed.config)
            if document is None or any(
                getattr(document.parameters, name) != getattr(fixed, name) for name in _FIXED
            ):
                raise ProblemError(kinds.BLOB_NOT_FOUND, f"{fixed.config.hex()} is missing")
            self._parameters = document.parameters
        return self._parameters

    def _status(self, chain: ChainView, block_time: open_round.BlockTimes, now: float) -> OpenRound:
        """Read new mail, and return the status of the open round at a time of the chain."""
        inputs = chain.inputs()
        if inputs is None:
            self._view = None
            return open_round.round_before_closing(chain, block_time)
        view = self._view_of(inputs, float(block_time(inputs.closing.block)))
        self._view = view = self._with_mail(view, now)
        self._first_seen = self._first_seen.after_poll(view, now)
        return open_round.round_after_closing(
            chain, view, self._first_seen, now, block_time, mailbox_is_readable=self._is_read
        )

    def _view_of(self, inputs: Inputs, closed_at: float) -> RoundView:
        """Return the view of these inputs; an empty one after a reorganisation."""
        view = self._view
        if view is None or _identity(view.inputs) != _identity(inputs):
            self._positions, self._first_seen = {}, open_round.FirstSeen()
            parameters = inputs.parameters
            evidence = Evidence(None, {}, {}, parameters.dimension, form=parameters.payload_form)
            return RoundView(inputs, closed_at, evidence)
        if view.inputs == inputs and view.closed_at == closed_at:
            return view
        return replace(view, inputs=inputs, closed_at=closed_at)  # a client was banned since

    def _with_mail(self, view: RoundView, now: float) -> RoundView:
        round_ = (view.inputs.domain, view.inputs.round)
        try:
            if self._mailbox is None:
                self._objects = mail_objects_at(self._location)
                self._mailbox = Mailbox(self._objects)
            if not self._positions:
                self._mailbox.forget(*round_)
            is_complete, outages = True, self._outages()
            for kind in _KINDS:
                start = self._positions.get(kind, 0)
                batch = self._mailbox.listed(*round_, kind, start)[:BATCH_SIZE]
                self._positions[kind] = start + len(batch)
                is_complete &= len(batch) < BATCH_SIZE
                view = view.with_envelopes(batch) if batch else view
        except (BlobError, OSError) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            _log.warning("the mailbox cannot be read: %s", reason or error)
            self._is_read = False
            return view
        # One of several stores that is away may alone have some client's mail.
        self._is_read = is_complete and self._outages() == outages
        self._read_at = now if self._is_read else self._read_at
        return view

    def _outages(self) -> int:
        return self._objects.outages if isinstance(self._objects, ReplicatedObjects) else 0


def _identity(inputs: Inputs) -> tuple[object, ...]:
    participants, closing = inputs.participants, inputs.closing
    return inputs.domain, inputs.round, inputs.seed, participants, closing.block, closing.base


_FIXED = ("clients", "trainers", "members", "commit_blocks", "deadline_blocks", "replies")


def _paced(history: FoldedHistory, round_: HistoryRound) -> PacedRound:
    opened = open_round.block_in_time(round_.opening.opened_block, history.time_of)
    ended = history.end_block(round_)
    return {
        "round": round_.round,
        "status": round_.status,
        "views": round_.decided.views if round_.decided else None,
        "opened": opened,
        "ended": ended,
        "seconds": None if ended is None else max(0, ended["time"] - opened["time"]),
    }
