"""Errors of reading or writing an index."""

from __future__ import annotations

import struct
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ledger.history.source import SourceUnusableError
from ledger.protocol.errors import EncodingError

if TYPE_CHECKING:
    from collections.abc import Iterator

_DAMAGE = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    EncodingError,
    LookupError,
    RecursionError,
    TypeError,
    ValueError,
    struct.error,
)
"""What values that no program has written make Python raise, wherever they are used."""


class IndexStoreError(SourceUnusableError):
    """The index cannot be used; deleting it loses nothing, for it is built from the chain."""


class IndexMissingError(IndexStoreError):
    """There is no index at this place."""


class IndexSchemaError(IndexStoreError):
    """There is no index, or one of another schema."""


class IndexDamagedError(IndexStoreError):
    """The index contradicts itself, or its file is damaged."""


class IndexUnreachableError(IndexStoreError):
    """The file or the database server cannot be opened, is full, or does not answer."""


class IndexBusyError(IndexStoreError):
    """Another process writes to the index, and did not finish in time."""


class IndexStaleError(IndexStoreError):
    """The index is out of date: a missing document has come."""


class FinalBlockChangedError(IndexStoreError):
    """The chain has taken back a block that was final: it is another chain, or an older copy."""


class NotIndexedError(IndexStoreError):
    """The index holds nothing of this deployment: another chain's, or it is not read yet."""


@contextmanager
def damage_translated() -> Iterator[None]:
    """Turn what damaged values raise into an `IndexDamagedError`.

    Raises:
        IndexDamagedError: something that was read from the index cannot be used.
    """
    try:
        yield
    except _DAMAGE as error:
        what = f"{type(error).__name__} {error}"
        raise IndexDamagedError(
            f"the index holds something that is nothing it has written ({what:.100}): run "
            "cmfl index rebuild"
        ) from error
