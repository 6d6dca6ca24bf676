"""Which node a federation meets on, and where its blobs and mail are."""

from __future__ import annotations

from enum import StrEnum


class ChainKind(StrEnum):
    """Which node the federation meets on."""

    EMBEDDED = "embedded"
    ANVIL = "anvil"


class StoreKind(StrEnum):
    """Where blobs and mail are."""

    FOLDER = "folder"
    SERVED = "served"
