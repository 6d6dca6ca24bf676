"""The logs of all processes merged, each line with the name of its process."""

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
        """Start at the beginning of each log."""
        self._folder = folder
        self._read: dict[Path, int] = {}

    def show(self, say: Callable[[str], None]) -> None:
        """Print the complete lines since the last call; a line without end is printed in pieces."""
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
