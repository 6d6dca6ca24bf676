"""Every object store, opened as often as a test likes, for the suite that they have in common."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from ledger.protocol.encoding import sha256
from ledger.protocol.payloads import Payload
from ledger.protocol.types import Domain
from ledger.storage.blobs import FolderObjects, MemoryObjects, ObjectStore
from ledger.storage.http import HttpObjects, store_server
from ledger.storage.opening import ReplicatedObjects, mail_objects_at
from tests.api.store.conftest import Contract, contract_in, stored, uploads_of
from tests.storage.s3 import ONE_SERVER, bucket, served_s3
from tests.support.keys import DOMAIN


@dataclass(frozen=True)
class Shared:
    """One place that several processes open."""

    open: Callable[[], ObjectStore]
    damage: Callable[[str, bytes], None]
    domain: Domain = DOMAIN
    deletes: bool = True


@pytest.fixture(scope="session")
def contract(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Contract]:
    with contract_in(tmp_path_factory.mktemp("contract")) as made:
        yield made


@pytest.fixture(scope="session")
def s3() -> Iterator[str]:
    with served_s3() as url:
        yield url


STORES = [
    "memory",
    "folder",
    "http",
    "replicated",
    pytest.param("s3", marks=ONE_SERVER),
    pytest.param("fsspec", marks=ONE_SERVER),
]


@pytest.fixture(params=STORES)
def shared(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Shared]:
    match request.param:
        case "memory":
            memory = MemoryObjects()
            yield Shared(lambda: memory, lambda path, data: _misname(memory, path, data))
        case "folder":
            yield Shared(lambda: FolderObjects(tmp_path), lambda p, d: _overwrite(tmp_path, p, d))
        case "replicated":
            folders = [tmp_path / "first", tmp_path / "second"]
            yield Shared(
                lambda: ReplicatedObjects([FolderObjects(folder) for folder in folders]),
                lambda path, data: _overwrite_all(folders, path, data),
            )
        case "http":
            yield from _served(request.getfixturevalue("contract"), tmp_path / "store")
        case "s3":
            request.getfixturevalue("s3")
            yield _at(bucket())
        case _:
            yield _at(f"memory://{tmp_path.name}")


def _served(contract: Contract, folder: Path) -> Iterator[Shared]:
    opened: list[HttpObjects] = []
    with stored(folder, contract) as store:

        def open_store() -> HttpObjects:
            opened.append(store_server(store.url, uploads_of(store.domain), 30.0))
            return opened[-1]

        yield Shared(open_store, lambda p, d: _overwrite(folder, p, d), store.domain, deletes=False)
        for objects in opened:
            objects.close()


def _at(location: str) -> Shared:
    from fsspec.core import url_to_fs

    def damage(path: str, data: bytes) -> None:
        files, root = url_to_fs(location)
        files.pipe_file(f"{root}/{path}", data)

    return Shared(lambda: mail_objects_at(location), damage)


def _overwrite(folder: Path, path: str, data: bytes) -> None:
    (folder / path).write_bytes(data)


def _overwrite_all(folders: list[Path], path: str, data: bytes) -> None:
    for folder in folders:
        _overwrite(folder, path, data)


def _misname(memory: MemoryObjects, path: str, data: bytes) -> None:
    memory.put(path, Payload(data, sha256(data)))
