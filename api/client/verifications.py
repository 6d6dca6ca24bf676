"""Audits that a service runs on request: begun, followed, cancelled, and what they have found.

Whoever reads a verdict here trusts the service for it; `cmfl audit` comes to one of its own.
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
    """The verifications of one deployment; every method raises ServiceError without an answer.

    Args:
        connection: to the service.
        deployment: the deployment's path, below the service's URL.
    """

    def __init__(self, connection: Connection, deployment: str) -> None:
        self._connection = connection
        self._path = f"{deployment}/verifications"

    def all(self) -> VerificationsAnswer:
        """Return all that are kept, the newest first, and whether another may be begun."""
        return self._connection.read(VerificationsAnswer, self._path)

    def begin(self, asked: VerificationRequest = _WHOLE_RUN) -> Verification:
        """Begin one.

        Args:
            asked: how strict it is, the head that it must pass through, what it builds on.

        Returns:
            It, as it waits or runs.
        """
        return self._connection.begin(Verification, self._path, asked)

    def one(self, name: str) -> Verification:
        """Return how one stands.

        Args:
            name: its name, as the list has it.

        Raises:
            ServiceError: there is no answer, or one about another.
        """
        told = self._connection.read(Verification, self._path_of(name))
        return self._meant(told, name)

    def follow(
        self,
        name: str,
        seconds_between: float = SECONDS_BETWEEN,
        pause: Callable[[float], object] = time.sleep,
    ) -> Iterator[Verification]:
        """Yield how one stands, now and after each change, up to its end.

        It is asked for again and again: a stream has no end to set a deadline for, and each of
        these answers has one.

        Args:
            name: its name.
            seconds_between: two questions.
            pause: waits so many seconds.

        Yields:
            It; the last one is over.
        """
        last = -1
        while True:
            told = self.one(name)
            if told.sequence > last:
                last = told.sequence
                yield told
            if told.state.is_over:
                return
            pause(seconds_between)

    def cancel(self, name: str) -> Verification:
        """End one that waits or runs; it comes to no verdict.

        Args:
            name: its name.

        Returns:
            It, as it was when this was asked for.

        Raises:
            ServiceError: it is over, or who asks may not.
        """
        return self._meant(self._connection.end(Verification, self._path_of(name)), name)

    def report(self, told: Verification) -> bytes:
        """Return the report of one, for `cmfl audit --since` and `ledger.audit.earlier_report`.

        Args:
            told: how it stands; only a finished one has a report.

        Raises:
            ServiceError: it has none, or what comes is not the one that it names.
        """
        name = told.verification
        if told.report is None:
            raise ServiceError(f"verification {name} has no report: it is {told.state.value}")
        data = self._connection.fetch(f"{self._path_of(name)}/report", JSON, MAX_REPORT_BYTES)
        found = f"0x{sha256(data).hex()}"
        if found != told.report.sha256:
            raise ServiceError(
                f"{self._connection.shown_url}: the report of {name} has sha256 {found}, not "
                f"{told.report.sha256}"
            )
        return data

    def _path_of(self, name: str) -> str:
        """Return the path of one.

        Raises:
            ServiceError: the name is none, which must not get into a path.
        """
        if _NAME.fullmatch(name) is None:
            raise ServiceError(
                f"{name!r:.120} is no verification's name: a time to the millisecond and 8 hex "
                f"digits are"
            )
        return f"{self._path}/{name}"

    def _meant(self, told: Verification, name: str) -> Verification:
        """Return an answer that is about what was asked for.

        Raises:
            ServiceError: it is about another.
        """
        if told.verification != name:
            raise ServiceError(
                f"{self._connection.shown_url}: answers of verification {told.verification}, not "
                f"of {name}"
            )
        return told
