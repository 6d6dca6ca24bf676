"""`judgement` with a memory: what follows from one record and one set of updates is computed once.

In one process all members share a judge, which is the same as each computing from the same bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import is_

import numpy as np
from numpy.typing import NDArray

from ledger.actors.view import RoundView
from ledger.protocol.documents.record import RoundRecord, decode_record
from ledger.protocol.documents.vector import ScoreVector
from ledger.protocol.encoding import sha256
from ledger.protocol.errors import EncodingError
from ledger.protocol.inputs import Inputs
from ledger.protocol.judgement import Judgement, compose_record, judge, score_updates
from ledger.protocol.rules.distance import DistanceRule, Distances, Travel, Updates, plain_distances
from ledger.protocol.types import ClientId, Digest, SignedScores
from ledger.protocol.validation import Violation, ViolationCode

Judged = tuple["Judgement | None", tuple[Violation, ...]]

_NOT_FINAL = {
    ViolationCode.UPDATE_MISSING,
    ViolationCode.VECTOR_MISSING,
    ViolationCode.MODEL_UNKNOWN,
}
"""Doubts that what arrives later may clear up."""


def is_certain(violations: Iterable[Violation]) -> bool:
    """Return whether one of these violations is final, whatever arrives later."""
    return any(doubt.code not in _NOT_FINAL for doubt in violations)


class JudgementCache:
    """Judges records of the newest round that it was asked about."""

    def __init__(self, distances: Distances = plain_distances) -> None:
        """Remember how distances are computed."""
        self._distances = CachedDistances(distances)
        self._inputs: Inputs | None = None
        self._about: tuple[NDArray[np.float32] | None, ...] = (None, None)
        self._judged: dict[Digest, Judged] = {}
        self._records: dict[Digest, RoundRecord | None] = {}

    def judge(self, view: RoundView, record: bytes) -> Judged:
        """Return what follows from a record's bytes, or the doubts about it.

        Args:
            record: the bytes; if they are no record, there is one doubt.
        """
        self._turn_to(view)
        digest = sha256(record)
        if digest in self._judged:
            return self._judged[digest]
        read = self.read(view, record)
        if read is None:
            result: Judged = (None, (Violation(ViolationCode.OTHER_ROUND_OR_BASE),))
        else:
            result = judge(view.inputs, read, view.evidence, self._distances)
        if not any(doubt.code in _NOT_FINAL for doubt in result[1]):
            self._judged[digest] = result
        return result

    def read(self, view: RoundView, record: bytes) -> RoundRecord | None:
        """Return the record behind bytes, None if they are none."""
        self._turn_to(view)
        digest = sha256(record)
        if digest not in self._records:
            try:
                self._records[digest] = decode_record(record)
            except EncodingError:
                self._records[digest] = None
        return self._records[digest]

    def compose(self, view: RoundView, claims: Sequence[SignedScores]) -> RoundRecord:
        """Return the record that a primary makes of what it holds."""
        return compose_record(view.inputs, view.evidence, claims, self._distances)

    def score(
        self, view: RoundView, clients: Sequence[ClientId], member: ClientId
    ) -> ScoreVector | None:
        """Return a member's score vector for a set of usable updates."""
        return score_updates(view.inputs, view.evidence, clients, member, self._distances)

    def _turn_to(self, view: RoundView) -> None:
        # Not the base alone: a reorganisation can leave it, and change committee, seed or model.
        inputs, vectors = view.inputs, (view.evidence.model, view.evidence.displacement)
        if inputs != self._inputs or not all(map(is_, vectors, self._about)):
            self._inputs, self._about = inputs, vectors
            self._judged, self._records = {}, {}


class CachedDistances:
    """Distances that remember the last set of updates they were asked for."""

    def __init__(self, distances: Distances) -> None:
        self._distances = distances
        self._asked: tuple[object, ...] = ()
        self._arrays: list[NDArray[np.float32] | None] = []
        self._matrix: NDArray[np.float64] | None = None

    def __call__(
        self, rule: DistanceRule, travel: Travel, updates: Updates, members: Sequence[ClientId]
    ) -> NDArray[np.float64]:
        """Return the distances of all updates from the members'."""
        clients = sorted(updates)
        request = (rule.name, tuple(clients), tuple(members))
        arrays = [travel, *(updates[client] for client in clients)]
        same = request == self._asked and all(map(is_, arrays, self._arrays))
        if not same or self._matrix is None:
            self._matrix = self._distances(rule, travel, updates, members)
            self._asked, self._arrays = request, arrays
        return self._matrix
