"""The logs of all processes as one: each line behind the name of its process."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_MOST_AT_ONCE = 1 << 20


class LogFollower:
    """Follows the logs in a folder."""

    def __init__(self, folder: Path) -> None:
        """Begin at the beginning of each.

        Args:
            folder: of the logs.
        """
        self._folder = folder
        self._read: dict[Path, int] = {}

    def show(self, say: Callable[[str], None]) -> None:
        """Tell every whole line that has come since the last time, one that never ends in pieces.

        Args:
            say: is told each, behind the name of its process.
        """
        for path in sorted(self._folder.glob("*.log")):
            with path.open("rb") as file:
                start = self._read.get(path, 0)
                if start > file.seek(0, os.SEEK_END):
                    start = 0  # it was cut meanwhile
                file.seek(start)
                data = file.read(_MOST_AT_ONCE)
            whole = data[: data.rfind(b"\n") + 1]
            if len(data) == _MOST_AT_ONCE and not whole:
                whole = data
            self._read[path] = start + len(whole)
            for line in whole.decode("utf-8", "replace").splitlines():
                say(f"{path.stem}: {line}")
