"""Step 9: the global model, from round to round and bit for bit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ledger.audit.codes import BlobKind, Fact, Need, Step
from ledger.audit.report import Contradiction, Missing
from ledger.audit.sentences import hexed
from ledger.protocol.encoding import sha256, vector_bytes, vector_from_bytes
from ledger.protocol.errors import EncodingError
from ledger.protocol.judgement import next_model

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ledger.audit.archive import Archive
    from ledger.audit.evidence import RoundEvidence
    from ledger.audit.findings import AuditLog
    from ledger.protocol.types import Digest


@dataclass
class ModelChain:
    """The global model from round to round; keeps the newest only.

    Attributes:
        digest: of w_t.
        vector: w_t; None if it could neither be read nor recomputed.
    """

    digest: Digest
    vector: NDArray[np.float32] | None = None

    def load(self, digest: Digest, dimension: int, at: int | None, archive: Archive) -> None:
        """Make a model the current one; what is missing or malformed is noted.

        Args:
            digest: of the model.
            dimension: d.
            at: the round whose decision names it, None for the first model.
            archive: where the blobs are.
        """
        known = self.vector if digest == self.digest else None
        self.digest, self.vector = digest, known
        data = archive.read(BlobKind.MODEL, digest, at)
        if data is None or known is not None:
            return
        try:
            self.vector = vector_from_bytes(data, dimension)
        except EncodingError as error:
            step = Step.MODEL if at is not None else Step.DEPLOYMENT
            fact = Fact.MODEL_MALFORMED if at is not None else Fact.FIRST_MODEL
            contradiction = Contradiction(fact, at, recorded=hexed(digest), true=str(error))
            archive.log.contradict(step, contradiction)

    def check(self, found: RoundEvidence, archive: Archive) -> None:
        """Recompute w_{t+1} from w_t and the accepted updates, and make it the current one.

        Args:
            found: of a decided round.
            archive: where the blobs are.
        """
        event, at = found.event, found.event.round
        computed = self._next(found, archive.log)
        if computed is not None:
            true = sha256(vector_bytes(computed))
            if true != event.model:
                values = hexed(event.model), hexed(true)
                contradiction = Contradiction(Fact.MODEL, at, (), "", *values)
                archive.log.contradict(Step.MODEL, contradiction)
            else:
                self.digest, self.vector = event.model, computed
                if not np.isfinite(computed).all():
                    contradiction = Contradiction(Fact.MODEL_NOT_FINITE, at)
                    archive.log.contradict(Step.MODEL, contradiction)
        self.load(event.model, found.inputs.parameters.dimension, at, archive)

    def _next(self, found: RoundEvidence, log: AuditLog) -> NDArray[np.float32] | None:
        """Return the model that follows, None for want of the one before or of updates."""
        event, at = found.event, found.event.round
        lacking = tuple(client for client in event.accepted if client not in found.updates)
        if self.vector is None:
            log.lack(Missing(Need.MODEL_BEFORE, at), Step.MODEL)
        elif lacking or not event.accepted:
            log.lack(Missing(Need.UPDATES, at, lacking), Step.MODEL)
        else:
            return next_model(found.inputs, self.vector, event.accepted, found.updates)
        return None
