"""A remote service: its status, its chains and its deployments."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from api.client.connection import TIMEOUT_SECONDS, Connection
from api.client.deployment import RemoteDeployment
from api.schemas.service import StatusAnswer
from ledger.chain.addresses import eip55
from ledger.history.answers import ChainsAnswer, DeploymentsAnswer
from ledger.history.queries import CHAIN_NAME
from ledger.protocol.errors import ServiceError


class Service:
    """A service behind a URL; close it with `close`, or use it in a `with`.

    Args:
        url: http or https, without `/v1`.
        token: bearer token; None for none.
    """

    def __init__(
        self, url: str, token: str | None = None, timeout_seconds: float = TIMEOUT_SECONDS
    ) -> None:
        self.connection = Connection(url, token, timeout_seconds)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the connections."""
        self.close()

    def close(self) -> None:
        self.connection.close()

    def status(self) -> StatusAnswer:
        """Return the chain's head, the status of each deployment, and versions."""
        return self.connection.read(StatusAnswer, "/v1/status")

    def chains(self) -> ChainsAnswer:
        """Return the chains of the service."""
        answer = self.connection.read(ChainsAnswer, "/v1/chains")
        for chain in answer["chains"]:
            _path(chain["name"])  # rejects a name that must not get into a path
        return answer

    def deployments(self, chain: str) -> DeploymentsAnswer:
        """Return the deployments on a chain, given by its name."""
        return self.connection.read(DeploymentsAnswer, f"{_path(chain)}/deployments")

    def deployment(self, chain: str, address: str) -> RemoteDeployment:
        """Return one deployment, without a request, by its chain's name and its address."""
        return RemoteDeployment(self.connection, _path(chain), eip55(address))


def _path(chain: str) -> str:
    if CHAIN_NAME.fullmatch(chain) is None:
        raise ServiceError(f"{chain!r:.120} is no chain's name: its id and 8 hex digits are")
    return f"/v1/chains/{chain}"
