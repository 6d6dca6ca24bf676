"""The process of one audit: its task, resource limits and messages.

A message is a kind byte and JSON, never a pickled object. A process without a verdict gives the
reason by its exit code, which needs no memory.
"""

from __future__ import annotations

import json
import os
import resource
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum, IntEnum
from typing import TYPE_CHECKING, Any

from ledger.audit.earlier_report import EarlierReportError, read_report, report_bytes
from ledger.audit.engine import AuditOptions, audit
from ledger.chain.contract.committee_ledger import CommitteeLedger
from ledger.chain.embedded.embedded_reader import EmbeddedReader
from ledger.distances.fast import fast_distances
from ledger.history.documents import read_run
from ledger.io.own_rules import sources_of
from ledger.io.processes import follow_parent
from ledger.protocol.errors import ChainError
from ledger.protocol.types import Digest
from ledger.storage.blobs import FolderBlobs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from multiprocessing.connection import Connection
    from pathlib import Path

    from ledger.audit.report import AuditReport
    from ledger.audit.result_log import AuditProgress
    from ledger.chain.ports import ChainReader


NICENESS = 5
"""Requests come first."""
SECONDS_BETWEEN = 0.2
"""Least time between two progress messages, so that a short round costs none."""


class Exit(IntEnum):
    """Why a process ended without a verdict."""

    FAULT = 1
    MEMORY = 71
    CHAIN = 72
    EARLIER_REPORT = 73


class Message(bytes, Enum):
    """Kind of a message."""

    PROGRESS = b"p"
    SUMMARY = b"s"
    REPORT = b"r"


@dataclass(frozen=True, slots=True)
class AuditTask:
    """One audit with its resource limits.

    Attributes:
        chain_file: the embedded chain.
        rpc_url: a node to read instead; it may hold a secret.
        rpc_timeout_seconds: how long one answer of the node may take.
        chain_id: that the chain must have.
        genesis: hash of block 0 that it must have.
        address: of the contract.
        from_block: that created it.
        blob_folder: where the blobs are.
        strict: whether remarks leave the audit open.
        head: that the auditor has kept; None for none.
        earlier: the report that it builds on; None for none.
        memory_bytes: that the process may ask for.
        cpu_seconds: that it may take.
        rules: files or packages of own rules that the operator trusts; those of the run are run.
    """

    chain_file: Path
    rpc_url: str | None = field(repr=False)
    rpc_timeout_seconds: float
    chain_id: int
    genesis: bytes
    address: str
    from_block: int
    blob_folder: Path
    strict: bool
    head: bytes | None
    earlier: bytes | None = field(repr=False)
    memory_bytes: int
    cpu_seconds: int
    rules: tuple[str, ...] = ()


def run_task(task: AuditTask, out: Connection) -> None:
    """Audit, and send progress, summary and report; an exit code says why there is no verdict."""
    follow_parent()
    limit_resources(task.memory_bytes, task.cpu_seconds)
    with exit_codes():
        report = run_audit(task, _ProgressSender(out).tell)
        out.send_bytes(Message.SUMMARY + json.dumps(summary_of(report)).encode())
        out.send_bytes(Message.REPORT + report_bytes(report))


def run_audit(task: AuditTask, tell: Callable[[AuditProgress], None]) -> AuditReport:
    """Return the report of an audit over its own view of chain and blobs."""
    earlier = None if task.earlier is None else read_report(task.earlier)
    with _chain(task) as chain:
        ledger = CommitteeLedger(chain, task.address, task.from_block)
        blobs = FolderBlobs(task.blob_folder)
        return audit(
            ledger,
            blobs,
            AuditOptions(
                progress=tell, distances=fast_distances(1), rules=_rules(task, ledger, blobs)
            ),
            head=None if task.head is None else Digest(task.head),
            strict=task.strict,
            earlier=earlier,
        )


def _rules(task: AuditTask, ledger: CommitteeLedger, blobs: FolderBlobs) -> tuple[str, ...]:
    """Return the operator's files and packages with a rule of the run."""
    document = read_run(blobs, ledger.deployment().config) if task.rules else None
    return () if document is None else sources_of(document.parameters, task.rules)


def summary_of(report: AuditReport) -> dict[str, Any]:
    """Return verdict and steps of a report, as answers have them.

    Args:
        report: of an audit.
    """
    facts = report.deployment
    named = {
        int(client)
        for step in report.steps
        if step.contradiction is not None
        for client in step.contradiction.clients
    }
    verdict = {
        "outcome": str(report.outcome),
        "rounds": report.rounds,
        "whole": report.built_on is None,
        "block": facts["head_block"],
        "block_hash": facts["head_block_hash"] or None,
        "head": facts["head"] or None,
        "final_head": facts["final_head"] or None,
        "remarks": report.remarks,
        "named": sorted(named),
    }
    steps = [
        {
            "number": int(step.number),
            "outcome": str(step.outcome),
            "contradictions": step.contradictions,
            "missing_count": step.missing_count,
        }
        for step in report.steps
    ]
    return {
        "verdict": verdict,
        "progress": {"done": report.rounds, "total": report.rounds, "steps": steps},
    }


class _ProgressSender:
    """Sends progress, the first at once and then not too often."""

    def __init__(self, out: Connection) -> None:
        self._out = out
        self._next = 0.0

    def tell(self, now: AuditProgress) -> None:
        clock = time.monotonic()
        if clock >= self._next or now.done == now.total:
            self._next = clock + SECONDS_BETWEEN
            self._out.send_bytes(Message.PROGRESS + json.dumps(now.as_dict()).encode())


@contextmanager
def _chain(task: AuditTask) -> Iterator[ChainReader]:
    """Open the chain that a task names, and no other."""
    if task.rpc_url is None:
        with EmbeddedReader.open(
            task.chain_file, chain_id=task.chain_id, genesis_hash=task.genesis
        ) as file:
            yield file
        return
    # A file needs none of what speaks to nodes, which takes a second to load.
    from ledger.chain.rpc.rpc_reader import RpcReader, RpcSettings  # noqa: PLC0415

    patience = RpcSettings(request_timeout_seconds=task.rpc_timeout_seconds)
    with RpcReader(
        task.rpc_url, chain_id=task.chain_id, genesis_hash=task.genesis, settings=patience
    ) as node:
        yield node


def limit_resources(memory_bytes: int, cpu_seconds: int) -> None:
    """Bound what this process may take, and let others go first."""
    # Not the address space: a chain file, libraries and threads reserve much and use little of it.
    resource.setrlimit(resource.RLIMIT_DATA, (memory_bytes, memory_bytes))
    resource.setrlimit(resource.RLIMIT_CPU, (cpu_seconds, cpu_seconds + 5))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.nice(NICENESS)


@contextmanager
def exit_codes() -> Iterator[None]:
    """Turn what keeps an audit from a verdict into the process's exit code.

    Yields:
        Nothing.

    Raises:
        SystemExit: with that code.
    """
    try:
        yield
    except MemoryError:
        raise SystemExit(Exit.MEMORY) from None
    except EarlierReportError:
        raise SystemExit(Exit.EARLIER_REPORT) from None
    except ChainError:
        raise SystemExit(Exit.CHAIN) from None
