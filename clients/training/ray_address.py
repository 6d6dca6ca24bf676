"""A check that a Ray cluster can be reached, before anything is deployed for it.

Ray itself tries an unreachable address for several minutes, with little explanation.
"""

from __future__ import annotations

import re
import socket

from ledger.io.extras import require_extra
from ledger.protocol.errors import ConfigurationError

LOCAL = "local"
"""Address of a cluster that starts and ends with its user."""

_RESOLVED_BY_RAY = frozenset({LOCAL, "auto"})
_ADDRESS = re.compile(r"(?:ray://)?(?P<host>\[[0-9A-Fa-f:.]+\]|[^\s:/\[\]]+):(?P<port>[0-9]{1,5})")
_MAX_PORT = 2**16 - 1
_TIMEOUT_SECONDS = 10.0


def require_reachable(address: str) -> None:
    """Reject a cluster that cannot be joined.

    Args:
        address: HOST:PORT of a running cluster, "auto" for this machine's own, or "local".
    """
    require_extra("ray", "machine.engine = ray needs")
    if address in _RESOLVED_BY_RAY:
        return
    match = _ADDRESS.fullmatch(address)
    if match is None or not 1 <= int(match["port"]) <= _MAX_PORT:
        raise ConfigurationError(
            f"machine.ray_address = {address}: must be HOST:PORT of a cluster's head, auto or local"
        )
    try:
        host_and_port = match["host"].strip("[]"), int(match["port"])
        socket.create_connection(host_and_port, _TIMEOUT_SECONDS).close()
    except (OSError, UnicodeError) as error:  # an invalid host name cannot be encoded
        raise ConfigurationError(
            f"machine.ray_address = {address}: no cluster answers there: {error}"
        ) from error
