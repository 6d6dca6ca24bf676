"""Checkpoints of a run, collected from its logs and witnesses."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import TypeAlias, TypeVar

from ledger.io.home import read_file
from ledger.io.http import HttpFailureError, HttpResponse, HttpServer
from ledger.protocol.types import Digest
from ledger.transparency.checkpoints import (
    DEFAULT_MAX_AGE_SECONDS,
    CheckpointEvidence,
    Cosignature,
    SignedCheckpoint,
    open_checkpoint,
    weigh,
)
from ledger.transparency.notes import (
    MAX_NOTE_BYTES,
    NoteError,
    VerifierKey,
    WitnessError,
    signature_lines,
)
from ledger.transparency.policy import PolicyKey, WitnessPolicy
from ledger.transparency.tiles import CHECKPOINT, MAX_FILE_BYTES
from ledger.transparency.witness import AddCheckpoint, origin_hash

T = TypeVar("T")

TIMEOUT_SECONDS = 20.0
MAX_SIDE_BY_SIDE = 16
"""Servers that are asked at once."""

_SIZE = re.compile(b"(0|[1-9][0-9]{0,18})\n")
_SHOWN = 200


class OtherSizeError(WitnessError):
    """The witness has cosigned a checkpoint of another size last."""

    def __init__(self, name: str, size: int) -> None:
        super().__init__(f"{name} has cosigned {size} entries of this log")
        self.size = size


class NoAnswerError(WitnessError):
    """A server does not answer: to ask it again now costs the same time again."""


def ask_all(requests: Sequence[Callable[[], T]]) -> list[T]:
    """Return all answers in order; servers are asked side by side, since some may be silent."""
    with ThreadPoolExecutor(MAX_SIDE_BY_SIDE) as pool:
        return list(pool.map(lambda request: request(), requests))


def checkpoint_at(place: str) -> bytes:
    """Return the checkpoint of a log, from its URL, its folder or a file with the note alone."""
    if _is_url(place):
        return file_at(place, CHECKPOINT, MAX_NOTE_BYTES)
    path = Path(place)
    return _read(path / CHECKPOINT if path.is_dir() else path, MAX_NOTE_BYTES)


def file_at(place: str, path: str, limit: int = MAX_FILE_BYTES) -> bytes:
    """Return a file of a log, by its path below the log's URL or folder."""
    if not _is_url(place):
        return _read(Path(place) / path, limit)
    response = _answered(place, lambda server: server.get(f"/{path}", limit))
    if response.status != HTTPStatus.OK:
        raise WitnessError(f"{shown(place)}: answers {response.status} for {path}")
    return response.body


def newest_of_witness(url: str, origin: str) -> bytes | None:
    """Return the newest checkpoint of a log that a witness has cosigned; None if it has none."""
    path = f"/{origin_hash(origin)}/{CHECKPOINT}"
    response = _answered(url, lambda server: server.get(path, MAX_NOTE_BYTES))
    if response.status == HTTPStatus.NOT_FOUND:
        return None
    if response.status != HTTPStatus.OK:
        raise WitnessError(f"{shown(url)}: answers {response.status} for its newest checkpoint")
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
    if response.status == HTTPStatus.CONFLICT and (size := _SIZE.fullmatch(response.body)):
        raise OtherSizeError(witness.name, int(size[1]))
    if response.status != HTTPStatus.OK:
        message = response.body[:_SHOWN].decode("utf-8", "replace").strip()
        raise WitnessError(f"{witness.name}: answers {response.status}, {message!a}")
    try:
        note = signed.note.with_signatures(signature_lines(response.body))
        cosignatures = replace(signed, note=note).cosignatures([witness.key])
    except NoteError as error:
        raise WitnessError(f"{witness.name}: {error}") from error
    if not cosignatures:
        raise WitnessError(f"{witness.name}: its answer has no line of the key that is known of it")
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


def _read(path: Path, limit: int) -> bytes:
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

    Args:
        places: URLs, folders or files with checkpoints, beside those of the policy.
        clock: seconds since 1970.
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
    answers += ask_all(
        [
            partial(_cosigned_again, keys, witness, signed)
            for witness in witnesses
            for signed in largest.values()
        ]
    )
    signed_ones = [each for each in answers if isinstance(each, SignedCheckpoint)]
    failures = [each for each in answers if isinstance(each, _Failure)]
    evidence = weigh(policy, signed_ones, clock(), max_age_seconds)
    return replace(
        evidence,
        failures=(*dict.fromkeys(each.sentence for each in failures), *evidence.failures),
        withheld=tuple(each.sentence for each in failures if each.is_withheld),
    )


@dataclass(frozen=True, slots=True)
class _Failure:
    """The reason why there is no checkpoint.

    Attributes:
        is_withheld: whether a witness names a larger one, and does not show it.
    """

    sentence: str
    is_withheld: bool = False


_Answer: TypeAlias = "SignedCheckpoint | _Failure | None"


def _opened(keys: Sequence[VerifierKey], source: str, read: Callable[[], bytes | None]) -> _Answer:
    """Return a checkpoint that a log of the run has signed, or why there is none."""
    try:
        note = read()
        return None if note is None else open_checkpoint(note, keys)
    except NoteError as error:
        return _Failure(f"{source}: {error}")
    except WitnessError as error:
        return _Failure(str(error))


def _newest(keys: Sequence[VerifierKey], witness: PolicyKey, origin: str) -> _Answer:
    source = f"{witness.name}, of {origin}"
    return _opened(keys, source, partial(newest_of_witness, witness.url or "", origin))


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
            # The log has gone on meanwhile, or somebody is hiding that it has.
            sentence = f"{other}, and the largest checkpoint here has {size}"
            return _Failure(sentence, is_withheld=other.size > size)
        if newest.checkpoint.size >= size:
            return newest
        try:
            # Nobody has shown it the largest one: a publisher may have been killed.
            return _cosigned_now(witness, newest)
        except WitnessError as error:
            return _Failure(str(error))
    except WitnessError as error:
        return _Failure(str(error))


def _cosigned_now(witness: PolicyKey, signed: SignedCheckpoint) -> SignedCheckpoint:
    line = cosigned_by(witness, signed, signed.checkpoint.size).line
    return replace(signed, note=signed.alone().with_signatures([line]))
