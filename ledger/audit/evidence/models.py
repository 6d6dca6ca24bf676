"""The global model from round to round: what is recorded of it, and what follows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ledger.audit.codes import BlobKind
from ledger.audit.evidence.archive import Lost
from ledger.protocol.encoding import sha256, vector_bytes, vector_from_bytes
from ledger.protocol.errors import EncodingError
from ledger.protocol.judgement import next_model
from ledger.protocol.rules.reference.travel import travelled

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ledger.audit.evidence.archive import Archive
    from ledger.audit.evidence.round import RoundEvidence
    from ledger.protocol.inputs import Inputs
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
        digest: of what was computed.
    """

    recorded: Digest
    lost: Lost | None
    malformed: str
    is_known_before: bool = True
    lacking: tuple[ClientId, ...] = ()
    computed: NDArray[np.float32] | None = None
    digest: Digest | None = None


class ModelChain:
    """The global model from round to round; keeps the newest only, and of older ones the names.

    Attributes:
        vector: w_t; None if it could neither be read nor recomputed.
    """

    def __init__(self, archive: Archive) -> None:
        self.vector: NDArray[np.float32] | None = None
        self._digest: Digest | None = None
        self._archive = archive
        self._began: dict[int, Digest] = {}

    def begin(self, digest: Digest, dimension: int) -> ModelStep:
        """Return the first model as it was read.

        Args:
            digest: as it was deployed.
            dimension: d.
        """
        lost, malformed = self._read(digest, dimension, None)
        return ModelStep(digest, lost, malformed)

    def opened(self, round_number: int, digest: Digest) -> None:
        """Take down which model a round began with, as the chain has it.

        Args:
            round_number: t.
            digest: of w_t.
        """
        self._began[round_number] = digest

    def travel(self, inputs: Inputs) -> NDArray[np.float32] | None:
        """Return w_s − w_t, shape (d,); None if it is not known, or the distances need none.

        Args:
            inputs: of a decided round that was opened here, and not followed yet.
        """
        rule, now = inputs.parameters.travel, self._began.get(inputs.round)
        if rule is None or not inputs.needs_travel:
            return None
        first = rule.begins_in(inputs.round)
        self._began = {at: one for at, one in self._began.items() if at >= first}
        before = self._began.get(first)
        if before is None or self.vector is None or now != self._digest:
            return None
        data = self._archive.read(BlobKind.MODEL, before, inputs.round)
        if isinstance(data, Lost):
            return None  # said of the round that it came from
        try:
            return travelled(vector_from_bytes(data, len(self.vector)), self.vector)
        except EncodingError:
            return None

    def follow(self, found: RoundEvidence) -> ModelStep:
        """Return w_{t+1} as it is recorded and as it follows, and go on from there.

        Args:
            found: of a decided round.
        """
        event, known = found.event, self.vector
        lacking = tuple(client for client in event.accepted if client not in found.updates)
        computed = digest = None
        if known is not None and event.accepted and not lacking:
            computed = next_model(found.inputs, known, event.accepted, found.updates)
            digest = sha256(vector_bytes(computed))
        if event.model != self._digest:
            self.vector = computed if digest == event.model else None
        lost, malformed = self._read(event.model, found.inputs.parameters.dimension, event.round)
        return ModelStep(event.model, lost, malformed, known is not None, lacking, computed, digest)

    def _read(self, digest: Digest, dimension: int, at: int | None) -> tuple[Lost | None, str]:
        """Read a model; go on from it unless it was recomputed already."""
        self._digest = digest
        data = self._archive.read(BlobKind.MODEL, digest, at)
        if isinstance(data, Lost):
            return data, ""
        if self.vector is None:
            try:
                self.vector = vector_from_bytes(data, dimension)
            except EncodingError as error:
                return None, str(error)
        return None, ""
