"""The audit of a whole run from chain and blobs alone, trusting neither index nor API.

The backbone is a replay: every transaction to the contract goes through the executable
specification again (`replay/`), which must give the recorded events and the contract's state.
What the chain cannot enforce - distances, means, the model - is judged from the round's record and
its blobs by the functions that members call before they vote (`ledger.protocol.judgement`).

Everything is read of one snapshot of the chain and made into observations (`run_reader.py`); the
ten checks (`checks/`, in the order of `all_checks.py`) turn each into results. Transactions, seeds
and heads, which follow from one round to the next, are read in this process; records and blobs of
decided rounds may be checked by several (`worker_pool.py`). Only the blobs of the rounds that are
being checked are in memory.

Three outcomes: *passed*, everything was checked and is true; *failed*, something contradicts;
*incomplete*, nothing contradicts, but not everything could be checked. A chain that does not serve
something contradicts nothing, and neither does what rests on a block that may be taken back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

from ledger.audit.anchors import ChainAnchor, EarlierAudit, PriorKnowledge
from ledger.audit.checks.all_checks import run_checks
from ledger.audit.checks.completeness import PAYLOAD_APPEARED
from ledger.audit.evidence import Archive, ModelChain, unnamed_blobs
from ledger.audit.observations import KeptHeadPosition, Observation, Remark, RunStart
from ledger.audit.report import (
    REPORT_VERSION,
    AuditReport,
    AuditStep,
    Finding,
    KeptHeadReport,
    StepResult,
    WitnessedRounds,
)
from ledger.audit.result_log import AuditLog, PendingResult, UnconfirmedResults, rests_on_all_logs
from ledger.audit.round_checker import (
    CheckedRound,
    Milestone,
    MissingPayload,
    RoundChecker,
    RoundTask,
)
from ledger.audit.run_reader import NOTHING_FINAL, RunReader, unreadable
from ledger.audit.worker_pool import AuditWorkers, CheckedItem, ReadItem, parallel_checks
from ledger.chain.contract.ledger import CommitteeLedger
from ledger.chain.ports import ChainReader
from ledger.distances.fast import fast_distances, usable_cores
from ledger.io.user_code import use_rules
from ledger.protocol.encoding import commitment_of, to_hex
from ledger.protocol.errors import ChainError
from ledger.protocol.rules.distance import Distances
from ledger.protocol.types import PROTOCOL_VERSION, Digest
from ledger.storage.blobs import BlobReader
from ledger.transparency.policy import CheckpointEvidence

MAX_COMPARED = 200_000
"""Pairs of an unnamed blob and a payload recorded as missing that are compared."""


@dataclass(frozen=True, slots=True)
class AuditOptions:
    """Options of an audit.

    Attributes:
        progress: called after each round with the numbers of checked and of ended rounds.
        distances: how true distances are computed; None for the fastest that is here. Where there
            are workers it is a function of a module.
        rules: files, or names of packages, with the run's own distance and scoring; code is run
            only if it is named here and its digest is the run document's.
        workers: processes that check rounds; None for all in this one.
    """

    progress: Callable[[int, int], None] | None = None
    distances: Distances | None = None
    rules: tuple[str, ...] = ()
    workers: AuditWorkers | None = None


def audit(  # noqa: PLR0913 - what an auditor may know before
    ledger: CommitteeLedger,
    blobs: BlobReader,
    options: AuditOptions | None = None,
    *,
    head: Digest | None = None,
    strict: bool = False,
    earlier: EarlierAudit | None = None,
    checkpoints: CheckpointEvidence | None = None,
) -> AuditReport:
    """Return the report of an audit of all ended rounds, as of the chain's present head.

    Args:
        options: progress, rules and processes; none of them changes the report.
        head: a head of this run that the auditor has kept, of any round; None for none.
        earlier: an audit that is trusted for the rounds that it has checked; None for none.
        checkpoints: what logs and witnesses have said of this run, before it is read; None if
            nobody asked.

    Returns:
        The report; no answer of chain or blobs raises.
    """
    if earlier is not None:
        earlier.require_of(ledger, strict=strict)
    prior = PriorKnowledge(head, earlier, checkpoints)
    running = _Audit(ledger, blobs, options or AuditOptions(), prior)
    running.read()
    return running.report(strict=strict)


class _Audit:
    """One audit and its results so far."""

    def __init__(
        self,
        ledger: CommitteeLedger,
        blobs: BlobReader,
        options: AuditOptions,
        prior: PriorKnowledge,
    ) -> None:
        self._ledger = ledger
        self._blobs = blobs
        self._options = options
        self._prior = prior
        self._log = AuditLog()
        self._archive = Archive(blobs)
        self._deployment = _unread_deployment(ledger)
        self._reader: RunReader | None = None
        self._missing: list[MissingPayload] = []
        self._is_stable = False
        self._unconfirmed = UnconfirmedResults()

    def read(self) -> None:
        """Read all that the chain serves, and run every check on it."""
        try:
            with self._ledger.chain.snapshot() as chain:
                self._read(chain, ChainAnchor.read(chain))
        except ChainError as error:
            self._log_results(self._unconfirmed.rest(self._complete_to))
            for observation in unreadable(error):
                self._check(observation)

    def report(self, *, strict: bool) -> AuditReport:
        log, reader, archive = self._log, self._reader, self._archive
        head, earlier = self._prior.head, self._prior.earlier
        checkpoints = self._prior.checkpoints
        log.counts["blobs"] += archive.blobs_read
        log.counts["bytes"] += archive.bytes_read
        position, built_on = None, None
        if reader is not None:
            self._deployment |= reader.deployment
            if not self._is_stable:
                self._deployment |= NOTHING_FINAL
            log.counts["transactions"] = reader.applied
            log.counts["open commitments"] = reader.open_commitments
            position = reader.kept_head
        if earlier is not None:
            trusted = 0 if reader is None else reader.trusted
            found = reader is not None and reader.found_earlier
            built_on = earlier.built_on(trusted, found=found)
        return AuditReport(
            version=REPORT_VERSION,
            deployment=self._deployment,
            rounds=0 if reader is None else reader.rounds,
            steps=log.steps(),
            findings=tuple(log.findings),
            finding_counts=dict(sorted(log.finding_counts.items())),
            remarks=log.remarks,
            counts={count: n for count, n in sorted(log.counts.items()) if n},
            kept=None if head is None else _kept_head_report(head, position),
            strict=strict,
            built_on=built_on,
            witnessed=None if checkpoints is None else WitnessedRounds.of(checkpoints),
        )

    def _read(self, chain: ChainReader, anchor: ChainAnchor) -> None:
        self._deployment |= {
            "head_block": anchor.head.number,
            "head_block_hash": to_hex(anchor.head.hash),
            "final_block": None if anchor.final is None else anchor.final.number,
        }
        view = CommitteeLedger(chain, self._ledger.address, self._ledger.from_block)
        models = ModelChain()
        reader = RunReader(view, self._archive, models, anchor, self._prior)
        self._reader = reader
        with self._round_checks(models) as checked:
            for item in checked(reader.observe()):
                self._take(item, anchor)
        self._log_results(self._unconfirmed.rest(self._complete_to))
        for appeared in self._appeared_payloads() if reader.is_whole else ():
            self._check(appeared, is_final=anchor.is_final(appeared.block))
        for change in anchor.changes(chain):
            self._check(change)
        self._is_stable = anchor.holds(chain)
        if not self._is_stable:
            self._log.withdraw()

    def _round_checks(
        self, models: ModelChain
    ) -> AbstractContextManager[Callable[[Iterator[ReadItem]], Iterator[CheckedItem]]]:
        """Return the function that puts checked rounds in the place of round tasks."""
        workers, distances = self._options.workers, self._options.distances
        rules = self._options.rules
        compute = distances or fast_distances(usable_cores())
        fresh = partial(RoundChecker, self._blobs, compute, rules=rules)
        if workers is not None:
            return parallel_checks(workers, distances, rules, fresh(models), fresh)
        return nullcontext(partial(_check_in_turn, fresh(models)))

    def _take(self, item: CheckedItem, anchor: ChainAnchor) -> None:
        match item:
            case CheckedRound():
                for step, result in item.results:
                    self._hold(step, result, item, anchor, rests_on_all_logs=True)
                self._log.counts["blobs"] += item.blobs_read
                self._log.counts["bytes"] += item.bytes_read
                self._archive.named.update(item.named)
                self._missing += item.missing
            case Milestone(done, total, is_confirmed):
                if is_confirmed:
                    self._log_results(self._unconfirmed.confirmed())
                if self._options.progress is not None:
                    self._options.progress(done, total)
            case _:
                if isinstance(item, RunStart) and item.document is not None:
                    # Before any round: a file of another rule is refused at once.
                    use_rules(item.document.parameters, self._options.rules)
                rests = rests_on_all_logs(item)
                for step, result in run_checks(item):
                    self._hold(step, result, item, anchor, rests_on_all_logs=rests)

    def _hold(
        self,
        step: AuditStep,
        result: StepResult,
        item: Observation | CheckedRound,
        anchor: ChainAnchor,
        *,
        rests_on_all_logs: bool,
    ) -> None:
        """Hold a result back until it is certain that no log is missing before it."""
        is_final = anchor.is_final(item.block)
        self._unconfirmed.hold(PendingResult(step, result, item.block, is_final, rests_on_all_logs))

    def _log_results(self, pending: Iterator[PendingResult]) -> None:
        for result in pending:
            self._log.take(result.step, result.result, is_final=result.is_final)

    @property
    def _complete_to(self) -> int:
        return -1 if self._reader is None else self._reader.complete_to

    def _check(self, observation: Observation, *, is_final: bool = True) -> None:
        for step, result in run_checks(observation):
            self._log.take(step, result, is_final=is_final)

    def _appeared_payloads(self) -> Iterator[Remark]:
        """Yield payloads that are recorded as missing and are there, where the store can tell."""
        blobs = unnamed_blobs(self._blobs, self._archive.named) if self._missing else ()
        for missing in self._missing[: MAX_COMPARED // max(1, len(blobs))]:
            for digest in blobs:
                if commitment_of(missing.client, digest) == missing.commitment:
                    named = (missing.client,), (to_hex(digest),)
                    finding = Finding(PAYLOAD_APPEARED, missing.round, *named, proven=False)
                    yield Remark(missing.block, AuditStep.COMPLETENESS, finding)


def _check_in_turn(checker: RoundChecker, items: Iterator[ReadItem]) -> Iterator[CheckedItem]:
    for item in items:
        yield checker.check(item) if isinstance(item, RoundTask) else item


def _unread_deployment(ledger: CommitteeLedger) -> dict[str, Any]:
    return {
        "protocol": PROTOCOL_VERSION,
        "address": ledger.address,
        "chain_id": ledger.chain.chain_id,
        "genesis_hash": to_hex(ledger.chain.genesis_hash),
        "head_block": 0,
        "head_block_hash": "",
        "final_block": None,
        "config": "",
        "head": "",
        **NOTHING_FINAL,
    }


def _kept_head_report(head: Digest, position: KeptHeadPosition | None) -> KeptHeadReport:
    if position is None:
        return KeptHeadReport(to_hex(head), found=False, round=None, event="")
    event = "" if position.event is None else position.event.__name__
    return KeptHeadReport(to_hex(head), found=True, round=position.round, event=event)
