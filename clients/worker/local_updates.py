"""Durable local store of trained updates, written before their commitments are sent.

Between its commitment and the closing block only the client has its update: a process that is
killed must not lose it. Each file name has the update's origin and digest, so that a damaged update
is trained again.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ledger.io.home import DISK, Disk, read_file
from ledger.protocol.payload import Payload

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from ledger.protocol.types import ClientId, Digest

_NAME = re.compile(r"([0-9]{1,20})-([0-9]{1,10})-([0-9a-f]{64})-([0-9a-f]{64})\.update")


class LocalUpdates:
    """Updates by round, client and origin; an origin commits to all inputs of training."""

    def __init__(self, folder: Path, *, disk: Disk = DISK) -> None:
        """Use a folder of this worker alone; it is created with the first update."""
        self._folder = folder
        self._disk = disk

    def find(
        self, round_number: int, client: ClientId, origin: Digest, limit: int
    ) -> Payload | None:
        """Return a stored update of at most `limit` bytes; None if there is no intact one.

        Raises:
            OSError: it is there and cannot be read.
        """
        prefix = f"{round_number}-{client}-{origin.hex()}-"
        for path, match in self._kept():
            if not path.name.startswith(prefix) or path.stat().st_size > limit:
                continue
            payload = Payload.of(read_file(path, limit))
            if payload.digest.hex() == match[4]:
                return payload
        return None

    def keep(self, round_number: int, origin: Digest, updates: Mapping[ClientId, Payload]) -> None:
        """Store updates by client, durably.

        Raises:
            OSError: they cannot be written.
        """
        paths = []
        for client, update in updates.items():
            name = f"{round_number}-{client}-{origin.hex()}-{update.digest.hex()}.update"
            paths.append(self._folder / name)
            self._disk.write_whole(paths[-1], update.data, durable=False)
        if paths:
            self._disk.sync(paths)

    def forget(self, before_round: int) -> None:
        """Remove the updates of earlier rounds.

        Raises:
            OSError: one cannot be removed.
        """
        for path, match in self._kept():
            if int(match[1]) < before_round:
                self._disk.remove(path)

    def _kept(self) -> list[tuple[Path, re.Match[str]]]:
        """Return all update files with the match of their names."""
        if not self._folder.is_dir():
            return []
        matches = ((path, _NAME.fullmatch(path.name)) for path in self._folder.iterdir())
        return [(path, match) for path, match in matches if match is not None]
