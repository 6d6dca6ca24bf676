"""What can be wrong with notes, proofs, tiles and policies."""

from __future__ import annotations

from ledger.protocol.errors import CmflError, EncodingError


class NoteError(EncodingError):
    """Bytes that are no signed note, checkpoint or key, or a signature that does not verify."""


class ProofError(CmflError):
    """A Merkle proof that does not verify."""


class TileError(EncodingError):
    """A tile or a bundle of entries that does not hash to the checkpoint."""


class LogConflictError(CmflError):
    """A log contradicts what its key has signed before; nothing more is signed."""


class WitnessError(CmflError):
    """A witness or a log gave no usable answer; the message names it."""
