"""A network of real processes on one machine: chain, store, service and workers.

Nothing here takes part in a round. Processes are started, watched, ended, and read from the chain.
"""

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
