"""The state of a witness: for each log, the newest checkpoint that it has cosigned.

    FOLDER/<sha256 of the origin>/checkpoint          as it is served
    FOLDER/<sha256 of the origin>/evidence/<sha256>   the log has signed two trees of one size

A checkpoint is durable before its cosignature is given away. A witness whose folder is restored
from a backup may cosign what contradicts its own word: it needs a new key.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from ledger.io.home import DISK, Disk, read_file
from ledger.protocol.encoding import sha256
from ledger.transparency.checkpoints import Checkpoint, open_checkpoint
from ledger.transparency.notes import (
    MAX_NOTE_BYTES,
    NoteError,
    SigningKey,
    VerifierKey,
    WitnessError,
)
from ledger.transparency.tiles import CHECKPOINT
from ledger.transparency.witness import AddCheckpoint, WitnessReply, answer, origin_hash, origin_in

MAX_EVIDENCE = 16
"""Notes of one log that are stored as evidence; one is enough to prove its misbehaviour."""


class WitnessFolder:
    """Answers requests one by one, and remembers what it has cosigned. Safe to share.

    Args:
        folder: of the state; one process may have it.
        clock: seconds since 1970.
    """

    def __init__(
        self,
        folder: Path,
        logs: Sequence[VerifierKey],
        key: SigningKey,
        clock: Callable[[], float],
        disk: Disk = DISK,
    ) -> None:
        self._folder = folder
        self._logs = logs
        self._key = key
        self._clock = clock
        self._disk = disk
        self._lock = threading.Lock()

    def add_checkpoint(self, request: AddCheckpoint) -> WitnessReply:
        """Return the answer to a request; what it rests on is durable by then."""
        origin = origin_in(request)
        with self._lock:
            newest = self._newest(origin)
            reply = answer(request, self._logs, self._key, newest, int(self._clock()))
            if reply.cosigned is not None:
                self._disk.write_whole(self._path(origin), reply.cosigned)
            if reply.evidence is not None:
                self._store_evidence(origin, reply.evidence)
        return reply

    def newest_note(self, name: str) -> bytes | None:
        """Return the newest cosigned checkpoint of a log, by its origin's hash; None if none is."""
        if name not in {origin_hash(log.name) for log in self._logs}:
            return None
        try:
            return read_file(self._folder / name / CHECKPOINT, MAX_NOTE_BYTES)
        except FileNotFoundError:
            return None

    def _newest(self, origin: str) -> Checkpoint | None:
        note = self.newest_note(origin_hash(origin))
        if note is None:
            return None
        try:
            return open_checkpoint(note, self._logs).checkpoint
        except NoteError as error:
            raise WitnessError(f"{self._path(origin)}: {error}; nothing is cosigned") from error

    def _store_evidence(self, origin: str, note: bytes) -> None:
        folder = self._path(origin).parent / "evidence"
        path = folder / sha256(note).hex()
        stored = len(list(folder.iterdir())) if folder.is_dir() else 0
        if stored < MAX_EVIDENCE and not path.exists():
            self._disk.write_whole(path, note)

    def _path(self, origin: str) -> Path:
        return self._folder / origin_hash(origin) / CHECKPOINT
