"""What a reader of an index need not read twice."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from ledger.index.errors import IndexDamagedError
from ledger.index.packing import unpack_fixed
from ledger.index.reading import registry_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sqlalchemy import Connection

    from ledger.protocol.ledger_state import Deployment
    from ledger.protocol.types import RegisteredClient

_Registry: TypeAlias = "tuple[tuple[int, ...], tuple[RegisteredClient, ...]]"


@dataclass(slots=True)
class Remembered:
    """What was read of deployments, by all that can change it; safe to share between threads."""

    _fixed: dict[bytes, Deployment] = field(default_factory=dict)
    _registries: dict[tuple[bytes, bytes], _Registry] = field(default_factory=dict)

    def fixed(self, row: Mapping[str, Any]) -> Deployment:
        """Return what was fixed at deployment.

        Args:
            row: of the deployment.
        """
        packed = row["fixed"]
        if packed not in self._fixed:
            self._fixed[packed] = unpack_fixed(packed)
        return self._fixed[packed]

    def registry(
        self, connection: Connection, row: Mapping[str, Any]
    ) -> tuple[RegisteredClient, ...]:
        """Return the clients of a deployment, with bans.

        Args:
            connection: to the index.
            row: of the deployment.

        Raises:
            IndexDamagedError: they are fewer or more than the row says.
        """
        name = row["genesis"], row["address"]
        state = row["registered"], row["banned"], row["rewinds"]
        known = self._registries.get(name)
        if known is None or known[0] != state:
            registry = registry_of(connection, row["id"])
            if len(registry) != row["registered"]:
                raise IndexDamagedError(
                    f"the index holds {len(registry)} clients where {row['registered']} are "
                    "registered: drop it and build it again"
                )
            known = self._registries[name] = state, registry
        return known[1]
