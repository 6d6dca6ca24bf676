"""Publication of a run's log as static files, cosigned by witnesses.

    FOLDER/checkpoint             the newest one that enough witnesses have cosigned
    FOLDER/checkpoint.signed      the newest one that the log's key has signed
    FOLDER/tile/...               tiles and bundles of entries

A key signs no tree that contradicts one that it has signed: a signed checkpoint is durable before a
witness sees it, and the next has to continue it. Where the folder was lost witnesses have another.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from ledger.io.home import DISK, Disk, read_file
from ledger.protocol.encoding import to_hex
from ledger.protocol.types import Digest
from ledger.transparency.checkpoints import (
    Checkpoint,
    Cosignature,
    SignedCheckpoint,
    open_checkpoint,
    sign_checkpoint,
)
from ledger.transparency.collecting import (
    NoAnswerError,
    OtherSizeError,
    ask_all,
    cosigned_by,
    newest_of_witness,
)
from ledger.transparency.merkle import consistency_proof, leaf_hash, root_of
from ledger.transparency.notes import (
    MAX_NOTE_BYTES,
    LogConflictError,
    NoteError,
    SignedNote,
    SigningKey,
    VerifierKey,
    WitnessError,
    parse_note,
)
from ledger.transparency.policy import PolicyKey, WitnessPolicy
from ledger.transparency.tiles import CHECKPOINT, bundles_of, tiles_of

SIGNED = "checkpoint.signed"


@dataclass(frozen=True, slots=True)
class Publication:
    """What came of a publication.

    Attributes:
        failures: why others have not, a sentence for each.
        is_published: whether they are a quorum, so that the checkpoint is the log's newest.
    """

    checkpoint: Checkpoint
    cosigned: tuple[str, ...]
    failures: tuple[str, ...]
    is_published: bool


def publish(
    entries: Sequence[bytes],
    key: SigningKey,
    folder: Path,
    policy: WitnessPolicy | None,
    disk: Disk = DISK,
    *,
    is_first: bool = False,
) -> Publication:
    """Write a log's files, have its checkpoint cosigned, and put that in place.

    Args:
        folder: of the files; no other process writes there.
        policy: the witnesses to ask, and how many are enough; None for none.
        is_first: whether the key has signed nothing before. Else a folder without a checkpoint
            needs a quorum of witnesses that answer which checkpoint they have seen.
    """
    leaves = [leaf_hash(entry) for entry in entries]
    witnesses = () if policy is None else policy.witnesses.values()
    asked = [witness for witness in witnesses if witness.url is not None]
    own = _signed_before(folder, key.verifier)
    answers = ask_all([partial(_seen_by, witness, key.verifier) for witness in asked])
    seen = {witness.name: answer for witness, answer in zip(asked, answers, strict=True)}
    for before in (own, *seen.values()):
        if isinstance(before, Checkpoint):
            _require_continued(before, leaves)
    if own is None and policy is not None and not is_first:
        _require_quorum(policy, seen, folder)
    for file in (*tiles_of(leaves), *bundles_of(entries)):
        _write(disk, folder / file.path, file.data)
    checkpoint = Checkpoint(key.name, len(leaves), root_of(leaves))
    signed = sign_checkpoint(checkpoint, key)
    _write(disk, folder / SIGNED, signed.note.encoded())
    results = ask_all([partial(_cosigned, each, signed, leaves, seen[each.name]) for each in asked])
    cosignatures = [result for result in results if not isinstance(result, WitnessError)]
    failures = [str(result) for result in results if isinstance(result, WitnessError)]
    names = {witness.key: witness.name for witness in asked}
    cosigned = tuple(names[cosignature.key] for cosignature in cosignatures)
    is_published = policy is None or policy.is_met(cosigned)
    if is_published:
        note = _in_place(folder, signed).with_signatures(each.line for each in cosignatures)
        _write(disk, folder / CHECKPOINT, note.encoded())
    return Publication(checkpoint, cosigned, tuple(failures), is_published)


def _cosigned(
    witness: PolicyKey,
    signed: SignedCheckpoint,
    leaves: Sequence[Digest],
    seen: Checkpoint | WitnessError | None,
) -> Cosignature | WitnessError:
    """Return a witness's cosignature, or why there is none.

    A witness that has cosigned another size last is asked once more, and a silent one not again.
    """
    if isinstance(seen, NoAnswerError):
        return seen
    known_size = seen.size if isinstance(seen, Checkpoint) else 0
    try:
        try:
            return cosigned_by(witness, signed, known_size, consistency_proof(known_size, leaves))
        except OtherSizeError as other:
            if other.size > len(leaves):
                return WitnessError(
                    f"{witness.name} has cosigned {other.size} entries of "
                    f"{signed.checkpoint.origin}, and there are {len(leaves)} here: this chain was "
                    f"rolled back, or is another"
                )
            return cosigned_by(witness, signed, other.size, consistency_proof(other.size, leaves))
    except WitnessError as error:
        return error


def _seen_by(witness: PolicyKey, key: VerifierKey) -> Checkpoint | WitnessError | None:
    """Return the newest checkpoint of this key that a witness shows; None if it has none."""
    try:
        note = newest_of_witness(witness.url or "", key.name)
        return None if note is None else open_checkpoint(note, [key]).checkpoint
    except NoteError as error:
        return WitnessError(f"{witness.name}: {error}")
    except WitnessError as error:
        return error


def _require_quorum(
    policy: WitnessPolicy, seen: Mapping[str, Checkpoint | WitnessError | None], folder: Path
) -> None:
    """Require a quorum of answers before a key signs whose last checkpoint is not at hand."""
    failures = [str(answer) for answer in seen.values() if isinstance(answer, WitnessError)]
    answered = [name for name, answer in seen.items() if not isinstance(answer, WitnessError)]
    if not policy.is_met(answered):
        raise WitnessError(
            f"{folder} has no checkpoint, and {len(answered)} of {len(policy.witnesses)} witnesses "
            f"answered, which is no quorum: this log's key may have signed another history. Repeat "
            f"the command when more witnesses answer, or give --first if the key has signed nothing"
            + "".join(f"; {failure}" for failure in failures)
        )


def _in_place(folder: Path, signed: SignedCheckpoint) -> SignedNote:
    """Return a checkpoint with the cosignatures that it has in its place: none of them is lost."""
    try:
        note = parse_note(read_file(folder / CHECKPOINT, MAX_NOTE_BYTES))
    except (FileNotFoundError, NoteError):
        return signed.note
    return note if note.text == signed.note.text else signed.note


def _signed_before(folder: Path, key: VerifierKey) -> Checkpoint | None:
    """Return the newest checkpoint that the key has signed in a folder; None if there is none."""
    for path in (folder / SIGNED, folder / CHECKPOINT):
        try:
            return open_checkpoint(read_file(path, MAX_NOTE_BYTES), [key]).checkpoint
        except FileNotFoundError:
            continue
        except NoteError as error:
            raise WitnessError(f"{path}: {error}") from error
    return None


def _require_continued(before: Checkpoint, leaves: Sequence[Digest]) -> None:
    """Refuse entries that a signed tree is no beginning of."""
    if before.size > len(leaves):
        raise LogConflictError(
            f"this log's key has signed {before.size} entries, and the chain has {len(leaves)} "
            f"ended rounds: it was rolled back, or is another"
        )
    root = root_of(leaves[: before.size])
    if root != before.root:
        raise LogConflictError(
            f"this log's key has signed {before.size} entries with the root "
            f"{to_hex(before.root)}, and those of the chain have {to_hex(root)}: it is another "
            f"history"
        )


def _write(disk: Disk, path: Path, data: bytes) -> None:
    """Write a file durably, unless it is there as it should be."""
    try:
        if read_file(path, len(data)) == data:
            return
    except FileNotFoundError:
        pass
    disk.write_whole(path, data)
