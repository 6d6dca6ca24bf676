"""A store is shown a signature for exactly these bytes, by one client after the other."""

from __future__ import annotations

import pytest

from ledger.protocol.encoding import sha256
from ledger.protocol.errors import SignatureError
from ledger.protocol.signing import is_signed_by
from ledger.protocol.types import ClientId, Upload
from ledger.storage.uploads import UploadSigner, parse_authorization
from tests.actors.support import signers
from tests.support.keys import DOMAIN

DIGEST = sha256(b"x")
URL = "https://store.example/2d/2d71"


def test_what_is_shown_is_read_as_it_was_signed() -> None:
    uploads = UploadSigner(DOMAIN, signers()[3], ClientId(3))
    uploads.round = 7
    (header,) = uploads.authorizations(URL, DIGEST, 1)
    upload, signature = parse_authorization(header, DIGEST, 1)
    assert upload == Upload(7, ClientId(3), URL, DIGEST, 1)
    assert is_signed_by(signers()[3].address, DOMAIN, upload, signature)
    longer, signature = parse_authorization(header, DIGEST, 2)
    assert not is_signed_by(signers()[3].address, DOMAIN, longer, signature)
    assert "signer" not in repr(signature)


def test_the_last_queried_store_is_the_first_next_time() -> None:
    others = tuple((ClientId(one), signers()[one]) for one in (1, 2))
    uploads = UploadSigner(DOMAIN, signers()[0], ClientId(0), others, round=1)

    def clients() -> list[int]:
        shown = uploads.authorizations(URL, DIGEST, 1)
        return [parse_authorization(header, DIGEST, 1)[0].client for header in shown]

    assert clients() == [0, 1, 2]
    assert clients() == [2, 0, 1]
    headers = uploads.authorizations(URL, DIGEST, 1)
    assert parse_authorization(next(headers), DIGEST, 1)[0].client == 1
    assert clients() == [1, 2, 0]


@pytest.mark.parametrize("text", ["", "CMFL 1.1.00", "Bearer x", "CMFL 1.1." + "0" * 131])
def test_what_is_no_header_is_refused(text: str) -> None:
    with pytest.raises(SignatureError, match=r"CMFL client\.round\.signature url"):
        parse_authorization(text, DIGEST, 1)
