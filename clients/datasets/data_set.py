"""The definition of a data set: layouts of its files, their download, and what models get.

Files come unchanged from the Hugging Face hub: `datasets.load_dataset` would convert them to Arrow
files, twice as large and with different bytes in each version, and a run records the digest of the
published files.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from clients.datasets.federated_data import PooledData, Records, SettingsTable
from clients.datasets.files.layout import FileKind, Layout, layout_of
from clients.datasets.files.tables import imported, quoted
from ledger.io.user_code import UserCode
from ledger.protocol.errors import ConfigurationError


@dataclass(frozen=True, slots=True)
class FileFormat:
    """A layout that a data set's files may have: additional columns are allowed, arrays are not."""

    kind: FileKind
    fields: frozenset[str]
    read: Callable[[Layout], Records]

    def fits(self, layout: Layout) -> bool:
        exact = self.kind is FileKind.ARRAYS
        has_fields = self.fields == layout.fields if exact else self.fields <= layout.fields
        return layout.kind is self.kind and has_fields

    def __str__(self) -> str:
        fields = f" with {', '.join(sorted(self.fields))}" if self.fields else ""
        return f"a {self.kind.value}{fields}"


@dataclass(frozen=True, slots=True)
class HubFiles:
    """A data set's files on the Hugging Face hub: revisions with a pattern of names, best first."""

    repository: str
    places: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class DataSet:
    """A data set."""

    name: str
    options: type[SettingsTable]
    # Prepares records for models; its random stream is that of the split.
    pool: Callable[[Records, Any, np.random.Generator], PooledData]
    formats: tuple[FileFormat, ...] = ()  # layouts of its files; empty if it is bundled
    owned_by: str | None = None  # plural noun for its natural clients; None without any
    is_input_of: Callable[[object], bool] = lambda _: False  # an input of LEAF's JSON
    hub: HubFiles | None = None
    is_declared: bool = False  # whether samples are private, and the settings declare their form
    # Reads any layout, or without `has_path` no file; None where `formats` do.
    read: Callable[[Path | None, Any], Records] | None = None
    has_path: bool = True  # whether its samples are files of the user
    # Whether `read` takes a layout, by kind and names alone.
    fits: Callable[[Layout], bool] | None = None
    # Whether the samples at a path have natural clients, by names alone; None: see `owned_by`.
    has_owners: Callable[[Path | None, Any], bool] | None = None
    code: UserCode | None = None  # the user's own that loads them

    def records(self, path: Path | None, options: SettingsTable | None = None) -> Records:
        if self.is_declared:
            raise ConfigurationError(
                f"data.name = {self.name}: each client has its own samples, so no single "
                "process can load them all; use cmfl deploy --registry and cmfl worker --data"
            )
        if self.has_path != (path is not None):
            rule = "needs the path of its files" if self.has_path else "takes no path"
            given = "is not set" if path is None else f"= {path}"
            raise ConfigurationError(f"data.path {given}: data set {self.name!r} {rule}")
        if self.read is not None:
            return self.read(path, options or self.options())
        assert path is not None, "only `read` does without"
        layout = layout_of(path)
        for format_ in self.formats:
            if format_.fits(layout):
                return format_.read(layout)
        fields = f" with {quoted(sorted(layout.fields))}" if layout.fields else ""
        raise ConfigurationError(
            f"{path}: a {layout.kind.value}{fields} is not a layout of {self.name!r}; it may be "
            + ", or ".join(map(str, self.formats))
        )


MAX_BYTES = 16 * 2**30
MAX_FILES = 1000


def fetch(source: HubFiles, destination: Path) -> tuple[Path, ...]:
    """Download all files of the hub of HF_ENDPOINT into a new folder, without a token, or none."""
    if destination.exists():
        raise ConfigurationError(f"{destination} exists; name a new folder")
    hub = imported("huggingface_hub", "fetch", "downloads")
    errors = imported("huggingface_hub.errors", "fetch", "downloads")
    destination.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=destination.parent, prefix=".fetch-") as folder:
        whole = Path(folder) / "whole"
        whole.mkdir()
        try:
            for file in _downloaded(hub, source, Path(folder) / "parts"):
                shutil.move(file, whole / file.name)
        except (errors.HTTPError, OSError, ValueError) as error:
            reason = " ".join(str(error).split())[:300] or type(error).__name__
            raise ConfigurationError(f"{source.repository} cannot be fetched: {reason}") from error
        whole.rename(destination)
    return tuple(sorted(destination.iterdir()))


def _downloaded(hub: Any, source: HubFiles, folder: Path) -> list[Path]:
    """Return the downloaded files, each compared with the size and digest that the hub states."""
    endpoint = os.environ.get("HF_ENDPOINT") or None
    commit, files = _listed(hub.HfApi(endpoint=endpoint, token=False), source)
    asked: dict[str, Any] = {"repo_type": "dataset", "revision": commit, "local_dir": folder}
    asked |= {"token": False, "endpoint": endpoint}
    fetched: list[Path] = []
    for file in files:
        path = Path(hub.hf_hub_download(source.repository, file.rfilename, **asked))
        size, name = path.stat().st_size, file.rfilename
        if file.size is not None and size != file.size:
            raise ConfigurationError(f"{name}: expected {file.size} bytes, got {size}")
        if file.lfs is not None:
            with path.open("rb") as content:
                digest = hashlib.file_digest(content, "sha256").hexdigest()
            if digest != (stated := file.lfs.sha256):
                raise ConfigurationError(f"{name}: expected sha256 {stated}, got {digest}")
        fetched.append(path)
    return fetched


def _listed(api: Any, source: HubFiles) -> tuple[str, list[Any]]:
    for revision, pattern in source.places:
        info = api.dataset_info(
            source.repository, revision=revision, files_metadata=True, timeout=30
        )
        files = [file for file in info.siblings or () if re.fullmatch(pattern, file.rfilename)]
        total = sum(file.size or 0 for file in files)
        if total > MAX_BYTES or len(files) > MAX_FILES:
            raise ConfigurationError(
                f"{source.repository} has {len(files)} files of {total} bytes, over the limits"
            )
        if files:
            return info.sha, files
    patterns = " or ".join(pattern for _, pattern in source.places)
    raise ConfigurationError(f"{source.repository}: the hub has no file {patterns}")
