"""Download of a data set's files from the Hugging Face hub, unchanged.

`datasets.load_dataset` would convert them to Arrow files, twice as large and with different bytes
in each version; a run records the digest of the published files.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import tempfile
from pathlib import Path
from typing import Any

from clients.datasets.data_set import HubFiles
from clients.datasets.files.tables import imported
from ledger.protocol.errors import ConfigurationError

MAX_BYTES = 16 * 2**30
MAX_FILES = 1000
ENDPOINT_VARIABLE = "HF_ENDPOINT"

_TIMEOUT_SECONDS = 30


def fetch(source: HubFiles, destination: Path) -> tuple[Path, ...]:
    """Download a data set's files into a new folder, all of them or nothing.

    The hub is that of HF_ENDPOINT, if it is set; no token is sent.
    """
    if destination.exists():
        raise ConfigurationError(f"{destination} is there already")
    hub = imported("huggingface_hub", "fetch", "downloads")
    errors = imported("huggingface_hub.errors", "fetch", "downloads")
    destination.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=destination.parent, prefix=".fetch-") as folder:
        try:
            fetched = _downloaded(hub, source, Path(folder))
        except (errors.HTTPError, OSError, ValueError) as error:
            reason = " ".join(str(error).split())[:300] or type(error).__name__
            raise ConfigurationError(f"{source.repository} cannot be fetched: {reason}") from error
        whole = Path(folder) / "whole"
        whole.mkdir()
        for file in fetched:
            shutil.move(file, whole / file.name)
        whole.rename(destination)
    return tuple(sorted(destination.iterdir()))


def _downloaded(hub: Any, source: HubFiles, folder: Path) -> list[Path]:
    endpoint = os.environ.get(ENDPOINT_VARIABLE) or None
    commit, files = _listed(hub.HfApi(endpoint=endpoint, token=False), source)
    fetched: list[Path] = []
    for file in files:
        path = hub.hf_hub_download(
            source.repository,
            file.rfilename,
            repo_type="dataset",
            revision=commit,
            local_dir=folder / "parts",
            token=False,
            endpoint=endpoint,
        )
        _require_as_stated(Path(path), file)
        fetched.append(Path(path))
    return fetched


def _listed(api: Any, source: HubFiles) -> tuple[str, list[Any]]:
    for revision, pattern in source.places:
        info = api.dataset_info(
            source.repository, revision=revision, files_metadata=True, timeout=_TIMEOUT_SECONDS
        )
        files = [file for file in info.siblings or () if re.fullmatch(pattern, file.rfilename)]
        total = sum(file.size or 0 for file in files)
        if total > MAX_BYTES or len(files) > MAX_FILES:
            raise ConfigurationError(
                f"{source.repository}: {len(files)} files of {total} bytes, more than {MAX_FILES} "
                f"files or {MAX_BYTES} bytes"
            )
        if files:
            return info.sha, files
    patterns = " or ".join(pattern for _, pattern in source.places)
    raise ConfigurationError(f"{source.repository}: the hub has no file {patterns}")


def _require_as_stated(path: Path, file: Any) -> None:
    size = path.stat().st_size
    if file.size is not None and size != file.size:
        raise ConfigurationError(f"{file.rfilename}: {size} bytes came, {file.size} are stated")
    if file.lfs is None:
        return
    with path.open("rb") as content:
        digest = hashlib.file_digest(content, "sha256").hexdigest()
    if digest != file.lfs.sha256:
        raise ConfigurationError(
            f"{file.rfilename}: sha256 {digest} came, {file.lfs.sha256} is stated"
        )
