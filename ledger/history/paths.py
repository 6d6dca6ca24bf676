"""URL paths of a chain, a deployment, a round and a client.

A contract has the same address in every fresh home, so an address alone is no name: every path
holds the chain's id and the beginning of its block 0's hash. An answer that was cached for one
chain is never shown for another.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

ROUND_PARTS = ("updates", "scores", "votes", "committee", "aggregation", "explanation")
CHAIN_NAME = re.compile(r"(0|[1-9][0-9]{0,77})-[0-9a-f]{8}")


@dataclass(frozen=True, slots=True)
class ChainPath:
    """The path of a chain, by its id and the hash of its block 0."""

    chain_id: int
    genesis: bytes

    @property
    def name(self) -> str:
        return f"{self.chain_id}-{self.genesis[:4].hex()}"

    def __str__(self) -> str:
        return f"/v1/chains/{self.name}"


@dataclass(frozen=True, slots=True)
class DeploymentPath:
    """The path of a deployment and of its parts; the address is EIP-55."""

    chain: ChainPath
    address: str

    def __str__(self) -> str:
        return f"{self.chain}/deployments/{self.address}"

    def links(self) -> dict[str, str]:
        """Return the paths of its parts, by name."""
        parts = ("rounds", "clients", "evidence", "series", "events", "verifications")
        return {"self": str(self)} | {part: f"{self}/{part}" for part in parts}

    def round_links(self, number: int) -> dict[str, str]:
        """Return the paths of a round and its parts, by name."""
        path = f"{self}/rounds/{number}"
        return {"self": path} | {part: f"{path}/{part}" for part in ROUND_PARTS}

    def client_links(self, client: int) -> dict[str, str]:
        """Return the paths of a client and its rounds, by name."""
        path = f"{self}/clients/{client}"
        return {"self": path, "rounds": f"{path}/rounds"}
