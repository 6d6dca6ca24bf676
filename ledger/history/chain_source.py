"""The chain that is read: opened when it is first needed, and again when it is replaced."""

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

    A service may start before the chain exists, and a home may be made anew under it: a file
    is known by device and inode, and another one is opened as another chain.
    """

    def __init__(self, places: HistoryLocations) -> None:
        self._places = places
        self._lock = threading.Lock()
        self._chain: ChainReader | None = None
        self._identity: tuple[int, int] | None = None
        self._opened = 0

    def chain(self) -> tuple[ChainReader, int]:
        """Return the open chain, the same object as long as it is the same chain.

        Returns:
            The chain, and how many have been opened so far: another number, another chain.

        Raises:
            ChainError: it is not there, damaged, another one, or unreachable.
        """
        identity = self._identify()
        with self._lock:
            if self._chain is None or identity != self._identity:
                self._close()
                self._chain, self._identity = self._open(), identity
                self._opened += 1
            return self._chain, self._opened

    def known(self) -> tuple[ChainReader, int] | None:
        """Return the open chain if it is open and still the same, at once; else None."""
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
        """Give back the file or the connections."""
        with self._lock:
            self._close()

    def _identify(self) -> tuple[int, int] | None:
        if self._places.rpc_url is not None:
            return None
        try:
            status = self._places.chain_file.stat()
        except OSError as error:
            raise ChainUnreachableError(
                f"{self._places.chain_file.name} cannot be opened: {error.strerror}"
            ) from error
        return status.st_dev, status.st_ino

    def _open(self) -> ChainReader:
        places = self._places
        if places.rpc_url is None or places.chain_id is None:
            return EmbeddedReader.open(places.chain_file)
        patience = RpcSettings(request_timeout_seconds=places.rpc_timeout_seconds)
        return RpcReader(places.rpc_url, chain_id=places.chain_id, settings=patience)

    def _close(self) -> None:
        if self._chain is not None:
            self._chain.close()
        self._chain = None
