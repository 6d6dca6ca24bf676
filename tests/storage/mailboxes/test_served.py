"""A store whose host lies, repeats itself or drips holds no reader of its mail for long."""

from __future__ import annotations

import functools
from http.server import BaseHTTPRequestHandler
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import parse_qs, urlsplit

from ledger.protocol.documents.envelope import EnvelopeKind, encode_envelope
from ledger.storage.mailboxes.page import Page, encode_page
from ledger.storage.mailboxes.served import LISTING_SECONDS, MOST_PAGES, ServedMailbox
from ledger.storage.patience import AT_ONCE, PATIENT, SILENCE_SECONDS
from tests.actors.support import DOMAIN
from tests.storage.mailboxes.test_files import envelope
from tests.storage.test_http import serving

if TYPE_CHECKING:
    from collections.abc import Callable

KIND = EnvelopeKind.PAYLOAD
EPOCH = bytes(16)


class Paging(BaseHTTPRequestHandler):
    """Answers each request with what a function makes of `after` and of how many came before."""

    protocol_version = "HTTP/1.1"
    wbufsize = -1  # head and body at once: apart, the second waits for the first one's receipt
    page: ClassVar[Callable[[int, int], Page]]
    asked: ClassVar[list[int]]

    def do_GET(self) -> None:
        after = int(parse_qs(urlsplit(self.path).query)["after"][0])
        body = encode_page(type(self).page(after, len(self.asked)))
        self.asked.append(after)
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


def lying(page: Callable[[int, int], Page]) -> type[Paging]:
    return type("Lying", (Paging,), {"page": staticmethod(page), "asked": []})


def repeated(after: int, _: int) -> Page:
    return Page(EPOCH, after, (encode_envelope(envelope(1)),))


def test_a_server_that_repeats_itself_for_ever_is_left() -> None:
    handler = lying(repeated)
    with serving(handler) as url:
        mailbox = ServedMailbox(url, None, patience=AT_ONCE)
        assert mailbox.listed(DOMAIN, 1, KIND) == [envelope(1)]
        assert len(handler.asked) == MOST_PAGES
        mailbox.close()


def test_a_server_that_drips_each_page_holds_one_listing_for_seconds() -> None:
    handler, seconds = lying(repeated), LISTING_SECONDS / 2
    with serving(handler) as url:
        clock = functools.partial(lambda: seconds * len(handler.asked))
        mailbox = ServedMailbox(url, None, patience=AT_ONCE, clock=clock)
        assert mailbox.listed(DOMAIN, 1, KIND) == [envelope(1)]
        assert handler.asked == [0, 1]
        # What it had more of is asked for the next time.
        assert mailbox.listed(DOMAIN, 1, KIND) == [envelope(1)]
        assert handler.asked == [0, 1, 2, 3]
        mailbox.close()


def test_a_server_that_begins_anew_at_each_page_adds_nothing() -> None:
    def anew(after: int, number: int) -> Page:
        return Page(number.to_bytes(16), after, (encode_envelope(envelope(number % 2)),))

    handler = lying(anew)
    with serving(handler) as url:
        mailbox = ServedMailbox(url, None, patience=AT_ONCE)
        for _ in range(2):
            assert len(mailbox.listed(DOMAIN, 1, KIND)) <= 2
        assert len(handler.asked) <= 2 * MOST_PAGES
        mailbox.close()


def test_who_was_silent_is_not_asked_again_at_once() -> None:
    assert PATIENT.most_seconds <= SILENCE_SECONDS
