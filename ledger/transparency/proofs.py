"""Proofs that a head is in a witnessed log (c2sp.org/tlog-proof), to be checked offline.

The `extra` line holds the entry. Nothing trusts it: the proof is of its hash.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Sequence
from dataclasses import dataclass

from ledger.protocol.types import Digest
from ledger.transparency.checkpoints import open_checkpoint
from ledger.transparency.entries import HeadEntry, parse_entry, run_suffix
from ledger.transparency.errors import NoteError, ProofError
from ledger.transparency.keys import decode_base64
from ledger.transparency.merkle import MAX_PROOF, inclusion_proof, leaf_hash, verify_inclusion
from ledger.transparency.notes import MAX_NOTE_BYTES
from ledger.transparency.policy import WitnessPolicy

MAX_PROOF_BYTES = MAX_NOTE_BYTES + 200_000
_FORM = re.compile(
    "c2sp\\.org/tlog-proof@v1\nextra ([^\n]+)\nindex (0|[1-9][0-9]{0,18})\n((?:[^\n]+\n)*)\n"
)
_HASH_BYTES = 32


@dataclass(frozen=True, slots=True)
class LoggedHead:
    """A head, and the proof that a log has it.

    Attributes:
        entry: its bytes.
        index: of the entry, from 0.
    """

    entry: bytes
    index: int
    path: tuple[Digest, ...]
    note: bytes

    def encoded(self) -> bytes:
        """Return the proof as a file."""
        lines = [
            "c2sp.org/tlog-proof@v1",
            f"extra {base64.b64encode(self.entry).decode()}",
            f"index {self.index}",
            *(base64.b64encode(each).decode() for each in self.path),
        ]
        return "\n".join([*lines, "", ""]).encode() + self.note


def prove(entries: Sequence[bytes], index: int, note: bytes) -> LoggedHead:
    """Return the proof of an entry."""
    path = inclusion_proof(index, [leaf_hash(entry) for entry in entries])
    return LoggedHead(entries[index], index, path, note)


def parse_proof(data: bytes) -> LoggedHead:
    """Return the proof in a file; nothing of it is verified."""
    if len(data) > MAX_PROOF_BYTES:
        raise NoteError(f"a proof has at most {MAX_PROOF_BYTES} bytes")
    match = _FORM.match(data.decode("utf-8", "surrogateescape"))
    if match is None:
        raise NoteError("the file is no proof of a logged head (c2sp.org/tlog-proof@v1)")
    entry = decode_base64(match[1])
    path = [decode_base64(line) for line in match[3].split("\n")[:-1]]
    if not entry or len(path) > MAX_PROOF or any(len(each) != _HASH_BYTES for each in path):
        raise NoteError("the proof has a line that is not base64, or not of 32 bytes")
    return LoggedHead(entry, int(match[2]), tuple(map(Digest, path)), data[len(match[0]) :])


def verified_head(proof: LoggedHead, policy: WitnessPolicy) -> tuple[HeadEntry, tuple[str, ...]]:
    """Return the head that a proof proves, and the policy's witnesses that stand for its log.

    That may be fewer than a quorum: `policy.is_met` says.
    """
    signed = open_checkpoint(proof.note, [log.key for log in policy.logs])
    checkpoint = signed.checkpoint
    leaf = leaf_hash(proof.entry)
    verify_inclusion(proof.index, checkpoint.size, leaf, proof.path, checkpoint.root)
    entry = parse_entry(proof.entry)
    suffix = run_suffix(entry.domain.chain_id, entry.domain.contract)
    if not checkpoint.origin.endswith(suffix) or entry.round != proof.index + 1:
        raise ProofError(
            f"the head of round {entry.round} is entry {proof.index} of {checkpoint.origin}: it is "
            f"of another run, or in another place, than a log of heads has it"
        )
    cosigned = {
        each.key
        for each in signed.cosignatures([witness.key for witness in policy.witnesses.values()])
    }
    names = [name for name, witness in policy.witnesses.items() if witness.key in cosigned]
    return entry, tuple(names)
