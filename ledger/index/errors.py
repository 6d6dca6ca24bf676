"""What keeps an index from being read or written."""

from __future__ import annotations

from ledger.history.source import SourceUnusableError


class IndexStoreError(SourceUnusableError):
    """The index cannot be used; deleting it loses nothing, for it is built from the chain."""


class IndexMissingError(IndexStoreError):
    """There is no index at this place."""


class IndexSchemaError(IndexStoreError):
    """What is there is no index, or one of another version of this program."""


class IndexDamagedError(IndexStoreError):
    """The index contradicts itself, or its file is damaged."""


class IndexUnreachableError(IndexStoreError):
    """The file or the database server cannot be opened, is full, or does not answer."""


class IndexBusyError(IndexStoreError):
    """Another process writes to the index, and did not come to an end in time."""


class IndexStaleError(IndexStoreError):
    """What the index holds was right, and is to be read again."""


class NotIndexedError(IndexStoreError):
    """The index holds nothing of this deployment: another chain's, or it is not read yet."""
