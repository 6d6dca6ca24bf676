"""The store under uvicorn, for the command line and for tests."""

from __future__ import annotations

import ipaddress
import secrets
import socket
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from urllib.parse import urlsplit

import uvicorn

from api.http.bounded_server import bounded_server, run_server
from api.sockets import listening_socket, url_of
from api.store.app import create_store
from api.store.charges import other_charges
from api.store.retention import PinnedBlobs
from api.store.store_settings import StoreSettings
from ledger.chain.contract.committee_ledger import CommitteeLedger
from ledger.io.folder_lock import sole_process
from ledger.io.http import base_url
from ledger.protocol.errors import BlobError, ConfigurationError
from ledger.storage.http import require_plain_url
from ledger.storage.mailbox import EPOCH_BYTES


def serve(
    settings: StoreSettings,
    ledger: CommitteeLedger,
    host: str,
    port: int,
    on_listening: Callable[[str], None] | None = None,
    pinned: PinnedBlobs | None = None,
) -> None:
    """Answer requests until the process is stopped.

    Args:
        settings: the store's folder and bounds; the folder is made if need be. Without public
            URLs the store is known by the address that it listens on.
        ledger: the contract whose clients may write.
        port: 0 takes a free one.
        pinned: returns the blobs of other runs in the folder; None if they are unknown.
    """
    with listening_socket(host, port) as listener:
        urls = resolve_public_urls(settings.public_urls, host, listener)
        settings = settings.model_copy(update={"public_urls": urls})
        with lock_store_folder(settings.folder):
            if pinned is None:
                _require_no_other_contract(settings, ledger)
            server = server_for(settings, ledger, pinned or frozenset)
            run_server(server, listener, on_listening)


def server_for(
    settings: StoreSettings, ledger: CommitteeLedger, pinned: PinnedBlobs = frozenset
) -> uvicorn.Server:
    """Return a server that has not started, with bounds on connections; see `create_store`."""
    epoch = secrets.token_bytes(EPOCH_BYTES)
    names = {urlsplit(url).hostname or "" for url in settings.public_urls}
    return bounded_server(create_store(settings, ledger, epoch, pinned=pinned), names)


def resolve_public_urls(
    public_urls: Sequence[str], host: str, listener: socket.socket
) -> tuple[str, ...]:
    """Return the URLs under which clients know a store, and which they sign with their uploads.

    Args:
        public_urls: of the owner; behind a proxy, the proxy's.
    """
    address, port = listener.getsockname()[:2]
    if not public_urls and ipaddress.ip_address(address).is_unspecified:
        raise ConfigurationError(
            f"--host {host} is every address of this machine, and an upload is signed for one "
            f"place: give --public-url, the URL that clients are given"
        )
    bracketed = f"[{host}]" if ":" in host else host
    urls = public_urls or (f"http://{bracketed}:{port}", url_of(listener))
    return tuple(dict.fromkeys(map(_public_url, urls)))


def _public_url(url: str) -> str:
    try:
        require_plain_url("--public-url", url)
        return base_url(url)
    except ValueError as error:
        raise ConfigurationError(f"--public-url {url!r}: {error}") from error
    except BlobError as error:
        raise ConfigurationError(str(error)) from error


def _require_no_other_contract(settings: StoreSettings, ledger: CommitteeLedger) -> None:
    """Refuse retention in a folder that was another contract's store, too.

    A client could put the other contract's models once more, and would have them removed with its
    own old round.
    """
    others = other_charges(settings.folder, ledger.domain())
    if settings.keep_rounds is not None and others:
        raise ConfigurationError(
            f"--folder {settings.folder} has {others[0].name}, of another contract, whose blobs "
            f"are unknown: use --keep-rounds with a folder of one contract, or with a home"
        )


def lock_store_folder(folder: Path) -> AbstractContextManager[None]:
    """Hold a folder, which is made if need be, for one store, since one counts the charges."""
    return sole_process(folder, "store.lock")
