"""The folder of verifications: one file for each, and one for its report.

A report is written before the file that names it, both atomically: a verification in the state
"finished" has a report with its digest. The writer holds the folder's lock, so that a verification
in the state "running" without a lock was interrupted.
"""

from __future__ import annotations

import fcntl
import os
import re
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from pydantic import ValidationError

from api.schemas.verifications import (
    VERIFICATION_NAME,
    Verification,
    VerificationState,
    WhyNoVerdict,
)
from ledger.audit.earlier_report import MAX_REPORT_BYTES
from ledger.io.home import DISK, read_file
from ledger.protocol.encoding import sha256
from ledger.protocol.errors import CmflError

if TYPE_CHECKING:
    from pathlib import Path

MAX_ENTRY_BYTES = 1 << 16
_NAME = re.compile(VERIFICATION_NAME)
_SUFFIX = ".json"
_REPORT = ".report.json"
_TRIES, _TRY_SECONDS = 5, 0.02


class ReportsError(CmflError):
    """The folder of reports cannot be written or read as it should; says what is the matter."""


class ReportFolder:
    """Verifications of the past, newest first; safe to share between threads.

    Args:
        folder: where they are; it is made when the first is written.
        most: how many are kept.
    """

    def __init__(self, folder: Path, most: int) -> None:
        self._folder = folder
        self._most = most
        self._lock: int | None = None

    def own(self) -> None:
        """Take the folder for this service, and note what an earlier one left unfinished.

        Raises:
            ReportsError: another service has it, or it cannot be written.
        """
        if self._lock is not None:
            return
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(self._lock_file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise ReportsError(f"reports cannot be stored: {error.strerror}") from error
        if not _locked(descriptor):
            os.close(descriptor)
            raise ReportsError("another service keeps its reports in this folder")
        self._lock = descriptor
        for name in self._names():
            entry = self._read(name)
            if entry is not None and not entry.state.is_over:
                self.write(_interrupted(entry))

    def close(self) -> None:
        """Give the folder back."""
        if self._lock is not None:
            os.close(self._lock)
        self._lock = None

    def write(self, entry: Verification) -> None:
        """Write the state of a verification."""
        self._write(f"{entry.verification}{_SUFFIX}", entry.model_dump_json().encode())

    def write_report(self, name: str, report: bytes) -> None:
        """Write a report; its verification must be written afterwards."""
        self._write(f"{name}{_REPORT}", report)

    def report(self, entry: Verification) -> bytes | None:
        """Return a verification's report; None if it is not there any more.

        Args:
            entry: the verification.

        Raises:
            ReportsError: it is not what was kept.
        """
        if entry.report is None:
            return None
        try:
            data = read_file(self._folder / f"{entry.verification}{_REPORT}", MAX_REPORT_BYTES)
        except OSError:
            return None
        if f"0x{sha256(data).hex()}" != entry.report.sha256:
            raise ReportsError(f"the report of {entry.verification} is not the stored one")
        return data

    def read(self) -> tuple[list[Verification], int]:
        """Return all verifications, the newest first, and how many files are none."""
        names = self._names()
        read = [self.find(name) for name in names]
        entries = [entry for entry in read if entry is not None]
        return entries, len(names) - len(entries)

    def find(self, name: str) -> Verification | None:
        """Return one verification; None if there is none that can be read."""
        entry = self._read(name) if _NAME.fullmatch(name) else None
        if entry is None or entry.state.is_over or self._is_written_by_another():
            return entry
        return _interrupted(entry)

    def forget_oldest(self) -> None:
        """Remove what is more than may be kept."""
        for name in self._names()[self._most :]:
            for suffix in (_SUFFIX, _REPORT):
                with suppress(OSError):
                    DISK.remove(self._folder / f"{name}{suffix}")

    @property
    def _lock_file(self) -> Path:
        return self._folder / "reports.lock"

    def _names(self) -> list[str]:
        try:
            files = os.listdir(self._folder)  # noqa: PTH208 - names alone
        except OSError:
            return []
        names = (file.removesuffix(_SUFFIX) for file in files if file.endswith(_SUFFIX))
        return sorted((name for name in names if _NAME.fullmatch(name)), reverse=True)

    def _read(self, name: str) -> Verification | None:
        try:
            data = read_file(self._folder / f"{name}{_SUFFIX}", MAX_ENTRY_BYTES)
            entry = Verification.model_validate_json(data)
        except (OSError, ValidationError):
            return None
        return entry if entry.verification == name else None

    def _write(self, name: str, data: bytes) -> None:
        try:
            DISK.write_whole(self._folder / name, data)
        except OSError as error:
            raise ReportsError(f"{name} cannot be written: {error.strerror}") from error

    def _is_written_by_another(self) -> bool:
        if self._lock is not None:
            return False
        try:
            descriptor = os.open(self._lock_file, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return False
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(descriptor)
        return False


def _locked(descriptor: int) -> bool:
    """Say whether the lock could be had; who only looks whether it is held has it for a moment."""
    for _ in range(_TRIES):
        with suppress(BlockingIOError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        time.sleep(_TRY_SECONDS)
    return False


def _interrupted(entry: Verification) -> Verification:
    """Return a verification whose service ended before it did."""
    changed = {"state": VerificationState.INTERRUPTED, "why": WhyNoVerdict.SERVICE_ENDED}
    return entry.model_copy(update=changed | {"sequence": entry.sequence + 1})
