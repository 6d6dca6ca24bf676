"""Rounds that have ended, with what was published of them, as observations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ledger.audit.codes import Need
from ledger.audit.evidence.incidents import read_accusations
from ledger.audit.evidence.round import closing_in, gather, participants_in
from ledger.audit.observations import (
    AppearedPayload,
    ClosedRound,
    DecidedRound,
    EndedRound,
    Unserved,
)
from ledger.protocol.encoding import commitment_of
from ledger.protocol.inputs import Inputs
from ledger.protocol.types import DropoutReason

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ledger.audit.evidence.archive import Archive
    from ledger.audit.evidence.models import ModelChain
    from ledger.audit.evidence.round import RoundEvidence
    from ledger.audit.observations import Observation, RunStart
    from ledger.audit.replay.round import ReplayedRound
    from ledger.protocol.documents.run import RunDocument
    from ledger.protocol.ledger_state import RoundDecided
    from ledger.protocol.rules.distance.rule import Distances
    from ledger.protocol.types import ClientId, Digest

MOST_COMPARED = 200_000
"""Of blobs that nobody names and payloads that are recorded as missing, pairs that are compared."""


@dataclass(frozen=True, slots=True)
class _MissingPayload:
    block: int
    round: int
    client: ClientId
    commitment: Digest


class RoundReader:
    """Reads what was published of round after round.

    Attributes:
        ended: how many rounds were read.
    """

    def __init__(
        self, start: RunStart, archive: Archive, models: ModelChain, distances: Distances
    ) -> None:
        self.ended = 0
        self._start = start
        self._archive = archive
        self._models = models
        self._distances = distances
        self._missing: list[_MissingPayload] = []

    def observe(self, replayed: ReplayedRound) -> Iterator[Observation]:
        """Yield a round that has ended: its inputs, its record and its blobs.

        Args:
            replayed: the round.
        """
        self.ended += 1
        block, at = replayed.block, replayed.round
        yield EndedRound(block, replayed, self.ended)
        if not replayed.known:
            yield Unserved(block, Need.ROUND_BEFORE, at)
            return
        self._models.opened(at, replayed.before.model)
        if not replayed.is_in_range:
            return
        participants = participants_in(replayed)
        closed = ClosedRound(block, replayed, participants, closing_in(replayed, participants))
        yield closed
        document, event = self._start.document, replayed.decided
        if document is not None and event is not None:
            yield from self._decided(closed, event, self._inputs(closed, document))

    def appeared(self) -> Iterator[AppearedPayload]:
        """Yield payloads that are recorded as missing and are there, where the store can tell."""
        blobs = self._archive.unnamed() if self._missing else ()
        for one in self._missing[: MOST_COMPARED // max(1, len(blobs))]:
            for digest in blobs:
                if commitment_of(one.client, digest) == one.commitment:
                    yield AppearedPayload(one.block, one.round, one.client, digest)

    def _inputs(self, closed: ClosedRound, document: RunDocument) -> Inputs:
        before = closed.replayed.before
        return Inputs(
            parameters=document.parameters,
            layout=document.layout,
            domain=self._start.domain,
            registry=before.registry,
            round=closed.replayed.round,
            seed=before.seed,
            participants=closed.participants,
            closing=closed.closing,
        )

    def _decided(
        self, closed: ClosedRound, event: RoundDecided, inputs: Inputs
    ) -> Iterator[Observation]:
        travel = self._models.travel(inputs)
        found = gather(inputs, event, self._archive, self._distances, travel)
        if found.record is None:
            yield Unserved(closed.block, Need.RECORD, event.round)
        accusations = read_accusations(found, self._models.vector, self._archive)
        yield DecidedRound(closed.block, found, self._models.follow(found), accusations)
        self._missing += _missing_payloads(closed.block, found)


def _missing_payloads(block: int, found: RoundEvidence) -> Iterator[_MissingPayload]:
    commitments = found.inputs.closing.commitments
    for dropout in found.record.dropouts if found.record is not None else ():
        is_missing = dropout.reason is DropoutReason.PAYLOAD_MISSING
        if is_missing and dropout.client in commitments:
            commitment = commitments[dropout.client]
            yield _MissingPayload(block, found.event.round, dropout.client, commitment)
