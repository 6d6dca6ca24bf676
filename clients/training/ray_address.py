"""Looks for a Ray cluster before anything is deployed for it.

Ray itself tries an address at which nobody answers for several minutes, and says little.
"""

from __future__ import annotations

import importlib.util
import re
import socket

from ledger.protocol.errors import ConfigurationError

LOCAL = "local"
"""The address of a cluster that begins and ends with its user."""

_FOUND_BY_RAY = frozenset({LOCAL, "auto"})
_ADDRESS = re.compile(r"(?:ray://)?(?P<host>\[[0-9A-Fa-f:.]+\]|[^\s:/\[\]]+):(?P<port>[0-9]{1,5})")
_MOST_PORT = 2**16 - 1
_PATIENCE_SECONDS = 10.0


def require_reachable(address: str) -> None:
    """Refuse a cluster that cannot be joined.

    Args:
        address: HOST:PORT of a running cluster, "auto" for the one that this machine is part of,
            or "local".

    Raises:
        ConfigurationError: Ray is not installed, the address is none, or nobody listens there.
    """
    if importlib.util.find_spec("ray") is None:
        raise ConfigurationError(
            "machine.engine = ray needs the extra 'ray': pip install -c constraints.txt '.[ray]'"
        )
    if address in _FOUND_BY_RAY:
        return
    found = _ADDRESS.fullmatch(address)
    if found is None or not 1 <= int(found["port"]) <= _MOST_PORT:
        raise ConfigurationError(
            f"machine.ray_address = {address}: must be HOST:PORT of a cluster's head, auto or local"
        )
    try:
        where = found["host"].strip("[]"), int(found["port"])
        socket.create_connection(where, _PATIENCE_SECONDS).close()
    except (OSError, UnicodeError) as error:  # a name that is none fails to be encoded
        raise ConfigurationError(
            f"machine.ray_address = {address}: no cluster answers there: {error}"
        ) from error
