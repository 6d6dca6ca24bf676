"""A bucket as a mailbox, on a real S3 server, and any file system that fsspec knows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ledger.protocol.documents.envelope import EnvelopeKind, encode_envelope
from ledger.protocol.encoding import sha256
from ledger.storage.mailboxes.files import folder_of
from ledger.storage.mailboxes.location import mailbox_at
from tests.actors.support import DOMAIN
from tests.storage.mailboxes.test_files import BOARD, envelope
from tests.storage.s3 import ONE_SERVER, bucket, served_s3

if TYPE_CHECKING:
    from collections.abc import Iterator

KIND = EnvelopeKind.PAYLOAD
pytestmark = ONE_SERVER


@pytest.fixture(scope="module")
def s3() -> Iterator[str]:
    with served_s3() as place:
        yield place


@pytest.fixture(params=["s3", "memory"])
def place(request: pytest.FixtureRequest, s3: str) -> str:
    return bucket() if request.param == "s3" else "memory://mail-of-a-test"


def test_two_processes_share_a_place(place: str) -> None:
    writer, reader = mailbox_at(place), mailbox_at(place)
    assert reader.listed(DOMAIN, 1, KIND) == []
    for number in range(3):
        assert writer.put(envelope(number))
        assert not reader.put(envelope(number))
        found = reader.listed(DOMAIN, 1, KIND)
        assert found[-1] == envelope(number)
        assert len(found) == number + 1
    assert reader.listed(DOMAIN, 1, KIND, 3) == []
    assert reader.listed(DOMAIN, 2, KIND) == []


def test_foreign_objects_are_passed_over(place: str) -> None:
    from fsspec.core import url_to_fs

    mailbox, good = mailbox_at(place), envelope(7)
    mailbox.put(good)
    there, root = url_to_fs(place)
    data = encode_envelope(good)
    for name, content in (("README", b"x"), ("ab" * 32, data), (sha256(b"").hex(), b"")):
        there.pipe_file(f"{root}/{folder_of(BOARD)}/{name}", content)
    assert mailbox_at(place).listed(DOMAIN, 1, KIND)[-1:] == [good]
