"""Audits that a service runs on request.

A verdict read here is the service's claim; `cmfl audit` reaches its own.
"""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING

from api.client.connection import JSON
from api.schemas.verifications import (
    VERIFICATION_NAME,
    Verification,
    VerificationRequest,
    VerificationsAnswer,
)
from ledger.audit.earlier_report import MAX_REPORT_BYTES
from ledger.protocol.encoding import sha256
from ledger.protocol.errors import ServiceError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from api.client.connection import Connection

SECONDS_BETWEEN = 1.0

_NAME = re.compile(VERIFICATION_NAME)
_WHOLE_RUN = VerificationRequest()


class RemoteVerifications:
    """The verifications of one deployment; every method raises ServiceError without an answer."""

    def __init__(self, connection: Connection, deployment: str) -> None:
        self._connection = connection
        self._path = f"{deployment}/verifications"

    def all(self) -> VerificationsAnswer:
        """Return all stored ones, the newest first, and the permission to begin another."""
        return self._connection.read(VerificationsAnswer, self._path)

    def begin(self, request: VerificationRequest = _WHOLE_RUN) -> Verification:
        """Begin one, and return it as it waits or runs."""
        return self._connection.begin(Verification, self._path, request)

    def one(self, name: str) -> Verification:
        """Return one by its name."""
        answer = self._connection.read(Verification, self._path_of(name))
        return self._require(answer, name)

    def follow(
        self,
        name: str,
        seconds_between: float = SECONDS_BETWEEN,
        pause: Callable[[float], object] = time.sleep,
    ) -> Iterator[Verification]:
        """Yield one now and after each change, up to its end.

        The service is polled: each answer has a deadline, which an endless stream cannot have.

        Args:
            name: of the verification.
            seconds_between: two requests.
            pause: sleeps for a number of seconds.
        """
        last = -1
        while True:
            verification = self.one(name)
            if verification.sequence > last:
                last = verification.sequence
                yield verification
            if verification.state.is_over:
                return
            pause(seconds_between)

    def cancel(self, name: str) -> Verification:
        """Cancel one that waits or runs; it reaches no verdict.

        Raises:
            ServiceError: it is over, or this client may not cancel it.
        """
        return self._require(self._connection.end(Verification, self._path_of(name)), name)

    def report(self, verification: Verification) -> bytes:
        """Return the report of a finished one, for `cmfl audit --since`.

        Raises:
            ServiceError: it has none, or the bytes have another digest.
        """
        name = verification.verification
        if verification.report is None:
            state = verification.state.value
            raise ServiceError(f"verification {name} has no report: it is {state}")
        data = self._connection.fetch(f"{self._path_of(name)}/report", JSON, MAX_REPORT_BYTES)
        digest = f"0x{sha256(data).hex()}"
        if digest != verification.report.sha256:
            raise ServiceError(
                f"{self._connection.shown_url}: the report of {name} has sha256 {digest}, not "
                f"{verification.report.sha256}"
            )
        return data

    def _path_of(self, name: str) -> str:
        """Return the path of one.

        Raises:
            ServiceError: the name is invalid, and must not get into a path.
        """
        if _NAME.fullmatch(name) is None:
            raise ServiceError(
                f"{name!r:.120} is no verification's name: a time to the millisecond and 8 hex "
                f"digits are"
            )
        return f"{self._path}/{name}"

    def _require(self, answer: Verification, name: str) -> Verification:
        """Return an answer about the requested verification (ServiceError: it is about another)."""
        if answer.verification != name:
            raise ServiceError(
                f"{self._connection.shown_url}: answers of verification {answer.verification}, "
                f"not of {name}"
            )
        return answer
