"""Several places for mail: any but one may be away, and nothing comes twice."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

import pytest

from ledger.protocol.documents.envelope import EnvelopeKind
from ledger.protocol.errors import BlobError
from ledger.storage.mailbox import MemoryMailbox
from ledger.storage.mailboxes.location import mailbox_at
from ledger.storage.mailboxes.several import SeveralMailboxes
from tests.actors.support import DOMAIN
from tests.storage.mailboxes.test_files import envelope

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from ledger.protocol.documents.envelope import Envelope
    from ledger.protocol.types import Domain

KIND = EnvelopeKind.PAYLOAD


class FailingMailbox(MemoryMailbox):
    """A mailbox that is away at times."""

    is_away = False

    def put(self, envelope: Envelope) -> bool:
        if self.is_away:
            raise OSError(errno.EIO, "the place is away")
        return super().put(envelope)

    def listed(
        self, domain: Domain, round_number: int, kind: EnvelopeKind, start: int = 0
    ) -> Sequence[Envelope]:
        if self.is_away:
            raise OSError(errno.EIO, "the place is away")
        return super().listed(domain, round_number, kind, start)


def listed(mailbox: SeveralMailboxes, start: int = 0) -> list[Envelope]:
    return list(mailbox.listed(DOMAIN, 1, KIND, start))


def test_mail_goes_everywhere_and_comes_once() -> None:
    first, second = FailingMailbox(), FailingMailbox()
    both = SeveralMailboxes([first, second])
    assert both.put(envelope(1))
    assert not both.put(envelope(1))
    assert first.listed(DOMAIN, 1, KIND) == second.listed(DOMAIN, 1, KIND) == [envelope(1)]
    second.put(envelope(2))
    assert listed(both) == [envelope(1), envelope(2)]
    first.put(envelope(2))
    first.put(envelope(3))
    assert listed(both, 2) == [envelope(3)]
    both.forget(DOMAIN, 2)
    assert listed(both) == []


def test_one_place_may_be_away_and_nothing_is_lost() -> None:
    first, second = FailingMailbox(), FailingMailbox()
    both = SeveralMailboxes([first, second])
    first.is_away = True
    assert both.put(envelope(1))
    assert listed(both) == [envelope(1)]
    first.is_away, second.is_away = False, True
    assert both.put(envelope(2))
    assert listed(both) == [envelope(1), envelope(2)]
    first.is_away = True
    with pytest.raises(OSError, match="away"):
        both.put(envelope(3))
    with pytest.raises(OSError, match="away"):
        listed(both)
    first.is_away = second.is_away = False
    assert listed(both) == [envelope(1), envelope(2)]


def test_a_place_that_drips_holds_nobody_up_at_each_look() -> None:
    now = 0.0

    class Dripping(FailingMailbox):
        asked = 0

        def listed(
            self, domain: Domain, round_number: int, kind: EnvelopeKind, start: int = 0
        ) -> Sequence[Envelope]:
            nonlocal now
            self.asked += 1
            now += 30 if self.is_away else 0
            return super().listed(domain, round_number, kind, start)

    first, second = Dripping(), FailingMailbox()
    both = SeveralMailboxes([first, second], lambda: now)
    first.put(envelope(2))
    first.is_away = True
    for _ in range(5):
        assert both.put(envelope(1)) or second.listed(DOMAIN, 1, KIND)
        assert listed(both) == [envelope(1)]
    assert first.asked == 1
    # Where no other answers, it is asked all the same.
    second.is_away = True
    with pytest.raises(OSError, match="away"):
        listed(both)
    first.is_away = False
    assert listed(both) == [envelope(1), envelope(2)]
    assert both.put(envelope(3))
    assert first.asked == 3


def test_places_are_separated_by_commas(tmp_path: Path) -> None:
    mailbox = mailbox_at(f"{tmp_path / 'a'}, {tmp_path / 'b'}")
    assert mailbox.is_shared
    assert mailbox.put(envelope(1))
    for folder in ("a", "b"):
        assert mailbox_at(str(tmp_path / folder)).listed(DOMAIN, 1, KIND) == [envelope(1)]
    for wrong in (str(tmp_path / "none" / "below"), "", f"{tmp_path},", "no such://x"):
        with pytest.raises(BlobError, match="mailbox"):
            mailbox_at(wrong)
