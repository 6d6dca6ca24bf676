"""A whole run as observations: the deployment, every round, and the end."""

from __future__ import annotations

import sys
from collections.abc import Generator, Iterator
from typing import Any

from ledger.audit.anchors import ChainAnchor, EarlierAudit, EarlierReportError, PriorKnowledge
from ledger.audit.checks.chain import (
    BLOCK_UNREADABLE,
    CHAIN_UNREADABLE,
    CHECKPOINT_UNCHECKED,
    CHECKPOINT_WITHHELD,
    CODE_UNAVAILABLE,
    DEPLOYMENT_UNREADABLE,
    EARLIER_BLOCK_DIFFERS,
    EARLIER_HEAD_DIFFERS,
    KEPT_HEAD_UNCHECKED,
    NOT_WITNESSED,
    ROUNDS_NOT_WITNESSED,
    SIGNED_ROUNDS_ABSENT,
    SIGNED_TREE_DIFFERS,
    SIGNED_TREES_CONFLICT,
    STATE_UNAVAILABLE,
    STATE_UNREADABLE,
)
from ledger.audit.checks.common import (
    BLOCK_UNAVAILABLE,
    CHAIN_UNAVAILABLE,
    DEPLOYMENT_UNKNOWN,
    LOGS_INCOMPLETE,
    PARAMETERS_UNKNOWN,
)
from ledger.audit.evidence import Archive, ModelChain, UnavailableBlob
from ledger.audit.observations import (
    Disagreement,
    KeptHeadPosition,
    Observation,
    Remark,
    ReplayedEvent,
    ReplayedRound,
    RunStart,
    StateComparison,
    Unavailable,
)
from ledger.audit.replay import ReadingEndedError, Replay, ReplayPosition
from ledger.audit.report import AuditStep, BlobKind, Finding
from ledger.audit.round_checker import EvidenceReader, Milestone
from ledger.audit.worker_pool import ReadItem
from ledger.chain.contract.deploy import code_violation, deployment_for, require_code
from ledger.chain.contract.ledger import CommitteeLedger, LedgerSnapshot
from ledger.chain.ports import (
    ChainDamagedError,
    ChainUnreachableError,
    IncompleteLogsError,
    NotServedError,
)
from ledger.chain.round_ledger import last_ended
from ledger.io.parsing import picked
from ledger.protocol import rounds
from ledger.protocol.documents.run import RunDocument, decode_run
from ledger.protocol.encoding import to_hex
from ledger.protocol.errors import ChainError, EncodingError, ProtocolRefusal
from ledger.protocol.ledger_state import ClientBanned, Deployment, RoundAbandoned, RoundDecided
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

    def compared(self, evidence: CheckpointEvidence, newest_block: int) -> Iterator[Observation]:
        """Yield the trees that logs have signed, and what no quorum of witnesses stands for.

        Args:
            evidence: checkpoints that were collected before the run was read.
        """
        rounds = len(self._leaves)
        conflict = evidence.conflict()
        if conflict is not None:
            one, other = conflict
            subject = f"{one.origin}, {one.size} rounds,"
            roots = to_hex(one.root), to_hex(other.root)
            yield Disagreement(0, SIGNED_TREES_CONFLICT, subject, *roots)
        for checkpoint in evidence.checkpoints:
            size = checkpoint.size
            is_there = size <= rounds
            root = root_of(self._leaves[:size]) if is_there else None
            block = self._blocks[size - 1] if is_there and size else newest_block
            fact, subject = SIGNED_TREE_DIFFERS, f"{checkpoint.origin}, {size} rounds,"
            values = to_hex(checkpoint.root), "" if root is None else to_hex(root)
            if root is None:
                fact, subject = SIGNED_ROUNDS_ABSENT, checkpoint.origin
                values = str(size), str(rounds)
            if root != checkpoint.root:
                yield Disagreement(block, fact, subject, *values, rests_on_all_logs=True)
        for claim in evidence.withheld:
            yield Unavailable(0, CHECKPOINT_WITHHELD, detail=claim)
        witnessed = evidence.witnessed
        if witnessed is None:
            failures = evidence.failures or ("no log or witness gave a checkpoint",)
            for failure in failures[:_MAX_NAMED]:
                yield Unavailable(0, NOT_WITNESSED, detail=failure)
        elif witnessed.checkpoint.size < rounds:
            size = witnessed.checkpoint.size
            finding = Finding(ROUNDS_NOT_WITNESSED, size + 1, (), (), proven=False)
            yield Remark(self._blocks[size], AuditStep.HEAD, finding)


NOTHING_FINAL = {"final_head": "", "final_round": None}
_MOVING_THE_HEAD = (RoundDecided, RoundAbandoned, ClientBanned)


class RunReader:
    """Reads a run once, from its chain; what was published of its rounds is left to be checked.

    Attributes:
        is_whole: whether the run was read to its end.
        found_earlier: whether it passes through block and head of the earlier audit's end.
        open_commitments: commitments of the round that has not ended.
        kept_head: position of the head that the auditor kept; None if it was not found.
        complete_to: newest block up to which no log is missing; a file never lacks one.
    """

    def __init__(
        self,
        ledger: CommitteeLedger,
        archive: Archive,
        models: ModelChain,
        anchor: ChainAnchor,
        prior: PriorKnowledge,
    ) -> None:
        self.rounds = 0
        self.trusted = 0
        self.is_whole = False
        self.found_earlier = False
        self.applied = 0
        self.open_commitments = 0
        self.deployment: dict[str, Any] = {}
        self.kept_head: KeptHeadPosition | None = None
        # A file that lacks a log contradicts itself; nobody stands between it and its reader.
        self._node = ledger.chain.node
        self.complete_to = sys.maxsize if self._node is None else -1
        self._ledger = ledger
        self._archive = archive
        self._models = models
        self._anchor = anchor
        self._prior_head = prior.head
        self._checkpoints = prior.checkpoints
        self._tree = RunTree()
        self._earlier = prior.earlier
        self._earlier_block = -1 if prior.earlier is None else prior.earlier.block
        self._settled: ReplayPosition | None = None
        self._stood_by = ledger.from_block
        self._left_off = Digest(bytes(32))

    def observe(self) -> Iterator[ReadItem]:
        """Yield all that there is to see, as far as the chain serves it."""
        try:
            yield from self._anchor.check_file(self._ledger.chain)
            self.is_whole = yield from self._run()
            if self.is_whole and self._earlier is not None:
                yield from self._where_earlier_ended(self._earlier)
        except ChainError as error:
            yield from unreadable(error)
        if self._checkpoints is not None:
            if self.is_whole:
                yield from self._tree.compared(self._checkpoints, self._anchor.head.number)
            else:
                yield Unavailable(0, CHECKPOINT_UNCHECKED)
        if not self.is_whole and self._earlier is not None:
            yield Unavailable(0, KEPT_HEAD_UNCHECKED, detail=to_hex(self._earlier.head))
        if self._prior_head is not None and self.kept_head is None:
            if self.is_whole:
                yield KeptHeadPosition(self._anchor.head.number, self._prior_head, None)
            else:
                yield Unavailable(0, KEPT_HEAD_UNCHECKED, detail=to_hex(self._prior_head))

    def _run(self) -> Generator[ReadItem, None, bool]:
        """Yield the run from its deployment on; return whether it was read to its end."""
        start: RunStart | None = None
        self._stood_by = self._creation()
        for observation in read_start(self._ledger, self._archive, self._models, self._stood_by):
            yield observation
            start = observation if isinstance(observation, RunStart) else None
        if start is None:
            return False
        if not start.is_possible:
            yield Unavailable(start.block, DEPLOYMENT_UNKNOWN)
            return False
        fixed = start.deployment
        self.deployment |= picked(
            "config clients trainers members rounds form aggregation_ppm commit_blocks "
            "deadline_blocks replies beacon",
            fixed,
            form=int(fixed.form),
            beacon=str(fixed.beacon),
        )
        if start.document is None:
            config = to_hex(start.recorded.config)
            yield Unavailable(start.block, PARAMETERS_UNKNOWN, detail=config)
        reader = EvidenceReader(start)
        replay = Replay(self._ledger, rounds.deployed(start.deployment, start.domain))
        self._settled = replay.reached()
        try:
            yield from self._replayed(replay, reader)
        except ReadingEndedError as ended:
            yield ended.observed
            if isinstance(ended.observed, Disagreement):
                yield Unavailable(ended.observed.block, CHAIN_UNAVAILABLE)
            return False
        finally:
            self.applied, self.open_commitments = replay.applied, replay.open_commitments()
            self.deployment |= picked(
                "head round stage", replay.state, stage=replay.state.stage.name.lower()
            )
            self.deployment |= self._final()
        return True

    def _replayed(self, replay: Replay, reader: EvidenceReader) -> Iterator[ReadItem]:
        """Yield what the transactions did, and where the contract says that they lead."""
        head, final = self._anchor.head.number, self._anchor.final_number
        stands = self._state(head)
        is_trusted = self._earlier is not None
        self._left_off = replay.state.head
        self._note(KeptHeadPosition(self._stood_by, replay.state.head, 0))
        for item in replay.observe(head):
            if item.block <= final:
                self._settled = replay.reached()
            is_trusted = is_trusted and item.block <= self._earlier_block
            if is_trusted:
                self._left_off = replay.state.head
            if isinstance(item, ReplayedRound):
                yield from reader.observe(item, is_trusted=is_trusted)
                self.rounds = reader.ended
                self.trusted += is_trusted
                is_confirmed = self._node is None or replay.is_confirmed
                if is_confirmed:
                    # Another log of the same block may come after this one.
                    self.complete_to = max(self.complete_to, item.block - 1)
                ended = last_ended(stands) if isinstance(stands, LedgerSnapshot) else self.rounds
                yield Milestone(self.rounds, ended, is_confirmed)
                continue
            if isinstance(item, ReplayedEvent) and isinstance(item.event, _MOVING_THE_HEAD):
                event = item.event
                self._tree.add(replay.state.domain, item)
                self._note(KeptHeadPosition(item.block, event.head, event.round, type(event)))
            yield item
        if isinstance(stands, LedgerSnapshot):
            yield from self._held_against(head, stands, replay.reached())
        else:
            yield stands
        if self._stood_by <= final < head:
            # The newest state may be another branch's: what contradicts only there proves nothing.
            stood = self._state(final)
            if isinstance(stood, LedgerSnapshot):
                yield from self._held_against(final, stood, self._settled or replay.reached())

    def _held_against(
        self, number: int, stands: LedgerSnapshot, reached: ReplayPosition
    ) -> Iterator[StateComparison | Unavailable]:
        """Yield the contract's own state, and whether all logs up to it were read."""
        difference = None if self._node is None else reached.difference(stands)
        if difference is None:
            self.complete_to = max(self.complete_to, number)
        else:
            error = IncompleteLogsError(self._node, f"up to block {number} {difference}")
            # Either logs are missing or the state is false: both are the node's fault.
            yield Unavailable(number, LOGS_INCOMPLETE, detail=str(error))
            return
        yield StateComparison(number, stands, reached.state, reached.believes_registry)

    def _where_earlier_ended(self, earlier: EarlierAudit) -> Iterator[Observation]:
        """Yield how block and head differ from those that an earlier audit has ended with."""
        number = earlier.block
        if number > self._anchor.head.number:
            yield KeptHeadPosition(self._anchor.head.number, earlier.head, None)
            return
        try:
            block = self._ledger.chain.block(number)
        except ChainUnreachableError:
            raise
        except ChainDamagedError as error:
            yield Disagreement(number, BLOCK_UNREADABLE, str(number), true=str(error))
            return
        except ChainError as error:
            yield Unavailable(number, BLOCK_UNAVAILABLE, detail=f"{number}: {error}")
            return
        subject = str(number)
        if block.hash != earlier.block_hash:
            recorded, true = to_hex(earlier.block_hash), to_hex(block.hash)
            yield Disagreement(number, EARLIER_BLOCK_DIFFERS, subject, recorded, true)
        if self._left_off != earlier.head:
            recorded, true = to_hex(earlier.head), to_hex(self._left_off)
            values = subject, recorded, true
            yield Disagreement(number, EARLIER_HEAD_DIFFERS, *values, rests_on_all_logs=True)
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

    def _state(self, number: int) -> LedgerSnapshot | Unavailable | Disagreement:
        """Return the contract's own state, or the error of reading it."""
        try:
            return self._ledger.state(number)
        except ChainUnreachableError:
            raise
        except NotServedError as error:
            return Unavailable(number, STATE_UNAVAILABLE, detail=str(error))
        except (ChainError, ProtocolRefusal) as error:
            if is_node_failure(self._ledger, error):
                return Unavailable(number, STATE_UNAVAILABLE, detail=str(error))
            return Disagreement(number, STATE_UNREADABLE, true=str(error))

    def _final(self) -> dict[str, Any]:
        """Return the newest head that cannot be taken back, and the rounds that it covers."""
        settled = self._settled
        if settled is None or self._anchor.final_number < self._stood_by:
            return NOTHING_FINAL
        if self._node is not None and not settled.is_confirmed:
            return NOTHING_FINAL
        return {"final_head": to_hex(settled.state.head), "final_round": last_ended(settled.state)}

    def _note(self, passed: KeptHeadPosition) -> None:
        if passed.head == self._prior_head and self.kept_head is None:
            self.kept_head = passed


def unreadable(error: ChainError) -> Iterator[Observation]:
    """Yield the consequences of a chain that cannot be read any further."""
    if isinstance(error, ChainDamagedError):
        yield Disagreement(0, CHAIN_UNREADABLE, true=str(error))
    yield Unavailable(0, CHAIN_UNAVAILABLE, detail=str(error))


def read_start(
    ledger: CommitteeLedger, archive: Archive, models: ModelChain, block: int
) -> Iterator[RunStart | Disagreement | Unavailable]:
    """Yield what was deployed, last, and before it what of it could not be had."""
    try:
        recorded, domain = ledger.deployment(), ledger.domain()
    except ChainUnreachableError:
        raise
    except (ChainError, ProtocolRefusal) as error:
        if is_node_failure(ledger, error):
            yield Unavailable(block, DEPLOYMENT_UNKNOWN, detail=str(error))
            return
        yield Disagreement(block, DEPLOYMENT_UNREADABLE, true=str(error))
        yield Unavailable(block, DEPLOYMENT_UNKNOWN)
        return
    blob = archive.read(BlobKind.CONFIGURATION, recorded.config, None)
    document, malformed = (None, "") if isinstance(blob, UnavailableBlob) else _document(blob)
    deployment = recorded if document is None else deployment_for(document)[0]
    code = ""
    try:
        code = code_violation(ledger, deployment, domain) or ""
    except ChainUnreachableError:
        raise
    except ChainDamagedError as error:
        code = f"it cannot be read: {error}"
    except ChainError as error:
        yield Unavailable(block, CODE_UNAVAILABLE, detail=str(error))
    model = None
    if document is not None:
        model = models.begin(deployment.model, document.parameters.dimension, archive)
    yield RunStart(
        block=block,
        domain=domain,
        address=ledger.address,
        recorded=recorded,
        document=document,
        lost=blob if isinstance(blob, UnavailableBlob) else None,
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


def _document(data: bytes) -> tuple[RunDocument | None, str]:
    """Return the configuration, or why it is none."""
    try:
        return decode_run(data), ""
    except EncodingError as error:
        return None, str(error)


def _is_possible(deployment: Deployment) -> bool:
    return (
        MIN_MEMBERS <= deployment.members <= MAX_MEMBERS
        and deployment.members <= deployment.trainers <= MAX_TRAINERS
        and deployment.members + deployment.trainers <= deployment.clients <= MAX_CLIENTS
    )
