"""A witness's answer to one request (c2sp.org/tlog-witness), without disk, network or clock.

A witness cosigns a checkpoint only if it continues the newest one that it has cosigned of that log.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from http import HTTPStatus

from ledger.protocol.encoding import sha256
from ledger.protocol.types import Digest
from ledger.transparency import notes
from ledger.transparency.tree import EMPTY_ROOT, verify_consistency

SIZE_TYPE = "text/x.tlog.size"
TEXT_TYPE = "text/plain; charset=utf-8"
MAX_REQUEST_BYTES = notes.MAX_NOTE_BYTES + 8_192


@dataclass(frozen=True, slots=True)
class AddCheckpoint:
    """A request that a checkpoint be cosigned."""

    old_size: int  # of the checkpoint that the witness is thought to have cosigned last
    proof: tuple[Digest, ...]
    note: bytes

    def encoded(self) -> bytes:
        lines = [f"old {self.old_size}", *notes.encode_hashes(self.proof), "", ""]
        return "\n".join(lines).encode() + self.note


@dataclass(frozen=True, slots=True)
class WitnessReply:
    """An answer, and what has to be durable before it is given."""

    status: HTTPStatus
    body: bytes
    media_type: str = TEXT_TYPE
    origin: str | None = None  # of the log; None where there is nothing to write
    cosigned: bytes | None = None  # the note to store as the newest of its log; None: no change
    evidence: bytes | None = None  # a second signed tree of one size


def parse_request(body: bytes) -> AddCheckpoint:
    """Return the request in a body."""
    if len(body) > MAX_REQUEST_BYTES:
        raise notes.NoteError(f"a request may have at most {MAX_REQUEST_BYTES} bytes")
    head, separator, note = body.partition(b"\n\n")
    first, *lines = head.decode("utf-8", "replace").split("\n")
    old = re.fullmatch("old (0|[1-9][0-9]{0,18})", first)
    if not separator or old is None or int(old[1]) > notes.MAX_SIZE:
        raise notes.NoteError(
            "a request must begin with the line old <size>, and an empty line must end its proof"
        )
    proof = notes.decode_hashes(lines)
    if proof is None:
        raise notes.NoteError(
            f"a proof may have at most {notes.MAX_PROOF} lines, each of 32 bytes of base64"
        )
    return AddCheckpoint(int(old[1]), proof, note)


def origin_in(request: AddCheckpoint) -> str:
    """Return the log that a request names; the request is not verified yet."""
    return notes.parse_checkpoint(notes.parse_note(request.note).text).origin


def answer(
    request: AddCheckpoint,
    logs: Sequence[notes.VerifierKey],
    key: notes.SigningKey,
    newest: notes.Checkpoint | None,
    now: int,
) -> WitnessReply:
    """Return the answer to a request, given the log's checkpoint that was cosigned last."""
    origin = origin_in(request)
    if not any(log.name == origin for log in logs):
        return WitnessReply(HTTPStatus.NOT_FOUND, b"this log is not witnessed here\n")
    try:
        signed = notes.open_checkpoint(request.note, logs)
    except notes.NoteError as error:
        return WitnessReply(HTTPStatus.FORBIDDEN, f"{error}\n".encode())
    refusal = _refusal(request, signed.checkpoint, newest)
    if refusal is not None:
        return refusal
    line = notes.cosign(signed.note.text, key, now)
    cosigned = signed.alone().with_signatures([line]).encoded()
    return WitnessReply(HTTPStatus.OK, str(line).encode(), origin=origin, cosigned=cosigned)


def origin_hash(origin: str) -> str:
    """Return a witness's name for its newest checkpoint of a log."""
    return sha256(origin.encode()).hex()


def _refusal(
    request: AddCheckpoint, new: notes.Checkpoint, before: notes.Checkpoint | None
) -> WitnessReply | None:
    size, root = (0, EMPTY_ROOT) if before is None else (before.size, before.root)
    if request.old_size > new.size:
        fault = f"old {request.old_size} is over the checkpoint's size {new.size}\n"
        return WitnessReply(HTTPStatus.BAD_REQUEST, fault.encode())
    is_other = 0 < new.size == size and new.root != root
    evidence = request.note if is_other else None
    if request.old_size != size:
        body = f"{size}\n".encode()
        return WitnessReply(HTTPStatus.CONFLICT, body, SIZE_TYPE, new.origin, None, evidence)
    try:
        verify_consistency(size, root, new.size, new.root, request.proof)
    except notes.ProofError as error:
        body = f"{error}\n".encode()
        status = HTTPStatus.UNPROCESSABLE_ENTITY
        return WitnessReply(status, body, TEXT_TYPE, new.origin, None, evidence)
    return None
