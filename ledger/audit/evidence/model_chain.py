"""The global model from round to round: what is recorded of it, and what follows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ledger.audit.evidence.archive import Archive, UnavailableBlob
from ledger.audit.evidence.round_evidence import RoundEvidence
from ledger.audit.report import BlobKind
from ledger.protocol.encoding import sha256, vector_from_bytes, vector_view
from ledger.protocol.errors import EncodingError
from ledger.protocol.inputs import Inputs
from ledger.protocol.judgement import next_model
from ledger.protocol.rules.direction import displacement, window_start
from ledger.protocol.types import ClientId, Digest


@dataclass(frozen=True)
class ModelStep:
    """One recorded model, and the one that follows from what was before.

    Attributes:
        recorded: digest of the model, as the chain names it.
        lost: why its blob is not to be had; None if it is.
        malformed: why its blob is no model; empty if it is one.
        is_known_before: whether w_t is known.
        lacking: accepted clients whose update is not to be had.
        computed: w_{t+1} from w_t and the accepted updates; None for want of one of them.
    """

    recorded: Digest
    lost: UnavailableBlob | None
    malformed: str
    is_known_before: bool = True
    lacking: tuple[ClientId, ...] = ()
    computed: NDArray[np.float32] | None = None
    digest: Digest | None = None


class ModelChain:
    """The global model from round to round; keeps the newest only.

    Attributes:
        vector: w_t; None if it could neither be read nor recomputed.
    """

    def __init__(self) -> None:
        self.vector: NDArray[np.float32] | None = None
        self._digest: Digest | None = None

    def begin(self, digest: Digest, dimension: int, archive: Archive) -> ModelStep:
        """Return the first model as it was read."""
        lost, malformed = self._read(digest, dimension, None, archive)
        return ModelStep(digest, lost, malformed)

    def start_from(
        self, digest: Digest, dimension: int, archive: Archive
    ) -> UnavailableBlob | None:
        """Read the model that a round starts from, unless the round before led to it.

        Args:
            digest: of w_t, as the chain has it.

        Returns:
            Why its blob is not to be had, if it had to be read and is not; said of another round.
        """
        if digest == self._digest:
            return None
        self._digest, self.vector = digest, None
        data = archive.read_again(BlobKind.MODEL, digest, None)
        if isinstance(data, UnavailableBlob):
            return data
        self.vector = _model(data, dimension)
        return None

    def displacement_of(
        self, inputs: Inputs, before: Digest | None, archive: Archive
    ) -> NDArray[np.float32] | None:
        """Return w_s − w_t, shape (d,); None if it is not known, or the distances need none.

        Args:
            before: digest of w_s; None if that is not known.
        """
        if not inputs.needs_displacement or before is None or self.vector is None:
            return None
        data = archive.read_again(BlobKind.MODEL, before, inputs.round)
        if isinstance(data, UnavailableBlob):
            return None  # said of the round that it came from
        vector = _model(data, len(self.vector))
        return None if vector is None else displacement(vector, self.vector)

    def follow(self, evidence: RoundEvidence, archive: Archive) -> ModelStep:
        """Return w_{t+1} as it is recorded and as it follows, and go on from there."""
        event, before = evidence.event, self.vector
        lacking = tuple(client for client in _entering(evidence) if client not in evidence.updates)
        computed = digest = None
        if before is not None and event.accepted and not lacking:
            computed = next_model(evidence.inputs, before, event.accepted, evidence.updates)
            digest = sha256(vector_view(computed))
        if event.model != self._digest:
            self.vector = computed if digest == event.model else None
        dimension = evidence.inputs.parameters.dimension
        lost, malformed = self._read(event.model, dimension, event.round, archive)
        return ModelStep(
            event.model, lost, malformed, before is not None, lacking, computed, digest
        )

    def _read(
        self, digest: Digest, dimension: int, at: int | None, archive: Archive
    ) -> tuple[UnavailableBlob | None, str]:
        """Read a model; go on from it unless it was recomputed already."""
        self._digest = digest
        data = archive.read(BlobKind.MODEL, digest, at)
        if isinstance(data, UnavailableBlob):
            return data, ""
        if self.vector is None:
            try:
                self.vector = vector_from_bytes(data, dimension)
            except EncodingError as error:
                return None, str(error)
        return None, ""


def _entering(evidence: RoundEvidence) -> Sequence[ClientId]:
    if evidence.inputs.parameters.compares_directions and evidence.record is not None:
        return evidence.record.clients  # all lengths determine how far an update is clipped
    return evidence.event.accepted


class ModelDigests:
    """Digests of the models that rounds began with, as far back as distances need them."""

    def __init__(self) -> None:
        self._began: dict[int, Digest] = {}

    def opened(self, round_number: int, digest: Digest) -> None:
        """Take down which model a round began with."""
        self._began[round_number] = digest

    def before(self, inputs: Inputs) -> Digest | None:
        """Return the digest of w_s, where a round's travel begins; None if it has none."""
        needs = inputs.needs_displacement
        first = window_start(inputs.round) if needs else inputs.round
        self._began = {at: digest for at, digest in self._began.items() if at >= first}
        return self._began.get(first) if needs else None


def _model(data: bytes, dimension: int) -> NDArray[np.float32] | None:
    try:
        return vector_from_bytes(data, dimension)
    except EncodingError:
        return None
