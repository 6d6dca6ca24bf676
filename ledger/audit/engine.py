"""The audit of a whole run from chain and blobs alone, trusting neither index nor API.

The backbone is a replay: every transaction to the contract goes through the executable
specification again (`replay/`), which must give the recorded events and the contract's state.
What the chain cannot enforce - distances, means, the model - is judged from the round's record and
its blobs by the functions that members call before they vote (`ledger.protocol.judgement`).

Here everything is read, of one snapshot of the chain, and made into observations; the ten steps
(`steps/`, in the order of `steps/order.py`) say what of it contradicts, is missing or was done.
What follows from one round after the other (transactions, seeds, heads) is read in this process;
records and blobs of decided rounds may be checked by several (`execution/`). No more blobs are held
than those of the rounds that are being checked.

Three answers: *passed*, everything was checked and is true; *failed*, something contradicts;
*incomplete*, nothing contradicts, but not everything could be checked. A chain that does not serve
something contradicts nothing, and neither does what rests on a block that may be taken back.
"""

from __future__ import annotations

from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any

from ledger.audit.audit_options import AuditOptions
from ledger.audit.checks.order import run_checks
from ledger.audit.codes import AuditCount
from ledger.audit.earlier_report import PriorKnowledge
from ledger.audit.evidence.archive import Archive, unnamed_blobs
from ledger.audit.evidence.model_chain import ModelChain
from ledger.audit.finality import ChainAnchor
from ledger.audit.observations import AppearedPayload
from ledger.audit.report import REPORT_VERSION, AuditReport, KeptHeadReport
from ledger.audit.result_log import AuditLog
from ledger.audit.round_checker import RoundChecker
from ledger.audit.round_tasks import CheckedRound, Milestone, RoundTask
from ledger.audit.run_reader import RunReader, unreadable
from ledger.audit.sentences import hexed
from ledger.audit.unconfirmed import PendingResult, UnconfirmedResults, rests_on_all_logs
from ledger.audit.worker_pool import parallel_checks
from ledger.chain.contract.committee_ledger import CommitteeLedger
from ledger.distances.fast import fast_distances, usable_cores
from ledger.protocol.encoding import PROTOCOL_VERSION, commitment_of
from ledger.protocol.errors import ChainError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from ledger.audit.codes import Step
    from ledger.audit.earlier_report import EarlierAudit
    from ledger.audit.observations import KeptHeadPosition, Observation
    from ledger.audit.report import StepResult
    from ledger.audit.round_tasks import MissingPayload
    from ledger.audit.worker_pool import CheckedItem, ReadItem
    from ledger.chain.ports import ChainReader
    from ledger.protocol.types import Digest
    from ledger.storage.blobs import BlobReader

MAX_COMPARED = 200_000
"""Of blobs that nobody names and payloads that are recorded as missing, pairs that are compared."""


def audit(
    ledger: CommitteeLedger,
    blobs: BlobReader,
    conduct: AuditOptions | None = None,
    *,
    head: Digest | None = None,
    strict: bool = False,
    earlier: EarlierAudit | None = None,
) -> AuditReport:
    """Return what an audit of all ended rounds found, as of the chain's present head.

    Args:
        ledger: the contract, on a chain to read from.
        blobs: what everybody published.
        conduct: who watches, and in how many processes; None for nobody, and in this one.
        head: a head of this run that the auditor has kept, of any round; None for none.
        strict: take what can be told neither true nor false for something left open.
        earlier: an audit that is trusted for the rounds that it has checked; None for none.

    Returns:
        The report, the same whoever watches and however many processes; nothing that chain or
        blobs answer raises.

    Raises:
        EarlierReportError: the earlier audit is not one of this run that can be built on.
        AuditCancelledError: whoever watches does not want it any more.
        WorkerEndedError: a process ended before its work: there is no verdict.
    """
    if earlier is not None:
        earlier.require_of(ledger, strict=strict)
    carried_out = _Audit(ledger, blobs, conduct or AuditOptions(), PriorKnowledge(head, earlier))
    carried_out.read()
    return carried_out.report(strict=strict)


class _Audit:
    """One audit: what it has been told so far, and by whom."""

    def __init__(
        self,
        ledger: CommitteeLedger,
        blobs: BlobReader,
        conduct: AuditOptions,
        brought: PriorKnowledge,
    ) -> None:
        self._ledger = ledger
        self._blobs = blobs
        self._conduct = conduct
        self._brought = brought
        self._log = AuditLog()
        self._archive = Archive(blobs)
        self._standing = _unread(ledger)
        self._reader: RunReader | None = None
        self._missing: list[MissingPayload] = []
        self._has_stayed = False
        self._unconfirmed = UnconfirmedResults()

    def read(self) -> None:
        """Read all, as far as the chain serves it, and let every step judge it."""
        try:
            with self._ledger.chain.snapshot() as chain:
                self._read(chain, ChainAnchor.read(chain))
        except ChainError as error:
            self._write(self._unconfirmed.rest(self._complete_to))
            for seen in unreadable(error):
                self._judge(seen)

    def report(self, *, strict: bool) -> AuditReport:
        """Return what was found."""
        log, reader, archive = self._log, self._reader, self._archive
        head, earlier = self._brought.head, self._brought.earlier
        log.counts[AuditCount.BLOBS] += archive.blobs_read
        log.counts[AuditCount.BYTES] += archive.bytes_read
        kept, built_on = None, None
        if reader is not None:
            self._standing |= reader.standing
            self._standing["final_head"] = self._standing["final_head"] if self._has_stayed else ""
            log.counts[AuditCount.TRANSACTIONS] = reader.applied
            log.counts[AuditCount.OPEN_COMMITMENTS] = reader.open_commitments
            kept = reader.kept
        if earlier is not None:
            trusted = 0 if reader is None else reader.trusted
            is_found = reader is not None and reader.is_found
            built_on = earlier.built_on(trusted, is_found=is_found)
        return AuditReport(
            version=REPORT_VERSION,
            deployment=self._standing,
            rounds=0 if reader is None else reader.rounds,
            steps=log.steps(),
            findings=tuple(log.findings),
            finding_counts={str(kind): n for kind, n in sorted(log.finding_counts.items())},
            counts={str(count): n for count, n in sorted(log.counts.items()) if n},
            kept=None if head is None else _shown(head, kept),
            strict=strict,
            built_on=built_on,
        )

    def _read(self, chain: ChainReader, anchor: ChainAnchor) -> None:
        self._standing |= _as_of(anchor)
        view = CommitteeLedger(chain, self._ledger.address, self._ledger.from_block)
        models = ModelChain()
        reader = RunReader(view, self._archive, models, anchor, self._brought, self._conduct)
        self._reader = reader
        with self._checking(models) as checked:
            for seen in checked(reader.observe()):
                self._take(seen, anchor)
        self._write(self._unconfirmed.rest(self._complete_to))
        for appeared in self._appeared() if reader.is_whole else ():
            self._judge(appeared, is_final=anchor.is_final(appeared.block))
        for changed in anchor.changes(chain):
            self._judge(changed)
        self._has_stayed = anchor.holds(chain)
        if not self._has_stayed:
            self._log.withdraw()

    def _checking(
        self, models: ModelChain
    ) -> AbstractContextManager[Callable[[Iterator[ReadItem]], Iterator[CheckedItem]]]:
        """Return what puts what is found of decided rounds in their place."""
        workers, distances = self._conduct.workers, self._conduct.distances
        fresh = partial(RoundChecker, self._blobs, distances or fast_distances(usable_cores()))
        if workers is not None:
            return parallel_checks(workers, distances, fresh(models), fresh)
        return nullcontext(partial(_in_turn, fresh(models)))

    def _take(self, seen: CheckedItem, anchor: ChainAnchor) -> None:
        match seen:
            case CheckedRound():
                for step, said in seen.said:
                    self._hold(step, said, seen, anchor, rests_on_all_logs=True)
                self._log.counts[AuditCount.BLOBS] += seen.blobs_read
                self._log.counts[AuditCount.BYTES] += seen.bytes_read
                self._archive.named.update(seen.named)
                self._missing += seen.missing
            case Milestone(done, total):
                self._write(self._unconfirmed.confirmed(self._complete_to))
                if self._conduct.progress is not None:
                    self._conduct.progress(self._log.progress(done, total))
                self._conduct.go_on()
            case _:
                rests = rests_on_all_logs(seen)
                for step, said in run_checks(seen):
                    self._hold(step, said, seen, anchor, rests_on_all_logs=rests)

    def _hold(
        self,
        step: Step,
        said: StepResult,
        seen: Observation | CheckedRound,
        anchor: ChainAnchor,
        *,
        rests_on_all_logs: bool,
    ) -> None:
        """Hold what a step says until it is certain that no log is missing before it."""
        is_final = anchor.is_final(seen.block)
        self._unconfirmed.hold(PendingResult(step, said, seen.block, is_final, rests_on_all_logs))

    def _write(self, held: Iterator[PendingResult]) -> None:
        for one in held:
            self._log.take(one.step, one.said, is_final=one.is_final)

    @property
    def _complete_to(self) -> int:
        return -1 if self._reader is None else self._reader.complete_to

    def _judge(self, seen: Observation, *, is_final: bool = True) -> None:
        """Let every step say what it makes of an observation."""
        for step, said in run_checks(seen):
            self._log.take(step, said, is_final=is_final)

    def _appeared(self) -> Iterator[AppearedPayload]:
        """Yield payloads that are recorded as missing and are there, where the store can tell."""
        blobs = unnamed_blobs(self._blobs, self._archive.named) if self._missing else ()
        for one in self._missing[: MAX_COMPARED // max(1, len(blobs))]:
            for digest in blobs:
                if commitment_of(one.client, digest) == one.commitment:
                    yield AppearedPayload(one.block, one.round, one.client, digest)


def _in_turn(checker: RoundChecker, seen: Iterator[ReadItem]) -> Iterator[CheckedItem]:
    for one in seen:
        yield checker.check(one) if isinstance(one, RoundTask) else one


def _unread(ledger: CommitteeLedger) -> dict[str, Any]:
    return {
        "protocol": PROTOCOL_VERSION,
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


def _as_of(anchor: ChainAnchor) -> dict[str, Any]:
    return {
        "head_block": anchor.head.number,
        "head_block_hash": hexed(anchor.head.hash),
        "final_block": None if anchor.final is None else anchor.final.number,
    }


def _shown(head: Digest, kept: KeptHeadPosition | None) -> KeptHeadReport:
    if kept is None:
        return KeptHeadReport(hexed(head), found=False, round=None, event="")
    event = "" if kept.event is None else kept.event.__name__
    return KeptHeadReport(hexed(head), found=True, round=kept.round, event=event)
