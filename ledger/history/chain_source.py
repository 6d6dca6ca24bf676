"""The chain of a service: opened when it is first needed, and again when it is replaced."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from ledger.chain.embedded.embedded_reader import EmbeddedReader
from ledger.chain.ports import ChainUnreachableError
from ledger.chain.rpc.rpc_reader import RpcReader, RpcSettings

if TYPE_CHECKING:
    from ledger.chain.ports import ChainReader
    from ledger.history.locations import HistoryLocations


class ChainSource:
    """Opens the chain read-only; safe to share between threads.

    A service may start before the chain exists, and its home may be replaced: device and inode
    identify a chain file, and another file is opened as another chain.
    """

    def __init__(self, locations: HistoryLocations) -> None:
        self._locations = locations
        self._lock = threading.Lock()
        self._chain: ChainReader | None = None
        self._identity: tuple[int, int] | None = None
        self._opened = 0

    def chain(self) -> tuple[ChainReader, int]:
        """Return the open chain, and its number: a replaced chain has another.

        Raises:
            ChainError: it is missing, damaged, of another id, or unreachable.
        """
        identity = self._identify()
        with self._lock:
            if self._chain is None or identity != self._identity:
                self._close()
                self._chain, self._identity = self._open(), identity
                self._opened += 1
            return self._chain, self._opened

    def current(self) -> tuple[ChainReader, int] | None:
        """Return the chain and its number without opening it; None if it was closed or replaced."""
        if not self._lock.acquire(blocking=False):
            return None
        try:
            is_same = self._identify() == self._identity
        except ChainUnreachableError:
            is_same = False
        finally:
            chain, opened = self._chain, self._opened
            self._lock.release()
        return (chain, opened) if is_same and chain is not None else None

    def close(self) -> None:
        """Close the file or the connections."""
        with self._lock:
            self._close()

    def _identify(self) -> tuple[int, int] | None:
        if self._locations.rpc_url is not None:
            return None
        try:
            status = self._locations.chain_file.stat()
        except OSError as error:
            raise ChainUnreachableError(
                f"{self._locations.chain_file.name} cannot be opened: {error.strerror}"
            ) from error
        return status.st_dev, status.st_ino

    def _open(self) -> ChainReader:
        locations = self._locations
        if locations.rpc_url is None or locations.chain_id is None:
            return EmbeddedReader.open(locations.chain_file)
        settings = RpcSettings(request_timeout_seconds=locations.rpc_timeout_seconds)
        return RpcReader(locations.rpc_url, chain_id=locations.chain_id, settings=settings)

    def _close(self) -> None:
        if self._chain is not None:
            self._chain.close()
        self._chain = None
