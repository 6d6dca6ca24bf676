"""Publishing a log, the state of a witness, and the collection of checkpoints: disks and servers.

A publisher writes a run's log as static files, and asks witnesses to cosign it:

    FOLDER/checkpoint             the newest one that enough witnesses have cosigned
    FOLDER/checkpoint.signed      the newest one that the log's key has signed
    FOLDER/tile/...               tiles and bundles of entries

A signed checkpoint is durable before a witness sees it, and the next has to continue it: a key
signs no tree that contradicts an earlier one. If the folder is lost, witnesses have a checkpoint.

A witness stores the newest checkpoint that it has cosigned of each log:

    FOLDER/<sha256 of the origin>/checkpoint          as it is served
    FOLDER/<sha256 of the origin>/evidence/<sha256>   the log has signed two trees of one size

A checkpoint is durable before its cosignature is sent. A witness whose folder is restored from a
backup may cosign a contradiction: it needs a new key.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from http import HTTPStatus
from itertools import product
from pathlib import Path
from typing import TypeAlias, TypeVar

from ledger.io.home import DISK, Disk, read_file
from ledger.io.http import HttpFailureError, HttpResponse, HttpServer
from ledger.protocol.encoding import sha256, to_hex
from ledger.protocol.types import Digest
from ledger.transparency import tree
from ledger.transparency.notes import (
    MAX_NOTE_BYTES,
    Checkpoint,
    Cosignature,
    LogConflictError,
    NoteError,
    SignedCheckpoint,
    SignedNote,
    SigningKey,
    VerifierKey,
    WitnessError,
    open_checkpoint,
    parse_note,
    sign_checkpoint,
    signature_lines,
)
from ledger.transparency.policy import (
    DEFAULT_MAX_AGE_SECONDS,
    CheckpointEvidence,
    PolicyKey,
    WitnessPolicy,
    weigh,
)
from ledger.transparency.witness import AddCheckpoint, WitnessReply, answer, origin_hash, origin_in

T = TypeVar("T")

TIMEOUT_SECONDS = 20.0
_SHOWN = 200


class OtherSizeError(WitnessError):
    """The witness has cosigned a checkpoint of another size last."""

    def __init__(self, name: str, size: int) -> None:
        super().__init__(f"{name} has cosigned {size} entries of this log")
        self.size = size


class NoAnswerError(WitnessError):
    """A server does not answer: to ask it again now costs the same time again."""


class WithheldError(WitnessError):
    """A witness names a larger checkpoint, and does not show it."""


def ask_all(requests: Sequence[Callable[[], T]]) -> list[T]:
    """Return all answers in order; servers are asked side by side, since some may be silent."""
    with ThreadPoolExecutor(16) as pool:
        return list(pool.map(lambda request: request(), requests))


def checkpoint_at(place: str) -> bytes:
    """Return the checkpoint of a log, from its URL, its folder or a file with the note alone."""
    if _is_url(place):
        return file_at(place, tree.CHECKPOINT, MAX_NOTE_BYTES)
    path = Path(place)
    return read_bounded(path / tree.CHECKPOINT if path.is_dir() else path, MAX_NOTE_BYTES)


def file_at(place: str, path: str, limit: int = tree.MAX_FILE_BYTES) -> bytes:
    """Return a file of a log, by its path below the log's URL or folder."""
    if not _is_url(place):
        return read_bounded(Path(place) / path, limit)
    response = _answered(place, lambda server: server.get(f"/{path}", limit))
    if response.status != HTTPStatus.OK:
        raise WitnessError(f"{shown(place)}: status {response.status} for {path}")
    return response.body


def time_stamp(url: str, request: bytes) -> bytes:
    """Return the answer of a time-stamping authority to a request (RFC 3161), unverified."""
    headers = {"Content-Type": "application/timestamp-query"}
    response = _answered(url, lambda server: server.post("", request, headers, MAX_NOTE_BYTES))
    if response.status != HTTPStatus.OK:
        raise WitnessError(f"{shown(url)}: status {response.status} for a time-stamp request")
    return response.body


def cosigned_by(
    witness: PolicyKey, signed: SignedCheckpoint, old_size: int, proof: Sequence[Digest] = ()
) -> Cosignature:
    """Return a witness's cosignature of a checkpoint, verified."""
    body = AddCheckpoint(old_size, tuple(proof), signed.alone().encoded()).encoded()
    headers = {"Content-Type": "text/plain; charset=utf-8"}
    response = _answered(
        witness.url or "",
        lambda server: server.post("/add-checkpoint", body, headers, MAX_NOTE_BYTES),
    )
    if response.status == HTTPStatus.CONFLICT and (
        size := re.fullmatch(b"(0|[1-9][0-9]{0,18})\n", response.body)
    ):
        raise OtherSizeError(witness.name, int(size[1]))
    if response.status != HTTPStatus.OK:
        message = response.body[:_SHOWN].decode("utf-8", "replace").strip()
        raise WitnessError(f"{witness.name}: status {response.status}, {message!a}")
    try:
        note = signed.note.with_signatures(signature_lines(response.body))
        cosignatures = replace(signed, note=note).cosignatures([witness.key])
    except NoteError as error:
        raise WitnessError(f"{witness.name}: {error}") from error
    if not cosignatures:
        raise WitnessError(f"{witness.name}: the response has no line of the witness's known key")
    return cosignatures[0]


def shown(place: str) -> str:
    """Return a place for messages: of a URL no user, password, path or query, which may be keys."""
    scheme, mark, rest = place.partition("://")
    if not mark:
        return place[:_SHOWN]
    return f"{scheme}://{re.split('[/?#]', rest)[0].rpartition('@')[2]}"[:_SHOWN]


def _answered(url: str, ask: Callable[[HttpServer], HttpResponse]) -> HttpResponse:
    try:
        server = HttpServer(url, TIMEOUT_SECONDS)
    except ValueError as error:
        raise WitnessError(f"{shown(url)}: {error}") from error
    try:
        return ask(server)
    except HttpFailureError as error:
        raise NoAnswerError(str(error)) from error
    finally:
        server.close()


def read_bounded(path: Path, limit: int) -> bytes:
    """Return a file within a maximum of bytes."""
    try:
        data = read_file(path, limit)
    except OSError as error:
        raise WitnessError(f"{path}: {error.strerror}") from error
    if len(data) > limit:
        raise WitnessError(f"{path}: has over {limit} bytes")
    return data


def _is_url(place: str) -> bool:
    return place.startswith(("http://", "https://"))


def collect(
    policy: WitnessPolicy,
    logs: Sequence[PolicyKey],
    places: Sequence[str],
    clock: Callable[[], float],
    max_age_seconds: float = DEFAULT_MAX_AGE_SECONDS,
) -> CheckpointEvidence:
    """Ask logs and witnesses for their newest checkpoints of a run, and weigh them.

    Each witness with a URL is also asked to cosign the largest checkpoint again, or its own newest
    one: its answer says as of now that it has seen no larger one.
    """
    keys = [log.key for log in logs]
    sources = [*places, *(log.url for log in logs if log.url is not None)]
    requests = [
        partial(_opened, keys, shown(place), partial(checkpoint_at, place)) for place in sources
    ]
    witnesses = [each for each in policy.witnesses.values() if each.url is not None]
    requests += [partial(_newest, keys, witness, log.name) for witness in witnesses for log in logs]
    answers = ask_all(requests)
    largest: dict[str, SignedCheckpoint] = {}
    for signed in answers:
        if isinstance(signed, SignedCheckpoint):
            origin, size = signed.checkpoint.origin, signed.checkpoint.size
            if origin not in largest or largest[origin].checkpoint.size < size:
                largest[origin] = signed
    pairs = product(witnesses, largest.values())
    answers += ask_all([partial(_cosigned_again, keys, *pair) for pair in pairs])
    failures = [each for each in answers if isinstance(each, WitnessError)]
    signed_ones = [each for each in answers if isinstance(each, SignedCheckpoint)]
    evidence = weigh(policy, signed_ones, clock(), max_age_seconds)
    return replace(
        evidence,
        failures=(*dict.fromkeys(map(str, failures)), *evidence.failures),
        withheld=tuple(str(each) for each in failures if isinstance(each, WithheldError)),
    )


_Answer: TypeAlias = "SignedCheckpoint | WitnessError | None"


def _opened(keys: Sequence[VerifierKey], source: str, read: Callable[[], bytes | None]) -> _Answer:
    try:
        note = read()
        return None if note is None else open_checkpoint(note, keys)
    except NoteError as error:
        return WitnessError(f"{source}: {error}")
    except WitnessError as error:
        return error


def _newest(keys: Sequence[VerifierKey], witness: PolicyKey, origin: str) -> _Answer:
    def read() -> bytes | None:
        path = f"/{origin_hash(origin)}/{tree.CHECKPOINT}"
        url = witness.url or ""
        response = _answered(url, lambda server: server.get(path, MAX_NOTE_BYTES))
        if response.status == HTTPStatus.NOT_FOUND:
            return None
        if response.status != HTTPStatus.OK:
            raise WitnessError(f"{shown(url)}: status {response.status} for the newest checkpoint")
        return response.body

    return _opened(keys, f"{witness.name}, of {origin}", read)


def _cosigned_again(
    keys: Sequence[VerifierKey], witness: PolicyKey, largest: SignedCheckpoint
) -> _Answer:
    """Return the largest checkpoint as a witness cosigns it now, or else the newest one of its."""
    size, origin = largest.checkpoint.size, largest.checkpoint.origin
    try:
        return _cosigned_now(witness, largest)
    except OtherSizeError as other:
        newest = _newest(keys, witness, origin)
        if not isinstance(newest, SignedCheckpoint) or newest.checkpoint.size < other.size:
            # The log has gone on meanwhile, or the witness hides that it has.
            kind = WithheldError if other.size > size else WitnessError
            return kind(f"{other}, and the largest checkpoint here has {size}")
        if newest.checkpoint.size >= size:
            return newest
    except WitnessError as error:
        return error
    try:
        # The witness has not seen the largest one: a publisher may have been killed.
        return _cosigned_now(witness, newest)
    except WitnessError as error:
        return error


def _cosigned_now(witness: PolicyKey, signed: SignedCheckpoint) -> SignedCheckpoint:
    line = cosigned_by(witness, signed, signed.checkpoint.size).line
    return replace(signed, note=signed.alone().with_signatures([line]))


SIGNED = "checkpoint.signed"


@dataclass(frozen=True, slots=True)
class Publication:
    """The result of a publication."""

    checkpoint: Checkpoint
    cosigned: tuple[str, ...]
    failures: tuple[str, ...]  # a sentence for each witness that has not cosigned
    is_published: bool  # a quorum has cosigned: the checkpoint is the log's newest


def publish(
    entries: Sequence[bytes],
    key: SigningKey,
    folder: Path,
    policy: WitnessPolicy | None,
    disk: Disk = DISK,
    *,
    is_first: bool = False,
) -> Publication:
    """Write a log's files, have its checkpoint cosigned, and put the checkpoint in place.

    No other process writes in the folder. A key that has signed before needs a checkpoint in the
    folder, or a quorum of witnesses that answer which checkpoint they have seen.
    """
    leaves = [tree.leaf_hash(entry) for entry in entries]
    witnesses = () if policy is None else policy.witnesses.values()
    asked = [witness for witness in witnesses if witness.url is not None]
    own = _signed_before(folder, key.verifier)
    answers = ask_all([partial(_newest, [key.verifier], witness, key.name) for witness in asked])
    seen = {witness.name: answer for witness, answer in zip(asked, answers, strict=True)}
    for before in (own, *answers):
        if isinstance(before, SignedCheckpoint):
            _require_continued(before.checkpoint, leaves)
    if own is None and policy is not None and not is_first:
        _require_quorum(policy, seen, folder)
    for path, data in (*tree.tiles_of(leaves), *tree.bundles_of(entries)):
        _write(disk, folder / path, data)
    checkpoint = Checkpoint(key.name, len(leaves), tree.root_of(leaves))
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
        _write(disk, folder / tree.CHECKPOINT, note.encoded())
    return Publication(checkpoint, cosigned, tuple(failures), is_published)


def _cosigned(
    witness: PolicyKey, signed: SignedCheckpoint, leaves: Sequence[Digest], seen: _Answer
) -> Cosignature | WitnessError:
    if isinstance(seen, NoAnswerError):
        return seen
    known_size = seen.checkpoint.size if isinstance(seen, SignedCheckpoint) else 0
    try:
        try:
            return cosigned_by(
                witness, signed, known_size, tree.consistency_proof(known_size, leaves)
            )
        except OtherSizeError as other:
            if other.size > len(leaves):
                return WitnessError(
                    f"{witness.name} has cosigned {other.size} entries of "
                    f"{signed.checkpoint.origin}, and there are {len(leaves)} here: this chain was "
                    f"rolled back, or is another"
                )
            return cosigned_by(
                witness, signed, other.size, tree.consistency_proof(other.size, leaves)
            )
    except WitnessError as error:
        return error


def _require_quorum(policy: WitnessPolicy, seen: Mapping[str, _Answer], folder: Path) -> None:
    """Require a quorum of answers before a key signs whose last checkpoint is not at hand."""
    failures = [str(answer) for answer in seen.values() if isinstance(answer, WitnessError)]
    answered = [name for name, answer in seen.items() if not isinstance(answer, WitnessError)]
    if not policy.is_met(answered):
        raise WitnessError(
            f"{folder} has no checkpoint, and {len(answered)} of {len(policy.witnesses)} "
            "witnesses responded, below the quorum. This log's key may have signed another "
            "history. Retry when more witnesses respond, or give --first if the key has not "
            "signed anything" + "".join(f"; {failure}" for failure in failures)
        )


def _in_place(folder: Path, signed: SignedCheckpoint) -> SignedNote:
    """Return a checkpoint with the cosignatures that it has in its place: none of them is lost."""
    try:
        note = parse_note(read_file(folder / tree.CHECKPOINT, MAX_NOTE_BYTES))
    except (FileNotFoundError, NoteError):
        return signed.note
    return note if note.text == signed.note.text else signed.note


def _signed_before(folder: Path, key: VerifierKey) -> SignedCheckpoint | None:
    """Return the newest checkpoint that the key has signed in a folder; None if there is none."""
    for path in (folder / SIGNED, folder / tree.CHECKPOINT):
        try:
            return open_checkpoint(read_file(path, MAX_NOTE_BYTES), [key])
        except FileNotFoundError:
            continue
        except NoteError as error:
            raise WitnessError(f"{path}: {error}") from error
    return None


def _require_continued(before: Checkpoint, leaves: Sequence[Digest]) -> None:
    """Refuse entries that do not continue a signed tree."""
    if before.size > len(leaves):
        raise LogConflictError(
            f"this log's key has signed {before.size} entries, and the chain has "
            f"{len(leaves)} ended rounds; the chain was rolled back, or is another chain"
        )
    root = tree.root_of(leaves[: before.size])
    if root != before.root:
        raise LogConflictError(
            f"this log's key has signed {before.size} entries with the root {to_hex(before.root)}, "
            f"but the chain's entries have {to_hex(root)}, another history"
        )


def _write(disk: Disk, path: Path, data: bytes) -> None:
    with suppress(FileNotFoundError):
        if read_file(path, len(data)) == data:
            return
    disk.write_whole(path, data)


MAX_EVIDENCE = 16  # stored notes of one log; one is enough to prove its misbehaviour


@dataclass(frozen=True, slots=True, eq=False)
class WitnessFolder:
    """Answers requests one by one, and remembers what it has cosigned. Threads may share it."""

    folder: Path
    logs: Sequence[VerifierKey]
    key: SigningKey
    clock: Callable[[], float]  # seconds since 1970
    disk: Disk = DISK
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add_checkpoint(self, request: AddCheckpoint) -> WitnessReply:
        """Return the answer to a request; what it rests on is durable by then."""
        origin = origin_in(request)
        with self._lock:
            reply = answer(request, self.logs, self.key, self._newest(origin), int(self.clock()))
            if reply.cosigned is not None:
                self.disk.write_whole(self._path(origin), reply.cosigned)
            if reply.evidence is not None:
                folder = self._path(origin).parent / "evidence"
                path = folder / sha256(reply.evidence).hex()
                stored = len(list(folder.iterdir())) if folder.is_dir() else 0
                if stored < MAX_EVIDENCE and not path.exists():
                    self.disk.write_whole(path, reply.evidence)
        return reply

    def newest_note(self, name: str) -> bytes | None:
        """Return the newest cosigned checkpoint of a log, by its origin's hash; None if none is."""
        if name not in {origin_hash(log.name) for log in self.logs}:
            return None
        try:
            return read_file(self.folder / name / tree.CHECKPOINT, MAX_NOTE_BYTES)
        except FileNotFoundError:
            return None

    def _newest(self, origin: str) -> Checkpoint | None:
        note = self.newest_note(origin_hash(origin))
        if note is None:
            return None
        try:
            return open_checkpoint(note, self.logs).checkpoint
        except NoteError as error:
            raise WitnessError(f"{self._path(origin)}: {error}; nothing is cosigned") from error

    def _path(self, origin: str) -> Path:
        return self.folder / origin_hash(origin) / tree.CHECKPOINT
