"""Rounds in processes: the report is the same byte for byte, and what ends one is no verdict."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledger.audit import round_checker
from ledger.audit.engine import AuditOptions, audit
from ledger.audit.report import AuditOutcome, AuditReport, BlobKind
from ledger.audit.report_text import readable
from ledger.audit.round_checker import AuditWorkers
from ledger.io.processes import ChildEndedError
from ledger.protocol.ledger_state import RoundDecided
from ledger.protocol.types import Digest
from ledger.storage.blobs import BlobReader, FolderBlobs
from tests.audit.blobs import ChangedBlobs, kinds
from tests.audit.remembered import remembered
from tests.faults import times

if TYPE_CHECKING:
    from tests.audit.runs import Run


class PoolHere:
    """What a pool of processes does, in this one, and as late as it may."""

    def __init__(self, under_way: list[int] | None = None) -> None:
        self.begun: list[Future[Any]] = []
        self.under_way = [] if under_way is None else under_way

    def submit(self, work: Callable[..., Any], *arguments: object) -> Future[Any]:
        future: Future[Any] = LateFuture(partial(work, *arguments))
        self.begun.append(future)
        self.under_way.append(sum(not one.done() for one in self.begun))
        return future


class LateFuture(Future[Any]):
    """Work that is done when somebody waits for it."""

    def __init__(self, work: Callable[[], Any]) -> None:
        super().__init__()
        self._work = work

    def result(self, timeout: float | None = None) -> Any:
        if not self.done():
            self.set_result(self._work())
        return super().result(timeout)


@contextmanager
def pool_here(
    _processes: int, begin: Callable[..., None], arguments: tuple[object, ...]
) -> Iterator[PoolHere]:
    begin(*arguments)
    yield PoolHere()


def published(run: Run, folder: Path) -> FolderBlobs:
    blobs = FolderBlobs(folder)
    for digest in run.blobs.digests():
        blobs.put(run.blobs.get(digest))
    return blobs


def in_two_ways(run: Run, blobs: BlobReader, start_after_bytes: int = 0) -> tuple[AuditReport, ...]:
    workers, ledger = AuditWorkers(2, lambda: blobs, start_after_bytes), remembered(run.ledger)
    return audit(ledger, blobs), audit(ledger, blobs, AuditOptions(workers=workers))


def text_of(report: AuditReport) -> str:
    return json.dumps(report.as_dict())


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each round be a batch of its own, and workers be this process."""
    monkeypatch.setattr(round_checker, "worker_pool", pool_here)
    monkeypatch.setattr(round_checker, "ROUNDS_PER_BATCH", 1)


@pytest.mark.usefixtures("forked_children")
def test_real_processes_report_alike(
    honest: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(round_checker, "ROUNDS_PER_BATCH", 1)
    blobs = published(honest, tmp_path / "blobs")
    workers = AuditWorkers(2, partial(FolderBlobs, tmp_path / "blobs"), start_after_bytes=0)
    one = audit(honest.ledger, blobs)
    several = audit(honest.ledger, blobs, AuditOptions(workers=workers))
    assert several.outcome is AuditOutcome.PASSED, readable(several)
    assert text_of(one) == text_of(several)


def killed(_folder: Path) -> BlobReader:
    """Open no blobs, but be killed, as a machine without memory kills a process."""
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("dead")


@pytest.mark.usefixtures("forked_children")
def test_a_killed_process_is_an_error_and_no_verdict(honest: Run, tmp_path: Path) -> None:
    workers = AuditWorkers(1, partial(killed, tmp_path), start_after_bytes=0)
    with pytest.raises(ChildEndedError, match="a process ended before its work was done"):
        audit(honest.ledger, honest.blobs, AuditOptions(workers=workers))


def test_a_short_run_begins_no_process(honest: Run, tmp_path: Path) -> None:
    conduct = AuditOptions(workers=AuditWorkers(2, partial(killed, tmp_path)))
    report = audit(honest.ledger, honest.blobs, conduct)
    assert text_of(report) == text_of(audit(honest.ledger, honest.blobs))


@pytest.mark.usefixtures("here")
@settings(max_examples=times(8, 400))
@given(st.data())
def test_report_is_equal_whatever_blobs_change(honest: Run, data: st.DataObject) -> None:
    """Gone models above all: one process knows them from the rounds before."""
    events = [r.event for r in honest.ledger.recorded_in(0, honest.chain.head().number)]
    models = [e.model for e in events if isinstance(e, RoundDecided)]
    digests = [honest.document.initial_model, *models]
    others = [one for kind in (BlobKind.RECORD, BlobKind.PAYLOAD) for one in kinds(honest)[kind]]
    gone = data.draw(st.sets(st.sampled_from(digests)))
    gone |= data.draw(st.sets(st.sampled_from(others), max_size=2))
    wrong: dict[Digest, bytes | None] = dict.fromkeys(gone)
    for digest in data.draw(st.sets(st.sampled_from(sorted(gone)))) if gone else ():
        wrong[digest] = b"other bytes"
    start_after_bytes = data.draw(st.sampled_from([0, 0, 1, 3_000_001]))
    one, several = in_two_ways(honest, ChangedBlobs(honest.blobs, wrong), start_after_bytes)
    assert text_of(one) == text_of(several)
    assert (one.outcome is AuditOutcome.PASSED) == (not wrong)
