"""Blobs in a bucket, on a real S3 server, and in whatever else fsspec reaches."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from ledger.protocol.encoding import sha256
from ledger.protocol.errors import BlobError, BlobMissingError, BlobUnreachableError
from ledger.protocol.payload import Payload
from ledger.storage.opening import reader_at, store_at
from tests.storage.s3 import ONE_SERVER, bucket, served_s3

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = ONE_SERVER


@pytest.fixture(scope="module")
def s3() -> Iterator[str]:
    with served_s3() as url:
        yield url


@pytest.fixture(params=["s3", "memory"])
def place(request: pytest.FixtureRequest, s3: str) -> str:
    return bucket() if request.param == "s3" else "memory://blobs-of-a-test"


def test_what_one_puts_the_other_reads(place: str) -> None:
    store, other = store_at(place), reader_at(place)
    for data in (b"", b"hello", bytes(200_000)):
        digest = store.put(data)
        store.put_payload(Payload.of(data))
        store.sync()
        assert other.has(digest)
        assert other.get(digest) == data
    absent = sha256(b"never published")
    assert not other.has(absent)
    with pytest.raises(BlobMissingError, match=absent.hex()):
        other.get(absent)
    digest = sha256(b"hello")
    with pytest.raises(BlobError, match="larger than the 4 bytes"):
        other.get(digest, 4)
    store.remove(digest)
    store.remove(digest)
    assert not other.has(digest)


def test_a_wrong_byte_is_seen_and_written_again(place: str) -> None:
    from fsspec.core import url_to_fs

    store = store_at(place)
    digest = store.put(b"hello")
    there, root = url_to_fs(place)
    there.pipe_file(f"{root}/{digest.hex()[:2]}/{digest.hex()}", b"hullo")
    with pytest.raises(BlobError, match="is damaged"):
        store.get(digest)
    # Another place has it.
    both = reader_at(f"{place},{place}-other")
    assert store_at(f"{place}-other").put(b"hello") == digest
    assert both.get(digest) == b"hello"
    assert store.put(b"hello") == digest
    assert store.get(digest) == b"hello"


def test_a_bucket_that_is_not_there_takes_nothing(s3: str) -> None:
    store = store_at("s3://no-such-bucket-here/x")
    for _ in range(2):
        with pytest.raises(BlobError, match="cannot be written"):
            store.put(b"x")
    with pytest.raises(BlobMissingError):
        store.get(sha256(b"x"))


def test_a_server_that_is_away_says_nothing_of_the_blob(
    s3: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import fsspec.config

    told = dict(fsspec.config.conf["s3"]) | {"endpoint_url": "http://127.0.0.1:9"}
    told |= {"config_kwargs": {"retries": {"max_attempts": 1}}}
    monkeypatch.setitem(fsspec.config.conf, "s3", told)
    monkeypatch.setattr("s3fs.core.S3FileSystem.retries", 1)
    store = store_at("s3://away/x")
    for act in (store.get, store.has):
        with pytest.raises(BlobUnreachableError, match="the place fails"):
            act(sha256(b"x"))
    with pytest.raises(BlobError, match="cannot be written"):
        store.put(b"x")


def test_without_its_packages_a_place_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BlobError, match="nosuch://host: fsspec reaches no blobs or mail there"):
        store_at("nosuch://user:SECRET@host/x")
    monkeypatch.setitem(sys.modules, "fsspec.core", None)
    with pytest.raises(BlobError, match=r"s3://bucket needs the extra \[remote\]"):
        store_at("s3://key:SECRET@bucket/x")
