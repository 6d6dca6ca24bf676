"""Locations that a history is read from: the chain, the manifests and the blobs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from pathlib import Path


class HistoryLocations(Protocol):
    """Locations that a service reads: a home, perhaps with a node instead of its chain file."""

    @property
    def chain_file(self) -> Path:
        """The embedded chain."""

    @property
    def blob_folder(self) -> Path:
        """The content-addressed store."""

    @property
    def runs(self) -> Path:
        """The folder with one folder per run."""

    @property
    def manifests(self) -> tuple[Path, ...]:
        """Manifests in addition to those of the home's runs."""

    @property
    def rpc_url(self) -> str | None:
        """A node to read instead of the embedded chain."""

    @property
    def chain_id(self) -> int | None:
        """The chain that the node must serve; None without a node."""

    @property
    def largest_blob_bytes(self) -> int:
        """The largest blob that is served."""

    @property
    def rpc_timeout_seconds(self) -> float:
        """Timeout for one answer of the node."""
