"""Kinds of nodes and stores that a test network can use."""

from __future__ import annotations

from enum import StrEnum


class ChainKind(StrEnum):
    """Kind of the node."""

    EMBEDDED = "embedded"
    ANVIL = "anvil"


class StoreKind(StrEnum):
    """Kind of the store of blobs and mail."""

    FOLDER = "folder"
    SERVED = "served"
