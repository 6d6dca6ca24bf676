"""The updates that a worker has trained, on its own disk before anybody hears of them.

Between its commitment and the closing block a client alone has what it has committed to: what a
killed process had kept in memory only would be lost to the round. Each file says by its name what
it is and what its bytes come to, so that one that a disk has damaged is trained again.
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
    """Updates by round, client and origin: all that training starts from."""

    def __init__(self, folder: Path, *, disk: Disk = DISK) -> None:
        """Name the folder, which is made with the first update.

        Args:
            folder: of nobody else.
            disk: that it lies on.
        """
        self._folder = folder
        self._disk = disk

    def find(
        self, round_number: int, client: ClientId, origin: Digest, limit: int
    ) -> Payload | None:
        """Return an update that was kept, None if there is none that is whole.

        Args:
            round_number: t.
            client: whose.
            origin: what it was trained from.
            limit: how many bytes it may have.

        Raises:
            OSError: it is there and cannot be read.
        """
        wanted = f"{round_number}-{client}-{origin.hex()}-"
        for path, named in self._kept():
            if not path.name.startswith(wanted) or path.stat().st_size > limit:
                continue
            payload = Payload.of(read_file(path, limit))
            if payload.digest.hex() == named[4]:
                return payload
        return None

    def keep(self, round_number: int, origin: Digest, updates: Mapping[ClientId, Payload]) -> None:
        """Return once these survive a power cut.

        Args:
            round_number: t.
            origin: what they were trained from.
            updates: by client.

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
        """Remove what was kept of rounds that are over.

        Args:
            before_round: the first round that is kept.

        Raises:
            OSError: one cannot be removed.
        """
        for path, named in self._kept():
            if int(named[1]) < before_round:
                self._disk.remove(path)

    def _kept(self) -> list[tuple[Path, re.Match[str]]]:
        """Return every file that an update is kept in, with what its name says."""
        if not self._folder.is_dir():
            return []
        found = ((path, _NAME.fullmatch(path.name)) for path in self._folder.iterdir())
        return [(path, named) for path, named in found if named is not None]
