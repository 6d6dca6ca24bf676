"""The process of one audit, which sends its report as bytes."""

from __future__ import annotations

import json
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from api.verifications.task import Message, exit_codes, limit_resources
from ledger.audit.audit_options import AuditOptions
from ledger.audit.earlier_report import read_report, report_bytes
from ledger.audit.engine import audit
from ledger.chain.contract.committee_ledger import CommitteeLedger
from ledger.chain.embedded.embedded_reader import EmbeddedReader
from ledger.distances.fast import fast_distances
from ledger.io.processes import follow_parent
from ledger.protocol.types import Digest
from ledger.storage.blobs import FolderBlobs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from multiprocessing.connection import Connection

    from api.verifications.task import AuditTask
    from ledger.audit.audit_options import AuditProgress
    from ledger.audit.report import AuditReport
    from ledger.chain.ports import ChainReader

SECONDS_BETWEEN = 0.2
"""Of progress that is told, so that a short round costs no message."""


def run_task(task: AuditTask, out: Connection) -> None:
    """Audit, and send progress, summary and report; the target of the process.

    Args:
        task: what is audited.
        out: where messages go.

    Raises:
        SystemExit: there is no verdict; its code says why.
    """
    follow_parent()
    limit_resources(task.memory_bytes, task.cpu_seconds)
    with exit_codes():
        report = run_audit(task, _Telling(out).tell)
        out.send_bytes(Message.SUMMARY + json.dumps(summary_of(report)).encode())
        out.send_bytes(Message.REPORT + report_bytes(report))


def run_audit(task: AuditTask, tell: Callable[[AuditProgress], None]) -> AuditReport:
    """Return the report of an audit over its own view of chain and blobs."""
    earlier = None if task.earlier is None else read_report(task.earlier)
    with _chain(task) as chain:
        return audit(
            CommitteeLedger(chain, task.address, task.from_block),
            FolderBlobs(task.blob_folder),
            AuditOptions(progress=tell, distances=fast_distances(1)),
            head=None if task.head is None else Digest(task.head),
            strict=task.strict,
            earlier=earlier,
        )


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


class _Telling:
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
