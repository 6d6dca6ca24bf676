"""Reads a whole run and checks it: the deployment, every round, and the end."""

from __future__ import annotations

import sys
from collections.abc import Generator, Iterable, Iterator
from copy import copy
from dataclasses import dataclass, field
from typing import Any

from ledger.audit.anchors import ChainAnchor, EarlierAudit, EarlierReportError, PriorKnowledge
from ledger.audit.checks import chain as facts
from ledger.audit.checks.rounds import unavailable_blobs
from ledger.audit.evidence import Archive, ReplayedRound, RunStart, UnavailableBlob, decoded
from ledger.audit.replay import ReadingEndedError, Replay, ReplayPosition, read_block
from ledger.audit.report import (
    AnchoredHead,
    AuditStep,
    BlobKind,
    CheckResult,
    Contradiction,
    Finding,
    KeptHeadReport,
    contradicted,
    not_served,
    results_of,
    shown,
)
from ledger.audit.round_checker import EvidenceReader, Milestone, ModelChain, ReadItem
from ledger.chain import ports
from ledger.chain.contract.deploy import code_violation, deployment_for, require_code
from ledger.chain.contract.ledger import CommitteeLedger
from ledger.chain.round_ledger import LedgerSnapshot, last_ended
from ledger.io.user_code import use_rules
from ledger.protocol import rounds
from ledger.protocol.documents.run import decode_run
from ledger.protocol.encoding import to_hex
from ledger.protocol.errors import ChainError, ProtocolRefusal
from ledger.protocol.ledger_state import Deployment, Event, HeadEvent
from ledger.protocol.parameters import MAX_CLIENTS, MAX_MEMBERS, MAX_TRAINERS, MIN_MEMBERS
from ledger.protocol.types import NO_DIGEST, Digest, Domain
from ledger.transparency.policy import CheckpointEvidence
from ledger.transparency.tree import head_entries, leaf_hash, root_of


@dataclass
class RunTree:
    """The entries of a run's log, as the replay recomputes them, and the blocks they rest on."""

    _heads: list[Digest] = field(default_factory=list)
    _leaves: list[Digest] = field(default_factory=list)
    _blocks: list[int] = field(default_factory=list)

    def add(self, domain: Domain, event: Event, block: int) -> None:
        for entry in head_entries(domain, (event,)):
            self._heads.append(entry.head)
            self._leaves.append(leaf_hash(entry.encoded()))
            self._blocks.append(block)

    def compared(self, evidence: CheckpointEvidence, newest_block: int) -> Iterator[CheckResult]:
        """Yield signed trees that differ, and the rounds that no quorum of witnesses confirms."""
        ended = len(self._leaves)
        conflict = evidence.conflict()
        if conflict is not None:
            one, other = conflict
            values = f"{one.size} rounds of {one.origin}", to_hex(one.root), to_hex(other.root)
            yield contradicted(0, facts.SIGNED_TREES_CONFLICT, *values)
        for checkpoint in evidence.checkpoints:
            size, origin, block = checkpoint.size, checkpoint.origin, newest_block
            if size > ended:
                fact, values = facts.SIGNED_ROUNDS_ABSENT, (origin, str(size), str(ended))
            elif (root := root_of(self._leaves[:size])) != checkpoint.root:
                block = self._blocks[size - 1] if size else newest_block
                subject, fact = f"{size} rounds of {origin}", facts.SIGNED_TREE_DIFFERS
                values = subject, to_hex(checkpoint.root), to_hex(root)
            else:
                continue
            yield contradicted(block, fact, *values, rests_on_all_logs=True)
        for claim in evidence.withheld:
            yield from not_served(0, facts.CHECKPOINT_WITHHELD, detail=claim)
        witnessed = evidence.witnessed
        if witnessed is None:
            failures = evidence.failures or ("no log or witness gave a checkpoint",)
            for failure in failures[:8]:
                yield from not_served(0, facts.NOT_WITNESSED, detail=failure)
        elif (size := witnessed.checkpoint.size) < ended:
            finding = Finding(facts.ROUNDS_NOT_WITNESSED, size + 1, (), (), proven=False)
            yield CheckResult(AuditStep.HEAD, finding, self._blocks[size])

    def anchored(self, anchors: Iterable[AnchoredHead], newest_block: int) -> Iterator[CheckResult]:
        """Yield the anchored heads that the run did not have at the end of their rounds."""
        for anchor in anchors:
            block, head = newest_block, f"none: only {len(self._heads)} rounds have ended"
            if anchor.round <= len(self._heads):
                block, head = self._blocks[anchor.round - 1], to_hex(self._heads[anchor.round - 1])
            if head != anchor.head:
                values = anchor.round, (), anchor.file, anchor.head, head
                wrong = Contradiction(facts.ANCHORED_HEAD_DIFFERS, *values)
                yield CheckResult(AuditStep.HEAD, wrong, block, rests_on_all_logs=True)


NOTHING_FINAL = {"final_head": "", "final_round": None}
_PARAMETERS = (
    *("clients", "trainers", "members", "rounds", "form", "aggregation_ppm"),
    *("commit_blocks", "deadline_blocks", "replies", "beacon"),
)
"""Fields of a deployment that a report shows, in its order."""


@dataclass
class RunReader:
    """Reads a run once, from its chain; decided rounds come out as tasks."""

    ledger: CommitteeLedger
    archive: Archive
    models: ModelChain  # is set to the model that the run begins with
    anchor: ChainAnchor
    prior: PriorKnowledge
    rules: tuple[str, ...] = ()  # files or packages of own rules that the auditor names
    rounds: int = 0
    trusted: int = 0
    is_whole: bool = False  # whether the run was read to its end
    found_earlier: bool = False  # whether it passes through block and head of the earlier audit
    applied: int = 0
    open_commitments: int = 0  # of the round that has not ended
    deployment: dict[str, Any] = field(default_factory=dict)
    kept_head: KeptHeadReport | None = None  # where the kept head is; None if nowhere
    complete_to: int = -1  # newest block up to which no log is missing
    _tree: RunTree = field(default_factory=RunTree)
    _settled: ReplayPosition | None = None
    _stood_by: int = 0
    _left_off: Digest = NO_DIGEST

    def __post_init__(self) -> None:
        """Begin at the deployment; a file that lacks a log contradicts itself, unlike a node."""
        self._stood_by = self.ledger.from_block
        if self.ledger.chain.node is None:
            self.complete_to = sys.maxsize

    def observe(self) -> Iterator[ReadItem]:
        """Yield results, tasks and milestones, as far as the chain serves the run."""
        prior = self.prior
        try:
            yield from self.anchor.check_file(self.ledger.chain)
            self.is_whole = yield from self._run()
            if self.is_whole and prior.earlier is not None:
                yield from self._where_earlier_ended(prior.earlier)
        except ChainError as error:
            yield from unreadable(error)
        newest = self.anchor.head.number
        if prior.checkpoints is not None:
            compared = self._tree.compared(prior.checkpoints, newest)
            yield from compared if self.is_whole else not_served(0, facts.CHECKPOINT_UNCHECKED)
        if prior.anchors:
            found = self._tree.anchored(prior.anchors, newest)
            yield from found if self.is_whole else not_served(0, facts.ANCHORS_UNCHECKED)
        if not self.is_whole and prior.earlier is not None:
            yield from not_served(0, facts.KEPT_HEAD_UNCHECKED, detail=to_hex(prior.earlier.head))
        if prior.head is not None and self.kept_head is None:
            if self.is_whole:
                yield self._absent(prior.head)
            else:
                yield from not_served(0, facts.KEPT_HEAD_UNCHECKED, detail=to_hex(prior.head))

    def _absent(self, head: Digest) -> CheckResult:
        newest = self.anchor.head.number
        values = str(newest), to_hex(head)
        return contradicted(newest, facts.KEPT_HEAD_ABSENT, *values, rests_on_all_logs=True)

    def _run(self) -> Generator[ReadItem, None, bool]:
        """Yield the run from its deployment on; return whether it was read to its end."""
        anchor = self.anchor
        if self.ledger.from_block <= 0:
            # No older block is known by which the contract stood.
            has_stood = 0 <= anchor.final_number < anchor.head.number and isinstance(
                self._state(anchor.final_number), LedgerSnapshot
            )
            self._stood_by = anchor.final_number if has_stood else anchor.head.number
        start = yield from read_start(self.ledger, self.archive, self.models, self._stood_by)
        if start is None:
            return False
        if start.document is not None:
            # Before any round: a file of another rule is refused at once.
            use_rules(start.document.parameters, self.rules)
        yield from check_beginning(start)
        if not start.is_possible:
            yield from not_served(start.block, facts.DEPLOYMENT_UNKNOWN)
            return False
        fixed = start.deployment
        self.deployment |= {
            "config": to_hex(fixed.config),
            **{name: shown(getattr(fixed, name)) for name in _PARAMETERS},
        }
        if start.document is None:
            config = to_hex(start.recorded.config)
            yield from not_served(start.block, facts.PARAMETERS_UNKNOWN, detail=config)
        replay = Replay(self.ledger, rounds.deployed(start.deployment, start.domain))
        self._settled = copy(replay.position)
        try:
            yield from self._replayed(replay, EvidenceReader(start))
        except ReadingEndedError as ended:
            yield from ended.results
            return False
        finally:
            self.applied, self.open_commitments = replay.applied, len(replay.commitments)
            state, settled = replay.position.state, self._settled
            self.deployment |= {
                "head": to_hex(state.head),
                "round": state.round,
                "stage": state.stage.name.lower(),
                **NOTHING_FINAL,
            }
            is_confirmed = self.ledger.chain.node is None or settled.is_confirmed
            if is_confirmed and anchor.final_number >= self._stood_by:
                self.deployment["final_head"] = to_hex(settled.state.head)
                self.deployment["final_round"] = last_ended(settled.state)
        return True

    def _replayed(self, replay: Replay, reader: EvidenceReader) -> Iterator[ReadItem]:
        """Yield what the transactions did, and how the contract's state differs from it."""
        head, final = self.anchor.head.number, self.anchor.final_number
        stands, earlier = self._state(head), self.prior.earlier
        trusted_to = -1 if earlier is None else earlier.block
        is_trusted = earlier is not None
        self._left_off = replay.position.state.head
        self._note(replay.position.state.head, 0)
        for item in replay.observe(head):
            if item.block <= final:
                self._settled = copy(replay.position)
            is_trusted = is_trusted and item.block <= trusted_to
            if is_trusted:
                self._left_off = replay.position.state.head
            if isinstance(item, ReplayedRound):
                yield from reader.read(item, is_trusted=is_trusted)
                self.rounds = reader.ended
                self.trusted += is_trusted
                is_confirmed = self.ledger.chain.node is None or replay.position.is_confirmed
                if is_confirmed:
                    # Another log of the same block may come after this one.
                    self.complete_to = max(self.complete_to, item.block - 1)
                ended = last_ended(stands) if isinstance(stands, LedgerSnapshot) else self.rounds
                yield Milestone(self.rounds, ended, is_confirmed)
            elif isinstance(item, CheckResult):
                yield item
            elif isinstance(item.event, HeadEvent):
                event = item.event
                self._tree.add(replay.position.state.domain, event, item.block)
                self._note(event.head, event.round, type(event).__name__)
        yield from self._compared(head, stands, replay.position)
        if self._stood_by <= final < head:
            # The newest state may be another branch's: what contradicts only there proves nothing.
            stood = self._state(final)
            if isinstance(stood, LedgerSnapshot):
                yield from self._compared(final, stood, self._settled or replay.position)

    def _compared(
        self, number: int, stands: LedgerSnapshot | tuple[CheckResult, ...], reached: ReplayPosition
    ) -> Iterator[CheckResult]:
        """Yield how the contract's own state differs, or that logs up to it are missing."""
        if not isinstance(stands, LedgerSnapshot):
            yield from stands
            return
        node = self.ledger.chain.node
        if node is not None and (difference := reached.difference(stands)) is not None:
            error = ports.IncompleteLogsError(node, f"up to block {number} {difference}")
            # Either logs are missing or the state is false: both are the node's fault.
            yield from not_served(number, facts.LOGS_INCOMPLETE, detail=str(error))
            return
        self.complete_to = max(self.complete_to, number)
        believed = reached.believes_registry
        registry = facts.check_registry(stands, reached.state, believes_registry=believed)
        state = facts.check_state(stands, reached.state)
        yield from results_of(number, (AuditStep.DEPLOYMENT, registry), (AuditStep.HEAD, state))

    def _where_earlier_ended(self, earlier: EarlierAudit) -> Iterator[CheckResult]:
        number = earlier.block
        if number > self.anchor.head.number:
            yield self._absent(earlier.head)
            return
        block = read_block(self.ledger.chain, number)
        if not isinstance(block, ports.Block):
            yield from block
            return
        if earlier.block_hash != block.hash:
            values = str(number), to_hex(earlier.block_hash), to_hex(block.hash)
            yield contradicted(number, facts.EARLIER_BLOCK_DIFFERS, *values)
        if earlier.head != self._left_off:
            values = str(number), to_hex(earlier.head), to_hex(self._left_off)
            yield contradicted(number, facts.EARLIER_HEAD_DIFFERS, *values, rests_on_all_logs=True)
        self.found_earlier = (block.hash, self._left_off) == (earlier.block_hash, earlier.head)
        if self.found_earlier and self.trusted != earlier.rounds and number <= self.complete_to:
            raise EarlierReportError(
                f"the earlier report counts {earlier.rounds} ended rounds by the head "
                f"{to_hex(earlier.head)}, but there were {self.trusted}; the report was changed"
            )

    def _state(self, number: int) -> LedgerSnapshot | tuple[CheckResult, ...]:
        try:
            return self.ledger.state(number)
        except ports.ChainUnreachableError:
            raise
        except (ChainError, ProtocolRefusal) as error:
            if isinstance(error, ports.NotServedError) or is_node_failure(self.ledger, error):
                return not_served(number, facts.STATE_UNAVAILABLE, detail=str(error))
            return (contradicted(number, facts.STATE_UNREADABLE, true=str(error)),)

    def _note(self, head: Digest, at: int, event: str = "") -> None:
        if head == self.prior.head and self.kept_head is None:
            self.kept_head = KeptHeadReport(to_hex(head), found=True, round=at, event=event)


def unreadable(error: ChainError) -> Iterator[CheckResult]:
    """Yield the consequences of a chain that cannot be read any further."""
    if isinstance(error, ports.ChainDamagedError):
        yield contradicted(0, facts.CHAIN_UNREADABLE, true=str(error))
    yield from not_served(0, facts.CHAIN_UNAVAILABLE, detail=str(error))


def check_beginning(start: RunStart) -> list[CheckResult]:
    """Return what a run's beginning contradicts or leaves open."""
    model = None if start.model is None else start.model.lost
    deployment, blobs = facts.check_start(start), unavailable_blobs(start.lost, model)
    checks = (AuditStep.DEPLOYMENT, deployment), (AuditStep.BLOBS, blobs)
    return results_of(start.block, *checks, rests_on_all_logs=False)


def read_start(
    ledger: CommitteeLedger, archive: Archive, models: ModelChain, block: int
) -> Generator[CheckResult, None, RunStart | None]:
    """Yield what of the deployment is not available; return what was deployed."""
    try:
        recorded, domain = ledger.deployment(), ledger.domain()
    except ports.ChainUnreachableError:
        raise
    except (ChainError, ProtocolRefusal) as error:
        if is_node_failure(ledger, error):
            yield from not_served(block, facts.DEPLOYMENT_UNKNOWN, detail=str(error))
            return None
        yield contradicted(block, facts.DEPLOYMENT_UNREADABLE, true=str(error))
        yield from not_served(block, facts.DEPLOYMENT_UNKNOWN)
        return None
    blob = archive.read(BlobKind.CONFIGURATION, recorded.config, None)
    document, malformed = decoded(decode_run, blob)
    deployment = recorded if document is None else deployment_for(document)[0]
    code, model = "", None
    try:
        code = code_violation(ledger, deployment, domain) or ""
    except ports.ChainUnreachableError:
        raise
    except ports.ChainDamagedError as error:
        code = f"it cannot be read: {error}"
    except ChainError as error:
        yield from not_served(block, facts.CODE_UNAVAILABLE, detail=str(error))
    if document is not None:
        model = models.begin(deployment.model, document.parameters.dimension, archive)
    return RunStart(
        block=block,
        domain=domain,
        address=ledger.address,
        recorded=recorded,
        document=document,
        deployment=deployment,
        lost=blob if isinstance(blob, UnavailableBlob) else None,
        malformed=malformed,
        is_possible=document is not None or _is_possible(recorded),
        code=code,
        model=model,
    )


def is_node_failure(ledger: CommitteeLedger, error: ChainError | ProtocolRefusal) -> bool:
    """Return whether a node made a view fail: the ledger's views never revert."""
    if isinstance(error, ports.ChainDamagedError):
        return False
    try:
        require_code(ledger.chain, ledger.address)
    except ports.ChainUnreachableError:
        raise
    except ChainError as doubt:
        return isinstance(doubt, ports.NotServedError)
    return True


def _is_possible(deployment: Deployment) -> bool:
    return (
        MIN_MEMBERS <= deployment.members <= MAX_MEMBERS
        and deployment.members <= deployment.trainers <= MAX_TRAINERS
        and deployment.members + deployment.trainers <= deployment.clients <= MAX_CLIENTS
    )
