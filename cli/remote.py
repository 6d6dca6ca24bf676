"""A service that a command asks instead of a home: which one, and which deployment there."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cli.options import API_TOKEN_VARIABLE
from ledger.protocol.errors import ConfigurationError

if TYPE_CHECKING:
    from pathlib import Path

    from api.client.deployment import RemoteDeployment
    from api.client.service import Service
    from ledger.storage.blobs import BlobReader

API_SECONDS = 60
MAX_TOKEN_BYTES = 1_000
MOST_FAILURES = 5
_MOST_NAMED = 20


@dataclass(frozen=True, slots=True)
class RemoteService:
    """A service by its URL.

    Attributes:
        url: up to where `/v1` begins.
        token: that the service wants; None for none.
        timeout_seconds: for one answer, or one blob.
    """

    url: str
    token: str | None = field(default=None, repr=False)
    timeout_seconds: float = API_SECONDS

    @staticmethod
    def of(
        url: str | None, token_file: Path | None = None, timeout_seconds: float = API_SECONDS
    ) -> RemoteService | None:
        """Return the service that options name, None if they name none.

        Args:
            url: of --api.
            token_file: of --api-token-file.
            timeout_seconds: of --api-timeout.

        Raises:
            ConfigurationError: the token's file cannot be read.
        """
        return None if url is None else RemoteService(url, _token(token_file), timeout_seconds)

    def service(self) -> Service:
        """Return the service, of which nothing is asked yet."""
        from api.client.service import Service

        return Service(self.url, self.token, self.timeout_seconds)

    def blobs(self) -> BlobReader:
        """Return its blobs, each of which is compared with its digest here."""
        from ledger.storage.blobs import ObjectBlobs
        from ledger.storage.http import static_server

        url = f"{self.url.rstrip('/')}/v1/blobs"
        return ObjectBlobs(static_server(url, self.timeout_seconds, self.token, MOST_FAILURES))


def deployment_at(
    service: Service, chain_id: int | None, address: str | None, run: str | None
) -> RemoteDeployment:
    """Return the deployment that options name, or the only one.

    Args:
        service: that serves it.
        chain_id: of its chain; None for the only chain.
        address: of its contract; None for any.
        run: its name there; None for any.

    Raises:
        ConfigurationError: none or several are meant; names what is there.
        ServiceError: the service does not tell.
        ChainError: the address is none.
    """
    chain = chain_at(service, chain_id)
    if address is not None:
        return service.deployment(chain, address)
    served = service.deployments(chain)["deployments"]
    named = [f"{deployment['run']} at {deployment['address']}" for deployment in served]
    meant = [each["address"] for each in served if run in {None, each["run"]}]
    return service.deployment(chain, _only(meant, named, "run by --run"))


def chain_at(service: Service, chain_id: int | None) -> str:
    """Return the name of the chain that options name, or of the only one.

    Args:
        service: that serves it.
        chain_id: its id; None for the only chain.

    Raises:
        ConfigurationError: none or several are meant; names what is there.
        ServiceError: the service does not tell.
    """
    chains = service.chains()["chains"]
    meant = [chain["name"] for chain in chains if chain_id in {None, int(chain["chain_id"])}]
    return _only(meant, [chain["name"] for chain in chains], "chain by --chain-id")


def _only(meant: list[str], known: list[str], what: str) -> str:
    """Return the only one that is meant.

    Raises:
        ConfigurationError: there is none, or more than one.
    """
    if len(meant) == 1:
        return meant[0]
    named = ", ".join(known[:_MOST_NAMED]) or "nothing"
    raise ConfigurationError(f"name one {what}; the service at --api serves {named}")


def _token(file: Path | None) -> str | None:
    """Return the token in a file, or else in the environment.

    Raises:
        ConfigurationError: the file cannot be read, or holds none.
    """
    from ledger.io.home import read_file

    if file is None:
        return os.environ.get(API_TOKEN_VARIABLE) or None
    try:
        token = read_file(file, MAX_TOKEN_BYTES).decode("latin-1").strip()
    except OSError as error:
        raise ConfigurationError(f"--api-token-file {file}: {error.strerror}") from error
    if not 0 < len(token) <= MAX_TOKEN_BYTES:
        raise ConfigurationError(
            f"--api-token-file {file}: holds no token, which has 1 to {MAX_TOKEN_BYTES} characters"
        )
    return token
