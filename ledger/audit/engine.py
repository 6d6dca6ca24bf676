"""The audit of a whole run from chain and blobs alone, trusting no service.

Every transaction to the contract goes through the executable specification again (`replay.py`),
which must give the recorded events and the contract's state. The functions that members call before
they vote (`ledger.protocol.judgement`) judge what the chain cannot enforce, from the round's record
and its blobs: distances, means and the model.

One snapshot of the chain is read (`run_reader.py`); the ten checks (`checks/`) turn each round and
its evidence into results. This process reads transactions, seeds and heads; several may check
records and blobs of decided rounds (`round_checker.py`).

An audit has *passed* if everything was checked and is true. It has *failed* if something
contradicts. Else it is *incomplete*: a chain does not serve something, or a block may still be
reverted.

If a node omits one log, a correct run looks wrong. If the head after a round follows from the
logs so far, it confirms each of them, but no later log, not even of its own block. The head of a
ban confirms nothing: it does not commit to the open round's commitments. The contract's state after
a block confirms all logs up to it. A contradiction that is never confirmed proves nothing, unless
an event and its own transaction contradict each other.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from ledger.audit import report, round_checker
from ledger.audit.anchors import ChainAnchor, EarlierAudit, PriorKnowledge
from ledger.audit.checks.chain import LOGS_INCOMPLETE, NOT_FINAL
from ledger.audit.checks.rounds import PAYLOAD_APPEARED
from ledger.audit.evidence import Archive
from ledger.audit.run_reader import NOTHING_FINAL, RunReader, unreadable
from ledger.chain.contract.ledger import CommitteeLedger
from ledger.chain.ports import ChainReader
from ledger.distances import fast_distances, usable_cores
from ledger.protocol.encoding import commitment_of, to_hex
from ledger.protocol.errors import ChainError
from ledger.protocol.rules.distance import Distances
from ledger.protocol.types import PROTOCOL_VERSION, Digest
from ledger.storage.blobs import BlobReader
from ledger.transparency.policy import CheckpointEvidence


@dataclass(frozen=True, slots=True)
class AuditOptions:
    """Options of an audit; none of them changes the report."""

    # Called after each round with the numbers of checked and of ended rounds.
    progress: Callable[[int, int], None] | None = None
    # How true distances are computed; None for the fastest that is here. Where there are workers it
    # is a function of a module.
    distances: Distances | None = None
    # Files, or names of packages, with the run's own distance and scoring; code is run only if it
    # is named here and its digest is the run document's.
    rules: tuple[str, ...] = ()
    workers: round_checker.AuditWorkers | None = None  # None to check all in this process


@dataclass
class AuditLog:
    """Contradictions and missing inputs by step, findings and counts."""

    counts: Counter[str] = field(default_factory=Counter)
    findings: list[report.Finding] = field(default_factory=list)
    finding_counts: Counter[str] = field(default_factory=Counter)
    remarks: int = 0
    steps: dict[report.AuditStep, report.StepReport] = field(
        default_factory=lambda: {
            step: report.StepReport(step, step.title, report.StepOutcome.PASSED, None, 0, (), 0)
            for step in report.AuditStep
        }
    )

    def take(self, found: report.CheckResult, *, is_final: bool = True) -> None:
        """Add a result; a result that rests on a block that may be reverted proves nothing yet."""
        step, result = self.steps[found.step], found.result
        match result:
            case report.Contradiction() if is_final:
                self.steps[found.step] = replace(
                    step,
                    outcome=report.StepOutcome.FAILED,
                    contradiction=step.contradiction or result,
                    contradictions=step.contradictions + 1,
                )
            case report.Contradiction():
                self.steps[found.step] = _with_missing(step, _not_final(result))
            case report.MissingInput():
                self.steps[found.step] = _with_missing(step, result)
            case report.Finding(kind=kind):
                self.finding_counts[str(kind)] += 1
                self.remarks += kind.is_remark
                if len(self.findings) < report.MAX_FINDINGS:
                    self.findings.append(result if is_final else replace(result, proven=False))
            case report.CountIncrement(count, number):
                self.counts[count] += number

    def withdraw(self) -> None:
        """Take every contradiction back: the chain that they were read from has changed."""
        for name, step in self.steps.items():
            if step.contradiction is not None:
                missing = _not_final(step.contradiction)
                open_step = replace(
                    step, outcome=report.StepOutcome.NOT_CHECKABLE, contradictions=0
                )
                self.steps[name] = _with_missing(replace(open_step, contradiction=None), missing)


def _with_missing(step: report.StepReport, missing: report.MissingInput) -> report.StepReport:
    if missing in step.missing:
        return step
    is_failed = step.outcome is report.StepOutcome.FAILED
    is_named = len(step.missing) < report.MAX_NAMED
    return replace(
        step,
        outcome=step.outcome if is_failed else report.StepOutcome.NOT_CHECKABLE,
        missing=(*step.missing, missing) if is_named else step.missing,
        missing_count=step.missing_count + 1,
    )


def _not_final(contradiction: report.Contradiction) -> report.MissingInput:
    at, clients = contradiction.round, contradiction.clients
    return report.MissingInput(NOT_FINAL, at, clients, detail=str(contradiction.fact))


def audit(  # noqa: PLR0913 - what an auditor may know before
    ledger: CommitteeLedger,
    blobs: BlobReader,
    options: AuditOptions | None = None,
    *,
    head: Digest | None = None,
    strict: bool = False,
    earlier: EarlierAudit | None = None,
    checkpoints: CheckpointEvidence | None = None,
    anchors: tuple[report.AnchoredHead, ...] = (),
) -> report.AuditReport:
    """Return the report of an audit of all ended rounds, as of the chain's present head.

    No answer of chain or blobs raises. The auditor has kept `head`, of any round, and trusts
    `earlier` for the rounds that it has checked. `checkpoints` were read before the run, and
    `anchors`, which are of this run, hold heads that it must have had.
    """
    if earlier is not None:
        earlier.require_of(ledger, strict=strict)
    prior = PriorKnowledge(head, earlier, checkpoints, anchors)
    running = _Audit(ledger, blobs, options or AuditOptions(), prior)
    running.read()
    return running.finished(strict=strict)


@dataclass
class _Audit:
    _ledger: CommitteeLedger
    _blobs: BlobReader
    _options: AuditOptions
    _prior: PriorKnowledge
    _reader: RunReader | None = None
    _final: int = -1
    _is_stable: bool = False
    _log: AuditLog = field(default_factory=AuditLog)
    _missing: list[round_checker.MissingPayload] = field(default_factory=list)
    _unconfirmed: deque[report.CheckResult] = field(default_factory=deque)

    def __post_init__(self) -> None:
        self._archive = Archive(self._blobs)
        self._deployment: dict[str, Any] = {
            "protocol": PROTOCOL_VERSION,
            "address": self._ledger.address,
            "chain_id": self._ledger.chain.chain_id,
            "genesis_hash": to_hex(self._ledger.chain.genesis_hash),
            "head_block": 0,
            "head_block_hash": "",
            "final_block": None,
            "config": "",
            "head": "",
            **NOTHING_FINAL,
        }

    def read(self) -> None:
        try:
            with self._ledger.chain.snapshot() as chain:
                self._read(chain, ChainAnchor.read(chain))
        except ChainError as error:
            self._release(is_confirmed=False)
            for result in unreadable(error):
                self._log.take(result)

    def finished(self, *, strict: bool) -> report.AuditReport:
        log, reader, archive = self._log, self._reader, self._archive
        head, earlier = self._prior.head, self._prior.earlier
        checkpoints = self._prior.checkpoints
        log.counts["blobs"] += archive.blobs_read
        log.counts["bytes"] += archive.bytes_read
        kept, built_on = None, None
        if reader is not None:
            self._deployment |= reader.deployment
            if not self._is_stable:
                self._deployment |= NOTHING_FINAL
            log.counts["transactions"] = reader.applied
            log.counts["open commitments"] = reader.open_commitments
            kept = reader.kept_head
        if head is not None and kept is None:
            kept = report.KeptHeadReport(to_hex(head), found=False, round=None, event="")
        if earlier is not None:
            trusted = 0 if reader is None else reader.trusted
            found = reader is not None and reader.found_earlier
            built_on = earlier.built_on(trusted, found=found)
        return report.AuditReport(
            version=report.REPORT_VERSION,
            deployment=self._deployment,
            rounds=0 if reader is None else reader.rounds,
            steps=tuple(log.steps.values()),
            findings=tuple(log.findings),
            finding_counts=dict(sorted(log.finding_counts.items())),
            remarks=log.remarks,
            counts={count: n for count, n in sorted(log.counts.items()) if n},
            kept=kept,
            strict=strict,
            built_on=built_on,
            witnessed=None if checkpoints is None else report.WitnessedRounds.of(checkpoints),
            anchors=self._prior.anchors,
        )

    def _read(self, chain: ChainReader, anchor: ChainAnchor) -> None:
        self._deployment |= {
            "head_block": anchor.head.number,
            "head_block_hash": to_hex(anchor.head.hash),
            "final_block": None if anchor.final is None else anchor.final.number,
        }
        view = CommitteeLedger(chain, self._ledger.address, self._ledger.from_block)
        options, models = self._options, round_checker.ModelChain()
        workers, rules = options.workers, options.rules
        reader = RunReader(view, self._archive, models, anchor, self._prior, rules)
        self._reader, self._final = reader, anchor.final_number
        compute = options.distances or fast_distances(usable_cores())
        fresh = partial(round_checker.RoundChecker, self._blobs, compute, rules=rules)
        with (
            nullcontext(fresh(models).checked)
            if workers is None
            else round_checker.parallel_checks(workers, options.distances, rules, fresh, models)
        ) as checked:
            for item in checked(reader.observe()):
                self._take(item)
        self._release(is_confirmed=False)
        for appeared in self._appeared_payloads() if reader.is_whole else ():
            self._log.take(appeared, is_final=appeared.block <= self._final)
        for change in anchor.changes(chain):
            self._log.take(change)
        self._is_stable = anchor.holds(chain)
        if not self._is_stable:
            self._log.withdraw()

    def _take(self, item: round_checker.CheckedItem) -> None:
        match item:
            case round_checker.CheckedRound():
                self._unconfirmed += item.results
                self._log.counts["blobs"] += item.blobs_read
                self._log.counts["bytes"] += item.bytes_read
                self._archive.named.update(item.named)
                self._missing += item.missing
            case round_checker.Milestone(done, total, is_confirmed):
                if is_confirmed:
                    self._release(is_confirmed=True)
                if self._options.progress is not None:
                    self._options.progress(done, total)
            case _:
                self._unconfirmed.append(item)

    def _release(self, *, is_confirmed: bool) -> None:
        """Log all results that were held back; if not confirmed, a log before may be missing."""
        complete_to = -1 if self._reader is None else self._reader.complete_to
        while self._unconfirmed:
            found = self._unconfirmed.popleft()
            is_final = found.block <= self._final
            if not is_confirmed and found.block > complete_to and found.rests_on_all_logs:
                found = _unconfirmed(found)
            self._log.take(found, is_final=is_final)

    def _appeared_payloads(self) -> Iterator[report.CheckResult]:
        """Yield payloads that are recorded as missing and are there, where the store can tell."""
        held = getattr(self._blobs, "digests", tuple) if self._missing else tuple
        blobs = [digest for digest in held() if digest not in self._archive.named]
        # At most 200,000 pairs of an unnamed blob and a missing payload are compared.
        for missing in self._missing[: 200_000 // max(1, len(blobs))]:
            for digest in blobs:
                if commitment_of(missing.client, digest) == missing.commitment:
                    named = (missing.client,), (to_hex(digest),)
                    finding = report.Finding(PAYLOAD_APPEARED, missing.round, *named, proven=False)
                    yield report.CheckResult(report.AuditStep.COMPLETENESS, finding, missing.block)


def _unconfirmed(found: report.CheckResult) -> report.CheckResult:
    """Return what remains of a result that rests on all logs, where one may be missing."""
    match found.result:
        case report.Contradiction(fact=fact, round=at, clients=clients):
            missing = report.MissingInput(LOGS_INCOMPLETE, at, clients, detail=str(fact))
            return replace(found, result=missing)
        case report.Finding() as finding:
            return replace(found, result=replace(finding, proven=False))
        case _:
            return found
