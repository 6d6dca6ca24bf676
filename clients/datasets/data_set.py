"""The definition of a data set: layouts of its files, and their conversion for models."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from clients.datasets.federated_data import PooledData, Records
from clients.datasets.files.layout import FileKind, Layout, layout_of
from clients.datasets.files.tables import quoted
from ledger.protocol.errors import ConfigurationError

if TYPE_CHECKING:
    from clients.datasets.federated_data import SettingsTable
    from ledger.io.user_code import UserCode


@dataclass(frozen=True, slots=True)
class FileFormat:
    """A layout that a data set's files may have.

    Attributes:
        fields: required arrays or columns; additional columns are allowed, additional arrays are
            not.
    """

    kind: FileKind
    fields: frozenset[str]
    read: Callable[[Layout], Records]

    def fits(self, layout: Layout) -> bool:
        """Return whether files have this layout, by kind and names alone."""
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
    """A data set's files on the Hugging Face hub.

    Attributes:
        places: revision, and a pattern of whole file names; the first revision with matches is
            used.
    """

    repository: str
    places: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class DataSet:
    """A data set.

    Attributes:
        pool: prepares records for models; its random stream is that of the split.
        formats: layouts of its files; empty if it is bundled.
        bundled: reads a data set that needs no file.
        owned_by: plural noun for its natural clients; None without any.
        is_input_of: whether an input of LEAF's JSON is of this data set.
        hub: its files on the hub; None if it is not there.
        is_declared: whether each client has private samples, of which the settings declare the
            form.
        read: reads any layout with the data set's options; None where `formats` do.
        fits: whether `read` takes a layout, by kind and names alone.
        has_owners: whether the samples at a path have natural clients, by names alone; None where
            `owned_by` says so.
        load: returns the samples by the options alone; None of a data set with files.
        code: the user's own that loads them; None of a data set of this project.
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
    read: Callable[[Path, Any], Records] | None = None
    fits: Callable[[Layout], bool] | None = None
    has_owners: Callable[[Path | None, Any], bool] | None = None
    load: Callable[[Any], Records] | None = None
    code: UserCode | None = None

    def is_layout(self, layout: Layout) -> bool:
        """Return whether files with this layout may be of this data set."""
        by_options = self.fits is not None and self.fits(layout)
        return by_options or any(format_.fits(layout) for format_ in self.formats)

    def is_owned(self, path: Path | None, options: SettingsTable) -> bool:
        """Return whether the samples have natural clients."""
        if self.has_owners is not None and (path is not None or self.load is not None):
            return self.has_owners(path, options)
        return self.owned_by is not None

    def records(self, path: Path | None, options: SettingsTable | None = None) -> Records:
        """Return the content of a file or folder; of None for a bundled data set."""
        if self.is_declared:
            raise ConfigurationError(
                f"data.name = {self.name}: each client has samples of its own, and nobody those of "
                f"all: deploy with cmfl deploy --registry, and give each worker its own by --data"
            )
        if self.bundled is not None or self.load is not None:
            if path is not None:
                kind = "is bundled" if self.load is None else "is a function"
                raise ConfigurationError(
                    f"data.path = {path}: data set {self.name!r} {kind} and takes no path"
                )
            if self.bundled is not None:
                return self.bundled()
        if self.load is not None:
            return self.load(options or self.options())
        if path is None:
            raise ConfigurationError(
                f"data.path is not set: data set {self.name!r} needs the path of its files"
            )
        if self.read is not None:
            return self.read(path, options or self.options())
        layout = layout_of(path)
        for format_ in self.formats:
            if format_.fits(layout):
                return format_.read(layout)
        fields = f" with {quoted(sorted(layout.fields))}" if layout.fields else ""
        raise ConfigurationError(
            f"{path}: a {layout.kind.value}{fields} is not a layout of {self.name!r}; it may be "
            + ", or ".join(map(str, self.formats))
        )
