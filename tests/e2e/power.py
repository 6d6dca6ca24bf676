"""A disk and a chain that lose power together: only what was synced is there afterwards.

The disk writes for real, so that a run reads what it wrote, and keeps account of what a file system
may forget: bytes until their file is synced, names until their folder is. SQLite syncs chain and
journal by itself, so each of its commits counts as durable.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from ledger.chain.embedded.embedded_chain import EmbeddedChain
from ledger.chain.ports import Receipt
from ledger.io.home import Disk

SENDING, SENT = "sending", "sent"


class PowerCutError(BaseException):
    """What ends a session: nothing is done to disk or chain any more."""


@dataclass
class Content:
    data: bytes
    synced: bytes | None = None


class FailingDisk(Disk):
    def __init__(self, cut_at: int | None = None, transactions: int | None = None) -> None:
        super().__init__()
        self.operations: list[str] = []
        self._cut_at = cut_at
        self._transactions = transactions
        self._files: dict[Path, Content] = {}
        self._durable_files: dict[Path, Content] = {}
        self._folders: set[Path] = set()
        self._durable_folders: set[Path] = set()

    def do(self, operation: str) -> None:
        if len(self.operations) == self._cut_at:
            raise PowerCutError
        if self.operations.count(SENT) == self._transactions:
            raise PowerCutError
        self.operations.append(operation)

    def make_folder(self, folder: Path) -> None:
        self.do("make folder")
        super().make_folder(folder)
        self._folders.add(folder)

    def create(self, folder: Path, data: bytes | memoryview) -> Path:
        self.do("create")
        path = super().create(folder, data)
        self._files[path] = Content(bytes(data))
        return path

    def append(self, path: Path, data: bytes) -> None:
        self.do("append")
        super().append(path, data)
        self._files.setdefault(path, Content(b"")).data = path.read_bytes()

    def rename(self, path: Path, target: Path) -> None:
        self.do("rename")
        super().rename(path, target)
        self._files[target] = self._files.pop(path)

    def remove(self, path: Path) -> None:
        self.do("remove")
        super().remove(path)
        self._files.pop(path, None)

    def sync_files(self, paths: Collection[Path]) -> None:
        for path in sorted(paths):
            self.do("sync file")
            content = self._files.setdefault(path, Content(path.read_bytes()))
            content.synced = content.data

    def sync_folders(self, folders: Collection[Path]) -> None:
        for folder in folders:  # one after another, so that a run does the same each time
            self.sync_folder(folder)

    def sync_folder(self, folder: Path) -> None:
        self.do("sync folder")
        kept = {p: content for p, content in self._durable_files.items() if p.parent != folder}
        named = {p: content for p, content in self._files.items() if p.parent == folder}
        self._durable_files = kept | named
        self._durable_folders |= {made for made in self._folders if made.parent == folder}

    def lose(self, rng: random.Random, *, everything: bool) -> None:
        for path in sorted({*self._files, *self._durable_files}):
            now, then = self._files.get(path), self._durable_files.get(path)
            content = then if everything or rng.random() < 0.5 else now
            path.unlink(missing_ok=True)
            if content is not None:
                path.write_bytes(_left_of(content, rng, everything=everything))
        for folder in sorted(self._folders - self._durable_folders):
            if everything or rng.random() < 0.5:
                shutil.rmtree(folder, ignore_errors=True)


def _left_of(content: Content, rng: random.Random, *, everything: bool) -> bytes:
    synced = content.synced or b""
    if everything or content.data == synced:
        return synced
    torn = content.data[: rng.randrange(len(content.data))]
    return rng.choice([synced, content.data, torn, bytes(len(content.data))])


class PoweredChain(EmbeddedChain):
    """A chain beside such a disk: no transaction once the power is gone."""

    disk: FailingDisk | None = None

    def send(
        self, to: str | None, data: bytes, gas: int, *, key: bytes | None = None, value: int = 0
    ) -> Receipt:
        if self.disk is None:
            return super().send(to, data, gas, key=key, value=value)
        self.disk.do(SENDING)
        receipt = super().send(to, data, gas, key=key, value=value)
        self.disk.do(SENT)
        return receipt
