"""Coverage of runs' training, read from the mailbox by one request at a time."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from api.http.answers import BUSY, MAILBOX_UNREADABLE, REQUEST_INVALID, ProblemError
from api.schemas.service import FieldError
from ledger.chain.contract.deploy import deployed_domain
from ledger.history.answers import TrainingCoverage
from ledger.history.training import training_coverage
from ledger.protocol.errors import BlobError, ConfigurationError
from ledger.storage.mailbox import Mailbox
from ledger.storage.objects import FolderObjects
from ledger.storage.opening import mailbox_at

if TYPE_CHECKING:
    from api.http.answers import RequestView

MAX_UPDATES = 5_000
"""Updates after which an answer ends with its round."""

MAX_SECONDS = 5.0
"""Time after which it does: a mailbox may be slow, and its reader holds a thread."""

WAITING_SECONDS = 2.0


class CoverageReader:
    """Reads attestations for one service; safe to share between threads.

    Args:
        location: of the mailbox; None for the folder of the blobs.
        clock: monotonic, in seconds.
    """

    def __init__(
        self, location: str | None, folder: Path, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._location = location
        self._folder = folder
        self._clock = clock
        self._lock = threading.Lock()

    def read(
        self, reading: RequestView, address: str, rounds: tuple[int | None, int | None]
    ) -> TrainingCoverage:
        """Return the coverage of rounds of a deployment, as many as one answer has room for.

        Args:
            rounds: first and last; None for the first and the last that have ended.
        """
        history = reading.history(address)
        domain = deployed_domain(history.ledger, allow_unknown_creation=True)
        if not self._lock.acquire(timeout=WAITING_SECONDS):
            raise ProblemError(BUSY, "another request is reading the mailbox")
        try:
            mailbox = self._mailbox()
            end = self._clock() + MAX_SECONDS

            def is_enough(updates: int) -> bool:
                return updates >= MAX_UPDATES or self._clock() >= end

            return training_coverage(history, domain, mailbox, rounds, is_enough)
        except ConfigurationError as error:
            errors = [FieldError(place="query", name="from", detail=str(error))]
            raise ProblemError(REQUEST_INVALID, f"query from: {error}", errors) from error
        except (BlobError, OSError) as error:
            _log.warning("the mailbox cannot be read for attestations: %s", error)
            raise ProblemError(MAILBOX_UNREADABLE, "the mailbox does not answer now") from error
        finally:
            self._lock.release()

    def _mailbox(self) -> Mailbox:
        if self._location is not None:
            return mailbox_at(self._location)
        return Mailbox(FolderObjects(self._folder))


_log = logging.getLogger(__name__)
