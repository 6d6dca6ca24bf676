"""What has been published of the open round so far, read from the mailbox bit by bit."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING

from ledger.actors.status.open_round import status_after_closing, status_before_closing
from ledger.actors.status.voting_progress import FirstSeen
from ledger.actors.view import RoundView
from ledger.protocol.documents.envelope import EnvelopeKind
from ledger.protocol.errors import BlobError
from ledger.protocol.inputs import Evidence
from ledger.storage.mailbox import ObjectMailbox
from ledger.storage.opening import mail_objects_at
from ledger.storage.replicated import ReplicatedObjects

if TYPE_CHECKING:
    from ledger.actors.status.open_round_status import OpenRoundStatus
    from ledger.actors.view import ChainView
    from ledger.protocol.inputs import Inputs
    from ledger.storage.objects import ObjectStore

MOST_AT_ONCE = 4_096
"""Envelopes of one kind that one look checks; the rest is for the next."""

_KINDS = (
    EnvelopeKind.PAYLOAD,
    EnvelopeKind.SCORES,
    EnvelopeKind.REQUEST,
    EnvelopeKind.REPLY,
)
_log = logging.getLogger(__name__)


class RoundMail:
    """What one reader knows of the open round of one deployment; not to be shared by threads.

    Payloads themselves are not fetched: that they are announced says enough.

    Attributes:
        read_at: when the mailbox was last read whole, in the chain's seconds; None before.
        is_read: whether it could be read at the last look.
    """

    def __init__(self, place: str) -> None:
        """Take note of a place; nothing is opened yet.

        Args:
            place: of the mailbox.
        """
        self._place = place
        self._objects: ObjectStore | None = None
        self._mailbox: ObjectMailbox | None = None
        self._view: RoundView | None = None
        self._listed: dict[EnvelopeKind, int] = {}
        self._first_seen = FirstSeen()
        self.read_at: float | None = None
        self.is_read = True

    def standing(self, chain: ChainView, closed_at: float, now: float) -> OpenRoundStatus:
        """Return where the open round stands, by all that has come.

        Args:
            chain: the round, up to the newest block.
            closed_at: time of the closing block, where there is one.
            now: the time, in the chain's seconds.
        """
        inputs = chain.inputs()
        if inputs is None:
            self._view = None
            return status_before_closing(chain)
        view = self._turned_to(inputs, closed_at)
        self._view = view = self._with_mail(view, now)
        self._first_seen = self._first_seen.after_poll(view, now)
        return status_after_closing(
            chain, view, self._first_seen, now, mailbox_is_readable=self.is_read
        )

    def _turned_to(self, inputs: Inputs, closed_at: float) -> RoundView:
        """Return what is known of these inputs; of a round that was taken back, nothing."""
        view = self._view
        if view is None or _about(view.inputs) != _about(inputs):
            self._listed, self._first_seen = {}, FirstSeen()
            evidence = Evidence(None, {}, {}, inputs.parameters.dimension)
            return RoundView(inputs, closed_at, evidence, {}, {}, {}, {})
        if view.inputs == inputs and view.closed_at == closed_at:
            return view
        return replace(view, inputs=inputs, closed_at=closed_at)  # somebody was banned since

    def _with_mail(self, view: RoundView, now: float) -> RoundView:
        about = (view.inputs.domain, view.inputs.round)
        try:
            if self._mailbox is None:
                self._objects = mail_objects_at(self._place)
                self._mailbox = ObjectMailbox(self._objects)
            if not self._listed:
                self._mailbox.forget(*about)
            is_whole, outages = True, self._outages()
            for kind in _KINDS:
                start = self._listed.get(kind, 0)
                came = self._mailbox.listed(*about, kind, start)[:MOST_AT_ONCE]
                self._listed[kind] = start + len(came)
                is_whole &= len(came) < MOST_AT_ONCE
                view = view.with_envelopes(came) if came else view
        except (BlobError, OSError) as error:
            said = error.strerror if isinstance(error, OSError) else error
            _log.warning("the mailbox cannot be read: %s", said or error)
            self.is_read = False
            return view
        # One of several stores that is away may alone have some client's mail.
        is_whole &= self._outages() == outages
        self.is_read = is_whole
        self.read_at = now if is_whole else self.read_at
        return view

    def _outages(self) -> int:
        return self._objects.outages if isinstance(self._objects, ReplicatedObjects) else 0


def _about(inputs: Inputs) -> tuple[object, ...]:
    """Return what tells the inputs of one round from another's, and from those of a fork."""
    seats, closing = inputs.participants, inputs.closing
    return inputs.domain, inputs.round, inputs.seed, seats, closing.block, closing.base
