"""What a data set is: the layouts that its files may have, and how models take what is in them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from clients.datasets.files.layout import FileKind, Layout, layout_of
from ledger.protocol.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import numpy as np

    from clients.datasets.records import PooledData, Records
    from clients.datasets.settings_table import SettingsTable


@dataclass(frozen=True, slots=True)
class FileFormat:
    """One layout that a data set's files may have.

    Attributes:
        kind: how the files are written.
        fields: arrays or columns that must be there; there may be other columns, but no arrays.
        read: what the files hold.
    """

    kind: FileKind
    fields: frozenset[str]
    read: Callable[[Layout], Records]

    def fits(self, layout: Layout) -> bool:
        """Whether these files may be so, by kind and names alone."""
        if layout.kind is not self.kind:
            return False
        exact = self.kind is FileKind.ARRAYS
        return self.fields == layout.fields if exact else self.fields <= layout.fields

    def __str__(self) -> str:
        return f"a {self.kind.value}" + (
            f" with {', '.join(sorted(self.fields))}" if self.fields else ""
        )


@dataclass(frozen=True, slots=True)
class HubFiles:
    """Where the Hugging Face hub has a data set's files, in a layout that is read here.

    Attributes:
        repository: owner and name.
        places: revision, and a pattern of whole file names; the first revision with any counts.
    """

    repository: str
    places: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class DataSet:
    """One data set.

    Attributes:
        name: in the registry.
        options: its own table of settings.
        pool: makes what models take of records; the stream is that of the split.
        formats: layouts of its files; none where it is bundled.
        bundled: reads what needs no file.
        owned_by: what its natural clients are called; None where it has none.
        is_input_of: whether one input of LEAF's JSON is one of this data set.
        hub: where its files can be fetched; None where they cannot.
        is_declared: whether each client has samples of its own that nobody else sees, of which the
            settings declare the form.
    """

    name: str
    options: type[SettingsTable]
    pool: Callable[[Records, Any, np.random.Generator], PooledData]
    formats: tuple[FileFormat, ...] = ()
    bundled: Callable[[], Records] | None = None
    owned_by: str | None = None
    is_input_of: Callable[[object], bool] = lambda _: False
    hub: HubFiles | None = None
    is_declared: bool = False

    def records(self, path: Path | None) -> Records:
        """Return what the data set's files hold.

        Args:
            path: a file or folder; None for what is bundled.

        Raises:
            ConfigurationError: the path is missing or superfluous, none of the layouts fits, or
                a file is damaged or breaks a rule; or nobody has the samples of all clients.
        """
        if self.is_declared:
            raise ConfigurationError(
                f"data.name = {self.name}: each client has samples of its own, and nobody those of "
                f"all: deploy with cmfl deploy --registry, and give each worker its own by --data"
            )
        if self.bundled is not None:
            if path is not None:
                raise ConfigurationError(
                    f"data.path = {path}: data set {self.name!r} is bundled and takes no path"
                )
            return self.bundled()
        if path is None:
            raise ConfigurationError(
                f"data.path is not set: data set {self.name!r} needs the path of its files"
            )
        layout = layout_of(path)
        for known in self.formats:
            if known.fits(layout):
                return known.read(layout)
        having = f" with {', '.join(sorted(layout.fields))[:400]}" if layout.fields else ""
        raise ConfigurationError(
            f"{path}: a {layout.kind.value}{having} is no layout of {self.name!r}; it may be "
            + ", or ".join(map(str, self.formats))
        )
