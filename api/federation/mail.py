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
from ledger.storage.mailboxes.location import mailboxes_at
from ledger.storage.mailboxes.several import SeveralMailboxes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ledger.actors.status.open_round_status import OpenRoundStatus
    from ledger.actors.view import ChainView
    from ledger.protocol.documents.envelope import Envelope
    from ledger.protocol.inputs import Inputs
    from ledger.protocol.types import Domain
    from ledger.storage.mailbox import Mailbox

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
        self._places: tuple[_Told, ...] = ()
        self._mailbox: Mailbox | None = None
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
                self._places = tuple(map(_Told, mailboxes_at(self._place)))
                self._mailbox = SeveralMailboxes(self._places)
            if not self._listed:
                self._mailbox.forget(*about)
            is_whole = True
            for place in self._places:
                place.listings = 0
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
        # One of several that is away may alone have what somebody has said.
        is_whole &= all(place.listings == len(_KINDS) for place in self._places)
        self.is_read = is_whole
        self.read_at = now if is_whole else self.read_at
        return view


class _Told:
    """One of the places of the mail, and how many of its listings were answered."""

    def __init__(self, mailbox: Mailbox) -> None:
        self._mailbox = mailbox
        self.is_shared = mailbox.is_shared
        self.listings = 0

    def put(self, envelope: Envelope) -> bool:
        """Add an envelope, and say whether it was not there before."""
        return self._mailbox.put(envelope)

    def listed(
        self, domain: Domain, round_number: int, kind: EnvelopeKind, start: int = 0
    ) -> Sequence[Envelope]:
        """Return the envelopes of one kind and round."""
        found = self._mailbox.listed(domain, round_number, kind, start)
        self.listings += 1
        return found

    def forget(self, domain: Domain, before_round: int) -> None:
        """Drop the envelopes of rounds that are long over."""
        self._mailbox.forget(domain, before_round)


def _about(inputs: Inputs) -> tuple[object, ...]:
    """Return what tells the inputs of one round from another's, and from those of a fork."""
    seats, closing = inputs.participants, inputs.closing
    return inputs.domain, inputs.round, inputs.seed, seats, closing.block, closing.base
