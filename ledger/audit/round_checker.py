"""Record, blobs, distances and model of one decided round after the other, in this process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ledger.audit.checks.order import run_checks
from ledger.audit.codes import Need
from ledger.audit.evidence.archive import Archive
from ledger.audit.evidence.incidents import read_accusations
from ledger.audit.evidence.model_chain import ModelChain
from ledger.audit.evidence.round_evidence import read_round_evidence
from ledger.audit.observations import DecidedRound, Unavailable
from ledger.audit.round_tasks import CheckedRound, MissingPayload
from ledger.protocol.types import DropoutReason

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ledger.audit.codes import Step
    from ledger.audit.evidence.archive import UnavailableBlob
    from ledger.audit.evidence.round_evidence import RoundEvidence
    from ledger.audit.observations import Observation
    from ledger.audit.report import StepResult
    from ledger.audit.round_tasks import RoundTask
    from ledger.protocol.rules.distance import Distances
    from ledger.storage.blobs import BlobReader


class RoundChecker:
    """Checks rounds one after the other; holds the blobs of one, and the newest model.

    Attributes:
        models: the model that the next round begins with.
    """

    def __init__(
        self, blobs: BlobReader, distances: Distances, models: ModelChain | None = None
    ) -> None:
        self.models = ModelChain() if models is None else models
        self._blobs = blobs
        self._distances = distances

    def start_from(self, task: RoundTask) -> UnavailableBlob | None:
        """Take up the model that a round begins with; return why it is not to be had.

        Args:
            task: the round.
        """
        dimension = task.inputs.parameters.dimension
        return self.models.start_from(task.model, dimension, Archive(self._blobs))

    def check(self, task: RoundTask) -> CheckedRound:
        """Return what the steps say of a round's record and blobs, and go on to its model.

        Args:
            task: the round.
        """
        self.start_from(task)
        archive = Archive(self._blobs)
        said: list[tuple[Step, StepResult]] = []
        missing: list[MissingPayload] = []
        for seen in self._observe(task, archive):
            said += run_checks(seen)
            if isinstance(seen, DecidedRound):
                missing += _missing_payloads(task.block, seen.found)
        return CheckedRound(
            block=task.block,
            said=tuple(said),
            missing=tuple(missing),
            named=frozenset(archive.named),
            blobs_read=archive.blobs_read,
            bytes_read=archive.bytes_read,
        )

    def _observe(self, task: RoundTask, archive: Archive) -> Iterator[Observation]:
        event, models = task.event, self.models
        travel = models.travel(task.inputs, task.origin, archive)
        found = read_round_evidence(task.inputs, event, archive, self._distances, travel)
        if found.record is None:
            yield Unavailable(task.block, Need.RECORD, event.round)
        accusations = read_accusations(found, models.vector, archive)
        yield DecidedRound(task.block, found, models.follow(found, archive), accusations)


def _missing_payloads(block: int, found: RoundEvidence) -> Iterator[MissingPayload]:
    commitments = found.inputs.closing.commitments
    for dropout in found.record.dropouts if found.record is not None else ():
        is_missing = dropout.reason is DropoutReason.PAYLOAD_MISSING
        if is_missing and dropout.client in commitments:
            commitment = commitments[dropout.client]
            yield MissingPayload(block, found.event.round, dropout.client, commitment)
