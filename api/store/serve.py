"""Running the store with uvicorn, for the command line and for tests."""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
from typing import TYPE_CHECKING

import uvicorn

from api.http.connections import WatchedConnection
from api.listening import MAX_CONCURRENT, MAX_HEADER_BYTES, listening_socket, url_of
from api.store.app import create_store
from api.store.charges import other_charges
from ledger.actors.mailboxes.page import EPOCH_BYTES
from ledger.protocol.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from api.store.retention import Others
    from api.store.settings import StoreSettings
    from ledger.chain.contract.committee_ledger import CommitteeLedger


def serve(
    settings: StoreSettings,
    ledger: CommitteeLedger,
    host: str,
    port: int,
    on_listening: Callable[[str], None] | None = None,
    others: Others | None = None,
) -> None:
    """Answer requests until the process is told to stop.

    Args:
        settings: the store's folder and bounds; the folder is made if need be.
        ledger: the contract whose clients may write.
        host: name or address to listen on.
        port: 0 takes a free one.
        on_listening: called with the store's URL once connections are accepted.
        others: returns the blobs of other runs in the folder; None if nobody can tell.

    Raises:
        ConfigurationError: another process serves the folder, it cannot be written, the address
            cannot be listened on, or what is old cannot be told from what another contract needs.
    """
    with serving_alone(settings.folder), listening_socket(host, port) as listener:
        if others is None:
            _require_no_other_contract(settings, ledger)
        server = server_for(settings, ledger, others or frozenset)
        if on_listening is not None:
            on_listening(url_of(listener))
        # The server ends in order on Ctrl-C, and then raises it once more.
        with contextlib.suppress(KeyboardInterrupt):
            server.run(sockets=[listener])


def server_for(
    settings: StoreSettings, ledger: CommitteeLedger, others: Others = frozenset
) -> uvicorn.Server:
    """Return a server that has not started yet, with bounds on what a client may hold.

    Args:
        settings: the store's folder, which must be there, and its bounds.
        ledger: the contract whose clients may write.
        others: returns the blobs of other runs in the folder.
    """
    return uvicorn.Server(
        uvicorn.Config(
            create_store(settings, ledger, secrets.token_bytes(EPOCH_BYTES), others=others),
            ws="none",
            http=WatchedConnection,
            log_level="warning",
            server_header=False,
            proxy_headers=False,
            limit_concurrency=MAX_CONCURRENT,
            h11_max_incomplete_event_size=MAX_HEADER_BYTES,
            timeout_graceful_shutdown=5,
        )
    )


def _require_no_other_contract(settings: StoreSettings, ledger: CommitteeLedger) -> None:
    """Refuse to remove what is old from a folder that was another contract's store, too.

    A client has only to put what is there already for it to be an old round's: it would have the
    models of the other contract removed.

    Raises:
        ConfigurationError: it was one.
    """
    others = other_charges(settings.folder, ledger.domain())
    if settings.keep_rounds is not None and others:
        raise ConfigurationError(
            f"--folder {settings.folder} has {others[0].name}, of another contract, and nobody can "
            f"tell what that needs: --keep-rounds is for a folder of one contract's own, or a home"
        )


@contextlib.contextmanager
def serving_alone(folder: Path) -> Iterator[None]:
    """Hold a folder for one store, since charges are counted by one.

    Args:
        folder: made if need be.

    Yields:
        Nothing.

    Raises:
        ConfigurationError: another process serves it, or it cannot be written.
    """
    try:
        folder.mkdir(exist_ok=True)
        descriptor = os.open(folder / "store.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise ConfigurationError(f"--folder {folder}: {error.strerror}") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(descriptor)
        raise ConfigurationError(f"--folder {folder}: another process serves it") from error
    try:
        yield
    finally:
        os.close(descriptor)
