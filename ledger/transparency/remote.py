"""Logs and witnesses elsewhere: bounded reads, one time limit, one sentence for each failure."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from http import HTTPStatus
from pathlib import Path
from typing import TypeVar

from ledger.io.home import read_file
from ledger.io.http import HttpFailureError, HttpResponse, HttpServer
from ledger.protocol.types import Digest
from ledger.transparency.checkpoints import Cosignature, SignedCheckpoint
from ledger.transparency.errors import NoteError, WitnessError
from ledger.transparency.notes import MAX_NOTE_BYTES, signature_lines
from ledger.transparency.policy import PolicyKey
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
