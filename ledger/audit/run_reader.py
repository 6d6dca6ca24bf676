"""Reads a whole run and checks it: the deployment, every round, and the end."""

from __future__ import annotations

import sys
from collections.abc import Generator, Iterator
from copy import copy
from typing import Any

from ledger.audit.anchors import ChainAnchor, EarlierAudit, EarlierReportError, PriorKnowledge
from ledger.audit.checks import chain as facts
from ledger.audit.checks.chain import check_registry, check_start, check_state
from ledger.audit.checks.common import (
    CHAIN_UNAVAILABLE,
    DEPLOYMENT_UNKNOWN,
    LOGS_INCOMPLETE,
    PARAMETERS_UNKNOWN,
    CheckResult,
    contradicted,
    not_served,
    results_of,
)
from ledger.audit.checks.published import unavailable_blobs
from ledger.audit.evidence import (
    Archive,
    ReplayedEvent,
    ReplayedRound,
    RunStart,
    UnavailableBlob,
    decoded,
)
from ledger.audit.replay import ReadingEndedError, Replay, ReplayPosition, read_block
from ledger.audit.report import AuditStep, BlobKind, Finding, KeptHeadReport, shown
from ledger.audit.round_checker import EvidenceReader, Milestone, ModelChain, ReadItem
from ledger.chain.contract.deploy import code_violation, deployment_for, require_code
from ledger.chain.contract.ledger import CommitteeLedger
from ledger.chain.ports import (
    Block,
    ChainDamagedError,
    ChainUnreachableError,
    IncompleteLogsError,
    NotServedError,
)
from ledger.chain.round_ledger import LedgerSnapshot, last_ended
from ledger.io.user_code import use_rules
from ledger.protocol import rounds
from ledger.protocol.documents.run import decode_run
from ledger.protocol.encoding import to_hex
from ledger.protocol.errors import ChainError, ProtocolRefusal
from ledger.protocol.ledger_state import Deployment, HeadEvent
from ledger.protocol.parameters import MAX_CLIENTS, MAX_MEMBERS, MAX_TRAINERS, MIN_MEMBERS
from ledger.protocol.types import Digest, Domain
from ledger.transparency.policy import CheckpointEvidence
from ledger.transparency.tree import head_entries, leaf_hash, root_of

_MAX_NAMED = 8


class RunTree:
    """The leaves of a run's log, as the replay recomputes them, and the blocks they rest on."""

    def __init__(self) -> None:
        self._leaves: list[Digest] = []
        self._blocks: list[int] = []

    def add(self, domain: Domain, replayed: ReplayedEvent) -> None:
        """Add the leaf of an event, if it ends a round."""
        for entry in head_entries(domain, (replayed.event,)):
            self._leaves.append(leaf_hash(entry.encoded()))
            self._blocks.append(replayed.block)

    def compared(self, evidence: CheckpointEvidence, newest_block: int) -> Iterator[CheckResult]:
        """Yield the trees that logs have signed, and what no quorum of witnesses stands for."""
        rounds = len(self._leaves)
        conflict = evidence.conflict()
        if conflict is not None:
            one, other = conflict
            subject = f"{one.origin}, {one.size} rounds,"
            roots = to_hex(one.root), to_hex(other.root)
            yield contradicted(0, facts.SIGNED_TREES_CONFLICT, subject, *roots)
        for checkpoint in evidence.checkpoints:
            size = checkpoint.size
            is_there = size <= rounds
            root = root_of(self._leaves[:size]) if is_there else None
            block = self._blocks[size - 1] if is_there and size else newest_block
            fact, values = facts.SIGNED_ROUNDS_ABSENT, (checkpoint.origin, str(size), str(rounds))
            if root is not None:
                subject = f"{checkpoint.origin}, {size} rounds,"
                fact, values = (
                    facts.SIGNED_TREE_DIFFERS,
                    (subject, to_hex(checkpoint.root), to_hex(root)),
                )
            if root != checkpoint.root:
                yield contradicted(block, fact, *values, rests_on_all_logs=True)
        for claim in evidence.withheld:
            yield from not_served(0, facts.CHECKPOINT_WITHHELD, detail=claim)
        witnessed = evidence.witnessed
        if witnessed is None:
            failures = evidence.failures or ("no log or witness gave a checkpoint",)
            for failure in failures[:_MAX_NAMED]:
                yield from not_served(0, facts.NOT_WITNESSED, detail=failure)
        elif witnessed.checkpoint.size < rounds:
            size = witnessed.checkpoint.size
            finding = Finding(facts.ROUNDS_NOT_WITNESSED, size + 1, (), (), proven=False)
            yield CheckResult(AuditStep.HEAD, finding, self._blocks[size])


NOTHING_FINAL = {"final_head": "", "final_round": None}
_PARAMETERS = (
    *("clients", "trainers", "members", "rounds", "form", "aggregation_ppm"),
    *("commit_blocks", "deadline_blocks", "replies", "beacon"),
)
"""Fields of a deployment that a report shows, in its order."""


class RunReader:
    """Reads a run once, from its chain; what was published of its rounds is left to be checked.

    Attributes:
        is_whole: whether the run was read to its end.
        found_earlier: whether it passes through block and head of the earlier audit's end.
        open_commitments: commitments of the round that has not ended.
        kept_head: where the run has the head that the auditor kept; None if it never has.
        complete_to: newest block up to which no log is missing; a file never lacks one.
    """

    def __init__(
        self,
        ledger: CommitteeLedger,
        archive: Archive,
        models: ModelChain,
        anchor: ChainAnchor,
        prior: PriorKnowledge,
        rules: tuple[str, ...] = (),
    ) -> None:
        """Take what a run is read with.

        Args:
            models: is set to the model that the run begins with.
            rules: files or packages of own rules that the auditor names.
        """
        self.rounds = 0
        self.trusted = 0
        self.is_whole = False
        self.found_earlier = False
        self.applied = 0
        self.open_commitments = 0
        self.deployment: dict[str, Any] = {}
        self.kept_head: KeptHeadReport | None = None
        # A file that lacks a log contradicts itself; nobody stands between it and its reader.
        self._node = ledger.chain.node
        self.complete_to = sys.maxsize if self._node is None else -1
        self._ledger = ledger
        self._archive = archive
        self._models = models
        self._anchor = anchor
        self._rules = rules
        self._prior = prior
        self._tree = RunTree()
        self._settled: ReplayPosition | None = None
        self._stood_by = ledger.from_block
        self._left_off = Digest(bytes(32))

    def observe(self) -> Iterator[ReadItem]:
        """Yield all that there is to see, as far as the chain serves it."""
        prior = self._prior
        try:
            yield from self._anchor.check_file(self._ledger.chain)
            self.is_whole = yield from self._run()
            if self.is_whole and prior.earlier is not None:
                yield from self._where_earlier_ended(prior.earlier)
        except ChainError as error:
            yield from unreadable(error)
        if prior.checkpoints is not None:
            if self.is_whole:
                yield from self._tree.compared(prior.checkpoints, self._anchor.head.number)
            else:
                yield from not_served(0, facts.CHECKPOINT_UNCHECKED)
        if not self.is_whole and prior.earlier is not None:
            yield from not_served(0, facts.KEPT_HEAD_UNCHECKED, detail=to_hex(prior.earlier.head))
        if prior.head is not None and self.kept_head is None:
            if self.is_whole:
                yield self._absent(prior.head)
            else:
                yield from not_served(0, facts.KEPT_HEAD_UNCHECKED, detail=to_hex(prior.head))

    def _absent(self, head: Digest) -> CheckResult:
        """Return that the run does not pass through a head that was kept."""
        newest = self._anchor.head.number
        values = str(newest), to_hex(head)
        return contradicted(newest, facts.KEPT_HEAD_ABSENT, *values, rests_on_all_logs=True)

    def _run(self) -> Generator[ReadItem, None, bool]:
        """Yield the run from its deployment on; return whether it was read to its end."""
        self._stood_by = self._creation()
        start = yield from read_start(self._ledger, self._archive, self._models, self._stood_by)
        if start is None:
            return False
        if start.document is not None:
            # Before any round: a file of another rule is refused at once.
            use_rules(start.document.parameters, self._rules)
        yield from check_beginning(start)
        if not start.is_possible:
            yield from not_served(start.block, DEPLOYMENT_UNKNOWN)
            return False
        fixed = start.deployment
        self.deployment |= {
            "config": to_hex(fixed.config),
            **{name: shown(getattr(fixed, name)) for name in _PARAMETERS},
        }
        if start.document is None:
            config = to_hex(start.recorded.config)
            yield from not_served(start.block, PARAMETERS_UNKNOWN, detail=config)
        reader = EvidenceReader(start)
        replay = Replay(self._ledger, rounds.deployed(start.deployment, start.domain))
        self._settled = copy(replay.position)
        try:
            yield from self._replayed(replay, reader)
        except ReadingEndedError as ended:
            yield from ended.results
            return False
        finally:
            self.applied, self.open_commitments = replay.applied, replay.open_commitments()
            state = replay.position.state
            self.deployment |= {
                "head": to_hex(state.head),
                "round": state.round,
                "stage": state.stage.name.lower(),
                **self._final(),
            }
        return True

    def _replayed(self, replay: Replay, reader: EvidenceReader) -> Iterator[ReadItem]:
        """Yield what the transactions did, and where the contract says that they lead."""
        head, final = self._anchor.head.number, self._anchor.final_number
        stands = self._state(head)
        trusted_to = -1 if self._prior.earlier is None else self._prior.earlier.block
        is_trusted = self._prior.earlier is not None
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
                is_confirmed = self._node is None or replay.position.is_confirmed
                if is_confirmed:
                    # Another log of the same block may come after this one.
                    self.complete_to = max(self.complete_to, item.block - 1)
                ended = last_ended(stands) if isinstance(stands, LedgerSnapshot) else self.rounds
                yield Milestone(self.rounds, ended, is_confirmed)
            elif isinstance(item, CheckResult):
                yield item
            else:
                self._pass(item, replay.position.state.domain)
        yield from self._held_against(head, stands, replay.position)
        if self._stood_by <= final < head:
            # The newest state may be another branch's: what contradicts only there proves nothing.
            stood = self._state(final)
            if isinstance(stood, LedgerSnapshot):
                yield from self._held_against(final, stood, self._settled or replay.position)

    def _held_against(
        self,
        number: int,
        stands: LedgerSnapshot | tuple[CheckResult, ...],
        reached: ReplayPosition,
    ) -> Iterator[CheckResult]:
        """Yield how the contract's own state differs, or that logs up to it are missing."""
        if not isinstance(stands, LedgerSnapshot):
            yield from stands
            return
        difference = None if self._node is None else reached.difference(stands)
        if difference is None:
            self.complete_to = max(self.complete_to, number)
        else:
            error = IncompleteLogsError(self._node, f"up to block {number} {difference}")
            # Either logs are missing or the state is false: both are the node's fault.
            yield from not_served(number, LOGS_INCOMPLETE, detail=str(error))
            return
        registry = check_registry(
            stands, reached.state, believes_registry=reached.believes_registry
        )
        state = check_state(stands, reached.state)
        yield from results_of(number, (AuditStep.DEPLOYMENT, registry), (AuditStep.HEAD, state))

    def _where_earlier_ended(self, earlier: EarlierAudit) -> Iterator[CheckResult]:
        """Yield how block and head differ from those that an earlier audit has ended with."""
        number = earlier.block
        if number > self._anchor.head.number:
            yield self._absent(earlier.head)
            return
        block = read_block(self._ledger.chain, number)
        if not isinstance(block, Block):
            yield from block
            return
        for fact, recorded, true in (
            (facts.EARLIER_BLOCK_DIFFERS, earlier.block_hash, block.hash),
            (facts.EARLIER_HEAD_DIFFERS, earlier.head, self._left_off),
        ):
            if recorded != true:
                values = str(number), to_hex(recorded), to_hex(true)
                rests = fact is facts.EARLIER_HEAD_DIFFERS
                yield contradicted(number, fact, *values, rests_on_all_logs=rests)
        self.found_earlier = (block.hash, self._left_off) == (earlier.block_hash, earlier.head)
        if self.found_earlier and self.trusted != earlier.rounds and number <= self.complete_to:
            raise EarlierReportError(
                f"the earlier report says that {earlier.rounds} rounds had ended by the head "
                f"{to_hex(earlier.head)}; {self.trusted} had: it was changed, or is no report"
            )

    def _creation(self) -> int:
        """Return a block by which the contract stood; the newest if no older one is known."""
        if self._ledger.from_block > 0:
            return self._ledger.from_block
        head, final = self._anchor.head.number, self._anchor.final_number
        has_stood = 0 <= final < head and isinstance(self._state(final), LedgerSnapshot)
        return final if has_stood else head

    def _state(self, number: int) -> LedgerSnapshot | tuple[CheckResult, ...]:
        """Return the contract's own state, or the error of reading it."""
        try:
            return self._ledger.state(number)
        except ChainUnreachableError:
            raise
        except (ChainError, ProtocolRefusal) as error:
            if isinstance(error, NotServedError) or is_node_failure(self._ledger, error):
                return not_served(number, facts.STATE_UNAVAILABLE, detail=str(error))
            return (contradicted(number, facts.STATE_UNREADABLE, true=str(error)),)

    def _final(self) -> dict[str, Any]:
        """Return the newest head that cannot be taken back, and the rounds that it covers."""
        settled = self._settled
        if settled is None or self._anchor.final_number < self._stood_by:
            return NOTHING_FINAL
        if self._node is not None and not settled.is_confirmed:
            return NOTHING_FINAL
        return {"final_head": to_hex(settled.state.head), "final_round": last_ended(settled.state)}

    def _pass(self, replayed: ReplayedEvent, domain: Domain) -> None:
        """Take down the head that an event makes, if it makes one."""
        event = replayed.event
        if isinstance(event, HeadEvent):
            self._tree.add(domain, replayed)
            self._note(event.head, event.round, type(event).__name__)

    def _note(self, head: Digest, at: int, event: str = "") -> None:
        if head == self._prior.head and self.kept_head is None:
            self.kept_head = KeptHeadReport(to_hex(head), found=True, round=at, event=event)


def unreadable(error: ChainError) -> Iterator[CheckResult]:
    """Yield the consequences of a chain that cannot be read any further."""
    if isinstance(error, ChainDamagedError):
        yield contradicted(0, facts.CHAIN_UNREADABLE, true=str(error))
    yield from not_served(0, CHAIN_UNAVAILABLE, detail=str(error))


def check_beginning(start: RunStart) -> Iterator[CheckResult]:
    """Yield what a run's beginning contradicts or leaves open."""
    model = None if start.model is None else start.model.lost
    deployment, blobs = check_start(start), unavailable_blobs(start.lost, model)
    checks = (AuditStep.DEPLOYMENT, deployment), (AuditStep.BLOBS, blobs)
    return results_of(start.block, *checks, rests_on_all_logs=False)


def read_start(
    ledger: CommitteeLedger, archive: Archive, models: ModelChain, block: int
) -> Generator[CheckResult, None, RunStart | None]:
    """Yield what of the deployment could not be had; return what was deployed."""
    try:
        recorded, domain = ledger.deployment(), ledger.domain()
    except ChainUnreachableError:
        raise
    except (ChainError, ProtocolRefusal) as error:
        if is_node_failure(ledger, error):
            yield from not_served(block, DEPLOYMENT_UNKNOWN, detail=str(error))
            return None
        yield contradicted(block, facts.DEPLOYMENT_UNREADABLE, true=str(error))
        yield from not_served(block, DEPLOYMENT_UNKNOWN)
        return None
    blob = archive.read(BlobKind.CONFIGURATION, recorded.config, None)
    lost, document, malformed = None, None, ""
    if isinstance(blob, UnavailableBlob):
        lost = blob
    else:
        document, malformed = decoded(decode_run, blob)
    deployment = recorded if document is None else deployment_for(document)[0]
    code = ""
    try:
        code = code_violation(ledger, deployment, domain) or ""
    except ChainUnreachableError:
        raise
    except ChainDamagedError as error:
        code = f"it cannot be read: {error}"
    except ChainError as error:
        yield from not_served(block, facts.CODE_UNAVAILABLE, detail=str(error))
    model = None
    if document is not None:
        model = models.begin(deployment.model, document.parameters.dimension, archive)
    return RunStart(
        block=block,
        domain=domain,
        address=ledger.address,
        recorded=recorded,
        document=document,
        lost=lost,
        malformed=malformed,
        deployment=deployment,
        is_possible=document is not None or _is_possible(recorded),
        code=code,
        model=model,
    )


def is_node_failure(ledger: CommitteeLedger, error: ChainError | ProtocolRefusal) -> bool:
    """Return whether the node, and not the contract, made a view fail.

    Neither view of the ledger's code reverts or gives a malformed answer, whatever was recorded.
    """
    if isinstance(error, ChainDamagedError):
        return False
    try:
        require_code(ledger.chain, ledger.address)
    except ChainUnreachableError:
        raise
    except ChainError as doubt:
        return isinstance(doubt, NotServedError)
    return True


def _is_possible(deployment: Deployment) -> bool:
    return (
        MIN_MEMBERS <= deployment.members <= MAX_MEMBERS
        and deployment.members <= deployment.trainers <= MAX_TRAINERS
        and deployment.members + deployment.trainers <= deployment.clients <= MAX_CLIENTS
    )
