"""Whoever asks whether a blob is there has it hashed once, and no reader waits for that."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from api.store.routes import FRESH_SECONDS, IntegrityCache
from ledger.protocol.encoding import sha256
from ledger.protocol.types import Digest
from ledger.storage.blobs import FolderBlobs
from tests.api.store.conftest import Store, path_of

DATA = bytes(200_000)


@pytest.fixture
def hashed(monkeypatch: pytest.MonkeyPatch) -> list[Digest]:
    """Return the blobs that are hashed while the test goes on."""
    whole, found = FolderBlobs.opened, []

    @contextmanager
    def counted(blobs: FolderBlobs, digest: Digest, limit: int) -> Iterator[Any]:
        found.append(digest)
        with whole(blobs, digest, limit) as opened:
            yield opened

    monkeypatch.setattr(FolderBlobs, "opened", counted)
    return found


def test_many_who_ask_have_a_blob_hashed_once_or_twice(store: Store, hashed: list[Digest]) -> None:
    assert store.put(DATA).status_code == 201
    with ThreadPoolExecutor(8) as askers:
        answers = list(askers.map(lambda _: store.http.head(path_of(DATA)), range(40)))
    assert {answer.status_code for answer in answers} == {200}
    # Two are hashed at once, who have not yet heard of each other.
    assert len(hashed) <= 2
    assert store.put(DATA).status_code == 200
    assert len(hashed) <= 2


def test_what_has_been_written_since_is_hashed_again(tmp_path: Path, hashed: list[Digest]) -> None:
    now = [0.0]
    blobs = FolderBlobs(tmp_path)
    integrity = IntegrityCache(blobs, lambda: now[0])
    digest, size = blobs.put(DATA), len(DATA)
    assert not integrity.is_intact(sha256(b"absent"), 6)
    assert not integrity.is_intact(digest, size - 1)
    for _ in range(2):
        assert integrity.is_intact(digest, size)
    assert len(hashed) == 1
    now[0] += FRESH_SECONDS
    assert integrity.is_intact(digest, size)
    assert len(hashed) == 2
    blobs.path_of(digest).write_bytes(DATA[:-1] + b"x")
    for _ in range(2):
        assert not integrity.is_intact(digest, size)
    blobs.remove(digest)
    assert not integrity.is_intact(digest, size)
    assert blobs.put(DATA) == digest
    assert integrity.is_intact(digest, size)
