"""A home: where everything of it lies, and how a file comes there whole or not at all.

This file alone knows the names `chain.sqlite`, `blobs/`, `runs/<name>/` and what is in them, and
it alone writes files (SQLite, which has its own ways, writes chain and vote journals). A reader
sees a whole file or none, whoever is killed meanwhile.
"""

from __future__ import annotations

import os
import re
import tempfile
from dataclasses import dataclass
from pathlib import Path

from ledger.protocol.errors import ConfigurationError

RUN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
WRITING = ".writing-"
"""What the name of a file begins with until it is whole."""

MANIFEST = "deployment.json"
JOURNAL = "votes.sqlite"


class Disk:
    """What is asked of a file system; a test puts one that loses power in its place."""

    def write_whole(self, path: Path, data: bytes, *, durable: bool = True) -> None:
        """Write beside the target and rename, so that no reader ever sees half a file.

        Args:
            path: of the file; its folder is made.
            data: what it shall hold.
            durable: whether its bytes are on the disk when this returns.

        Raises:
            OSError: it cannot be written; what was there before still is.
        """
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=WRITING)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
                if durable:
                    file.flush()
                    os.fsync(file.fileno())
            Path(temporary).replace(path)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise

    def append(self, path: Path, data: bytes) -> None:
        """Write at the end of a file.

        Args:
            path: of the file.
            data: what follows.

        Raises:
            OSError: it cannot be written.
        """
        with path.open("ab") as file:
            file.write(data)


DISK = Disk()


@dataclass(frozen=True, slots=True)
class RunPaths:
    """Where a run keeps what is not on the chain and not a blob.

    Attributes:
        path: `runs/<name>`.
    """

    path: Path

    @property
    def configuration(self) -> Path:
        """The run's whole configuration, as TOML."""
        return self.path / "config.toml"

    @property
    def metrics(self) -> Path:
        """One JSON line per round."""
        return self.path / "metrics.jsonl"

    @property
    def manifest(self) -> Path:
        """What was deployed where."""
        return self.path / MANIFEST

    @property
    def journal(self) -> Path:
        """What the keys of this run have signed."""
        return self.path / JOURNAL

    @property
    def model(self) -> Path:
        """The last model."""
        return self.path / "model.safetensors"


@dataclass(frozen=True, slots=True)
class Home:
    """A folder with a chain, blobs and runs.

    Attributes:
        path: the folder; it need not exist.
    """

    path: Path

    @property
    def chain(self) -> Path:
        """The embedded chain's file."""
        return self.path / "chain.sqlite"

    @property
    def blobs(self) -> Path:
        """The content-addressed store."""
        return self.path / "blobs"

    @property
    def runs(self) -> Path:
        """The folder with one folder for each run."""
        return self.path / "runs"

    def run(self, name: str) -> RunPaths:
        """Return where a run's files are; they need not exist.

        Args:
            name: of the run.

        Raises:
            ConfigurationError: the name is no plain file name.
        """
        if not RUN_NAME.fullmatch(name):
            raise ConfigurationError(
                f"run name {name!r}: letters, digits, dot, dash and underscore, at most 64"
            )
        return RunPaths(self.runs / name)

    def journals(self) -> list[Path]:
        """Return the vote journals of all runs, by name."""
        return sorted(self.runs.glob(f"*/{JOURNAL}"))

    def deployed(self) -> list[RunPaths]:
        """Return the runs that have a manifest, by name."""
        return [RunPaths(path.parent) for path in sorted(self.runs.glob(f"*/{MANIFEST}"))]
