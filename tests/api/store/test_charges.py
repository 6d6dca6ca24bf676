"""A quota counts what is kept or on its way, once however often it is sent."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from api.store.receiver import ChargeKind, Charges
from ledger.protocol.encoding import sha256
from ledger.protocol.types import ClientId, Upload

MOST = (3, 1_000)


@pytest.fixture
def charges(tmp_path: Path) -> Iterator[Charges]:
    found = Charges(tmp_path / "charges.sqlite")
    yield found
    found.close()


def upload(name: bytes, size: int, client: int = 0) -> Upload:
    return Upload(1, ClientId(client), "https://store.example", sha256(name), size)


def is_charged(charges: Charges, one: Upload) -> bool:
    return charges.charge(one, ChargeKind.BLOB, MOST)


def test_an_attempt_that_fails_takes_nothing_else_back(charges: Charges) -> None:
    kept = upload(b"a", 900)
    assert is_charged(charges, kept)
    charges.settle(kept, ChargeKind.BLOB, is_stored=True)
    # Sent again with another size it cannot be whole; what was kept is kept.
    for size in (1, 1_000):
        assert is_charged(charges, upload(b"a", size))
        charges.settle(upload(b"a", size), ChargeKind.BLOB, is_stored=False)
        assert not is_charged(charges, upload(b"b", 101))
    assert charges.blobs_of(1) == {kept.digest}
    assert is_charged(charges, upload(b"b", 100))


def test_attempts_at_the_same_bytes_are_charged_once_between_them(charges: Charges) -> None:
    one = upload(b"a", 400)
    for _ in range(5):
        assert is_charged(charges, one)
    assert not is_charged(charges, upload(b"b", 601))
    assert is_charged(charges, upload(b"b", 601, client=1))
    charges.settle(one, ChargeKind.BLOB, is_stored=True)
    assert not is_charged(charges, upload(b"b", 601))
    for _ in range(4):
        charges.settle(one, ChargeKind.BLOB, is_stored=False)
    assert not is_charged(charges, upload(b"b", 601))
    assert is_charged(charges, upload(b"b", 600))
    assert charges.blobs_of(1) == {one.digest, sha256(b"b")}


def test_of_several_sizes_of_one_digest_the_largest_is_charged(charges: Charges) -> None:
    small, large = upload(b"a", 400), upload(b"a", 900)
    assert is_charged(charges, small)
    assert is_charged(charges, large)
    assert not is_charged(charges, upload(b"b", 101))
    charges.settle(large, ChargeKind.BLOB, is_stored=False)
    assert is_charged(charges, upload(b"b", 600))
    assert not is_charged(charges, large)
    charges.settle(small, ChargeKind.BLOB, is_stored=False)
    assert is_charged(charges, upload(b"c", 400))
    assert charges.blobs_of(1) == {sha256(b"b"), sha256(b"c")}


def test_what_a_killed_store_was_taking_is_charged_once(tmp_path: Path) -> None:
    one = upload(b"a", 900)
    killed = Charges(tmp_path / "charges.sqlite")
    assert is_charged(killed, one)
    killed.close()
    charges = Charges(tmp_path / "charges.sqlite")
    assert not is_charged(charges, upload(b"b", 101))
    assert is_charged(charges, one)
    charges.settle(one, ChargeKind.BLOB, is_stored=True)
    assert is_charged(charges, upload(b"b", 100))
    charges.close()
