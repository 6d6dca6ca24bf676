"""The service that a command reads instead of a home, and the deployment on it."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from cmfl.access.defaults import API_TOKEN_VARIABLE
from ledger.protocol.errors import ConfigurationError

if TYPE_CHECKING:
    from api.client.deployment import RemoteDeployment
    from api.client.service import Service
    from ledger.storage.blobs import BlobReader

API_SECONDS = 60
MAX_TOKEN_BYTES = 1_000
MOST_FAILURES = 5
_MOST_NAMED = 20


@dataclass(frozen=True, slots=True)
class RemoteService:
    """A service by its URL, without `/v1`; the timeout is for one answer or one blob."""

    url: str
    token: str | None = field(default=None, repr=False)
    timeout_seconds: float = API_SECONDS

    @staticmethod
    def of(
        url: str | None, token_file: Path | None = None, timeout_seconds: float = API_SECONDS
    ) -> RemoteService | None:
        """Return the service of --api, --api-token-file and --api-timeout; None without --api."""
        return None if url is None else RemoteService(url, _token(token_file), timeout_seconds)

    def service(self) -> Service:
        """Return a client of the service, without a request."""
        from api.client.service import Service

        return Service(self.url, self.token, self.timeout_seconds)

    def blobs(self) -> BlobReader:
        """Return its blobs, each of which is checked against its digest."""
        from ledger.storage.blobs import ObjectBlobs
        from ledger.storage.http import static_server

        url = f"{self.url.rstrip('/')}/v1/blobs"
        return ObjectBlobs(static_server(url, self.timeout_seconds, self.token, MOST_FAILURES))


def deployment_at(
    service: Service, chain_id: int | None, address: str | None, run: str | None
) -> RemoteDeployment:
    """Return the deployment that options name, or the only one."""
    chain = chain_at(service, chain_id)
    if address is not None:
        return service.deployment(chain, address)
    served = service.deployments(chain)["deployments"]
    named = [f"{deployment['run']} at {deployment['address']}" for deployment in served]
    meant = [each["address"] for each in served if run in {None, each["run"]}]
    return service.deployment(chain, _only(meant, named, "run by --run"))


def chain_at(service: Service, chain_id: int | None) -> str:
    """Return the name of the chain that options name, or of the only one."""
    chains = service.chains()["chains"]
    meant = [chain["name"] for chain in chains if chain_id in {None, int(chain["chain_id"])}]
    return _only(meant, [chain["name"] for chain in chains], "chain by --chain-id")


def _only(meant: list[str], served: list[str], what: str) -> str:
    """Return the only match."""
    if len(meant) == 1:
        return meant[0]
    named = ", ".join(served[:_MOST_NAMED]) or "nothing"
    raise ConfigurationError(f"name one {what}; the service at --api serves {named}")


def _token(file: Path | None) -> str | None:
    """Return the token in a file, or else in the environment."""
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
