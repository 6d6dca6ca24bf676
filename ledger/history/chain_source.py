"""The chain that a service reads: opened when it is first needed, and again when it is replaced."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from ledger.chain.embedded.reader import EmbeddedReader
from ledger.chain.ports import ChainUnreachableError
from ledger.chain.rpc.reader import RpcReader, RpcSettings

if TYPE_CHECKING:
    from api.settings import Settings
    from ledger.chain.ports import ChainReader


class ChainSource:
    """Opens the chain read-only; safe to share between threads.

    The service may start before the chain exists, and a home may be made anew under it: a file
    is known by device and inode, and another one is opened as another chain.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._chain: ChainReader | None = None
        self._identity: tuple[int, int] | None = None

    def chain(self) -> ChainReader:
        """Return the open chain, the same object as long as it is the same chain.

        Raises:
            ChainError: it is not there, damaged, another one, or unreachable.
        """
        identity = self._identify()
        with self._lock:
            if self._chain is None or identity != self._identity:
                self._close()
                self._chain, self._identity = self._open(), identity
            return self._chain

    def close(self) -> None:
        """Give back the file or the connections."""
        with self._lock:
            self._close()

    def _identify(self) -> tuple[int, int] | None:
        if self._settings.rpc_url is not None:
            return None
        try:
            status = self._settings.chain_file.stat()
        except OSError as error:
            raise ChainUnreachableError(
                f"{self._settings.chain_file.name} cannot be opened: {error.strerror}"
            ) from error
        return status.st_dev, status.st_ino

    def _open(self) -> ChainReader:
        settings = self._settings
        if settings.rpc_url is None or settings.chain_id is None:
            return EmbeddedReader.open(settings.chain_file)
        patience = RpcSettings(request_timeout_seconds=settings.rpc_timeout_seconds)
        return RpcReader(settings.rpc_url, chain_id=settings.chain_id, settings=patience)

    def _close(self) -> None:
        if self._chain is not None:
            self._chain.close()
        self._chain = None
