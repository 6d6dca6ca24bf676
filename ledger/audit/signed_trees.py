"""The tree of a run's heads, beside the checkpoints of its logs."""

from __future__ import annotations

from collections.abc import Iterator

from ledger.audit.checks.head_chain import (
    CHECKPOINT_WITHHELD,
    NOT_WITNESSED,
    ROUNDS_NOT_WITNESSED,
    SIGNED_ROUNDS_ABSENT,
    SIGNED_TREE_DIFFERS,
    SIGNED_TREES_CONFLICT,
)
from ledger.audit.observations import Disagreement, Observation, Remark, ReplayedEvent, Unavailable
from ledger.audit.report import AuditStep, Finding
from ledger.protocol.encoding import to_hex
from ledger.protocol.types import Digest, Domain
from ledger.transparency.entries import head_entries
from ledger.transparency.merkle import leaf_hash, root_of
from ledger.transparency.witnessed import CheckpointEvidence

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
