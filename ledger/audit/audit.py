"""The audit of a whole run from chain and blobs alone, trusting neither index nor API.

The backbone is a replay: every transaction to the contract goes through the executable
specification again (`replay/`), which must give the recorded events and the contract's state.
What the chain cannot enforce - distances, means, the model - is judged from the round's record and
its blobs by the functions that members call before they vote (`ledger.protocol.judgement`).

Here everything is read, of one snapshot of the chain, and made into observations; the ten steps
(`steps/`, in the order of `steps/order.py`) say what of it contradicts, is missing or was done.

Three answers: *passed*, everything was checked and is true; *failed*, something contradicts;
*incomplete*, nothing contradicts, but not everything could be checked. A chain that does not serve
something contradicts nothing, and neither does what rests on a block that may be taken back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ledger.audit.codes import Count
from ledger.audit.evidence.archive import Archive
from ledger.audit.finality import Anchor
from ledger.audit.findings import AuditLog
from ledger.audit.report import REPORT_VERSION, AuditReport, KeptHeadFound
from ledger.audit.run import RunReader, unreadable
from ledger.audit.sentences import hexed
from ledger.audit.steps.order import STEPS
from ledger.chain.contract.committee_ledger import CommitteeLedger
from ledger.distances.fast import fast_distances, usable_cores
from ledger.protocol.errors import ChainError

if TYPE_CHECKING:
    from collections.abc import Callable

    from ledger.audit.observations import KeptHead, Observation
    from ledger.blobs.store import BlobReader
    from ledger.protocol.rules.distance.rule import Distances
    from ledger.protocol.types import Digest


def audit(
    ledger: CommitteeLedger,
    blobs: BlobReader,
    progress: Callable[[int, int], None] | None = None,
    *,
    head: Digest | None = None,
    strict: bool = False,
    distances: Distances | None = None,
) -> AuditReport:
    """Return what an audit of all ended rounds found, as of the chain's present head.

    Args:
        ledger: the contract, on a chain to read from.
        blobs: what everybody published.
        progress: called with each audited round and the number of ended rounds.
        head: a head of this run that the auditor has kept, of any round; None for none.
        strict: take what can be told neither true nor false for something left open.
        distances: how true distances are computed; None for the fastest that is here, on all cores.

    Returns:
        The report; nothing that chain or blobs answer raises.
    """
    log, archive = AuditLog(), Archive(blobs)
    standing = _unread(ledger)
    reader: RunReader | None = None
    has_stayed = False
    try:
        with ledger.chain.snapshot() as chain:
            anchor = Anchor.read(chain)
            standing |= _as_of(anchor)
            view = CommitteeLedger(chain, ledger.address, ledger.from_block)
            computed = distances or fast_distances(usable_cores())
            reader = RunReader(view, archive, anchor, head, progress, computed)
            for seen in reader.observe():
                _judge(seen, log, is_final=anchor.is_final(seen.block))
            for changed in anchor.changes(chain):
                _judge(changed, log)
            has_stayed = anchor.holds(chain)
            if not has_stayed:
                log.withdraw()
    except ChainError as error:
        for seen in unreadable(error):
            _judge(seen, log)
    log.counts[Count.BLOBS] = archive.blobs_read
    log.counts[Count.BYTES] = archive.bytes_read
    kept = None
    if reader is not None:
        standing |= reader.standing
        standing["final_head"] = standing["final_head"] if has_stayed else ""
        log.counts[Count.TRANSACTIONS] = reader.applied
        log.counts[Count.OPEN_COMMITMENTS] = reader.open_commitments
        kept = reader.kept
    return AuditReport(
        version=REPORT_VERSION,
        deployment=standing,
        rounds=0 if reader is None else reader.rounds,
        steps=log.steps(),
        findings=tuple(log.findings),
        finding_counts={str(kind): n for kind, n in sorted(log.finding_counts.items())},
        counts={str(count): n for count, n in sorted(log.counts.items()) if n},
        kept=None if head is None else _shown(head, kept),
        strict=strict,
    )


def _judge(seen: Observation, log: AuditLog, *, is_final: bool = True) -> None:
    """Let every step say what it makes of an observation."""
    for step in STEPS:
        for said in step.check(seen):
            log.take(step.NUMBER, said, is_final=is_final)


def _unread(ledger: CommitteeLedger) -> dict[str, Any]:
    return {
        "address": ledger.address,
        "chain_id": ledger.chain.chain_id,
        "genesis_hash": hexed(ledger.chain.genesis_hash),
        "head_block": 0,
        "head_block_hash": "",
        "final_block": None,
        "config": "",
        "head": "",
        "final_head": "",
    }


def _as_of(anchor: Anchor) -> dict[str, Any]:
    return {
        "head_block": anchor.head.number,
        "head_block_hash": hexed(anchor.head.hash),
        "final_block": None if anchor.final is None else anchor.final.number,
    }


def _shown(head: Digest, kept: KeptHead | None) -> KeptHeadFound:
    if kept is None:
        return KeptHeadFound(hexed(head), found=False, round=None, event="")
    event = "" if kept.event is None else kept.event.__name__
    return KeptHeadFound(hexed(head), found=True, round=kept.round, event=event)
