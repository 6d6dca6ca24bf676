"""Mail of a federation's open round, read from the mailbox in batches."""

from __future__ import annotations

import logging
from dataclasses import replace

from ledger.actors.status import (
    FirstSeen,
    OpenRoundStatus,
    status_after_closing,
    status_before_closing,
)
from ledger.actors.view import ChainView, RoundView
from ledger.protocol.documents.envelope import EnvelopeKind
from ledger.protocol.errors import BlobError
from ledger.protocol.inputs import Evidence, Inputs
from ledger.storage.mailbox import Mailbox
from ledger.storage.objects import ObjectStore
from ledger.storage.opening import ReplicatedObjects, mail_objects_at

BATCH_SIZE = 4_096
"""Envelopes of one kind that one reading checks; the next reading checks the rest."""

_KINDS = (EnvelopeKind.PAYLOAD, EnvelopeKind.SCORES, EnvelopeKind.REQUEST, EnvelopeKind.REPLY)
_log = logging.getLogger(__name__)


class RoundMail:
    """The mail of one deployment's open round, as one reader has it; not for several threads.

    Payloads are not fetched: it is enough that they are announced.

    Args:
        location: of the mailbox; it is opened by the first reading.

    Attributes:
        read_at: time of the last complete reading, in the chain's seconds; None before.
    """

    def __init__(self, location: str) -> None:
        self._location = location
        self._objects: ObjectStore | None = None
        self._mailbox: Mailbox | None = None
        self._view: RoundView | None = None
        self._positions: dict[EnvelopeKind, int] = {}
        self._first_seen = FirstSeen()
        self.read_at: float | None = None
        self.is_read = True

    def status(self, chain: ChainView, closed_at: float, now: float) -> OpenRoundStatus:
        """Read new mail, and return the status of the open round.

        Args:
            closed_at: time of the closing block, if there is one.
            now: the time, in the chain's seconds.
        """
        inputs = chain.inputs()
        if inputs is None:
            self._view = None
            return status_before_closing(chain)
        view = self._view_of(inputs, closed_at)
        self._view = view = self._with_mail(view, now)
        self._first_seen = self._first_seen.after_poll(view, now)
        return status_after_closing(
            chain, view, self._first_seen, now, mailbox_is_readable=self.is_read
        )

    def _view_of(self, inputs: Inputs, closed_at: float) -> RoundView:
        """Return the view of these inputs; an empty one after a reorganisation."""
        view = self._view
        if view is None or _identity(view.inputs) != _identity(inputs):
            self._positions, self._first_seen = {}, FirstSeen()
            parameters = inputs.parameters
            evidence = Evidence(None, {}, {}, parameters.dimension, form=parameters.payload_form)
            return RoundView(inputs, closed_at, evidence, {}, {}, {}, {})
        if view.inputs == inputs and view.closed_at == closed_at:
            return view
        return replace(view, inputs=inputs, closed_at=closed_at)  # a client was banned since

    def _with_mail(self, view: RoundView, now: float) -> RoundView:
        round_ = (view.inputs.domain, view.inputs.round)
        try:
            if self._mailbox is None:
                self._objects = mail_objects_at(self._location)
                self._mailbox = Mailbox(self._objects)
            if not self._positions:
                self._mailbox.forget(*round_)
            is_complete, outages = True, self._outages()
            for kind in _KINDS:
                start = self._positions.get(kind, 0)
                batch = self._mailbox.listed(*round_, kind, start)[:BATCH_SIZE]
                self._positions[kind] = start + len(batch)
                is_complete &= len(batch) < BATCH_SIZE
                view = view.with_envelopes(batch) if batch else view
        except (BlobError, OSError) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            _log.warning("the mailbox cannot be read: %s", reason or error)
            self.is_read = False
            return view
        # One of several stores that is away may alone have some client's mail.
        self.is_read = is_complete and self._outages() == outages
        self.read_at = now if self.is_read else self.read_at
        return view

    def _outages(self) -> int:
        return self._objects.outages if isinstance(self._objects, ReplicatedObjects) else 0


def _identity(inputs: Inputs) -> tuple[object, ...]:
    participants, closing = inputs.participants, inputs.closing
    return inputs.domain, inputs.round, inputs.seed, participants, closing.block, closing.base
