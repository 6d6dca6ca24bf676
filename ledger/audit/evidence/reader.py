"""Rounds that have ended, as the chain has them, and what has to be checked of each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ledger.audit.codes import Need
from ledger.audit.evidence.model_chain import ModelDigests
from ledger.audit.evidence.round_evidence import closing_in, participants_in
from ledger.audit.observations import ClosedRound, Unavailable, WatchedRound
from ledger.audit.round_tasks import RoundTask
from ledger.protocol.inputs import Inputs

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ledger.audit.observations import Observation, RunStart
    from ledger.audit.replay.round import ReplayedRound
    from ledger.protocol.documents.run import RunDocument


class RoundReader:
    """Makes of replayed rounds what can be said of them at once, and what is left to be checked.

    Attributes:
        ended: how many rounds have ended.
    """

    def __init__(self, start: RunStart) -> None:
        self.ended = 0
        self._start = start
        self._models = ModelDigests()

    def observe(
        self, replayed: ReplayedRound, *, is_trusted: bool
    ) -> Iterator[Observation | RoundTask]:
        """Yield a round that has ended, its inputs, and its decision as work.

        Args:
            replayed: the round.
            is_trusted: whether an earlier audit has checked its record and blobs.
        """
        self.ended += 1
        block, at = replayed.block, replayed.round
        yield WatchedRound(block, replayed, self.ended)
        if not replayed.known:
            yield Unavailable(block, Need.ROUND_BEFORE, at)
            return
        self._models.opened(at, replayed.before.model)
        if not replayed.is_in_range:
            return
        participants = participants_in(replayed)
        closed = ClosedRound(block, replayed, participants, closing_in(replayed, participants))
        yield closed
        document, event = self._start.document, replayed.decided
        if document is None or event is None or is_trusted:
            return
        inputs = self._inputs(closed, document)
        origin = self._models.before(inputs)
        yield RoundTask(block, inputs, event, replayed.before.model, origin)

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
