"""Runs played in this process, and their updates repeated."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from clients.replay.replay_inputs import RecordedRun, ReplayRequest, recorded_run
from clients.replay.results import TrainingReplay
from clients.replay.training_replay import replay_run
from clients.training.engine_factory import environment_here
from clients.training.port import TrainingPath
from ledger.history.history import FoldedHistory
from ledger.protocol.documents.run import decode_run
from ledger.protocol.training_replay import ReplayVerdict, TrainingEnvironment
from ledger.protocol.types import ClientId

if TYPE_CHECKING:
    from tests.clients.played import Played

CLEAN = ReplayRequest()
SAME, OTHER, NOT_CHECKABLE = ReplayVerdict


def here(path: TrainingPath = "plain") -> TrainingEnvironment:
    return environment_here(path, "cpu")


def run_of(played: Played, request: ReplayRequest = CLEAN) -> RecordedRun:
    history = FoldedHistory.of(played.ledger, played.blobs)
    document = decode_run(played.blobs.get(history.fixed.config))
    return recorded_run(history, played.domain, document, request)


def repeated(
    played: Played,
    request: ReplayRequest = CLEAN,
    *,
    recorded: TrainingEnvironment | None = None,
    workers: int = 1,
) -> TrainingReplay:
    path = played.run.configuration.training.path
    assert path != "auto"
    was = here(path) if recorded is None else recorded
    request = replace(request, jobs=workers)
    run = run_of(played, request)
    return replay_run(run, played.blobs, request, lambda _round, _client: was)


def verdicts(result: TrainingReplay) -> dict[ClientId, set[ReplayVerdict]]:
    by_client: dict[ClientId, set[ReplayVerdict]] = {}
    for update in result.updates:
        by_client.setdefault(update.client, set()).add(update.verdict)
    return by_client
