"""Keccak-256 through pysha3 where it is installed: one call costs a tenth of pycryptodome's.

eth-hash takes pycryptodome first wherever both are there. Its `keccak` is one object that all
Ethereum libraries share, the EVM too, so what is chosen here is chosen for all of them.
"""

from __future__ import annotations

from eth_hash.auto import keccak
from eth_hash.main import Keccak256
from eth_hash.utils import get_backend_in_environment, load_backend

from ledger.protocol.errors import ConfigurationError

__all__ = ["keccak", "prefer_pysha3"]


def prefer_pysha3(shared: Keccak256) -> None:
    """Make pysha3 the backend of a hash, unless ETH_HASH_BACKEND names one."""
    if get_backend_in_environment():
        try:
            shared(b"")  # else eth-hash would say so in the midst of reading a chain
        except (ImportError, ValueError) as error:
            raise ConfigurationError(str(error)) from error
        return
    try:
        chosen = Keccak256(load_backend("pysha3"))
    except ImportError:
        return
    chosen(b"")  # on its first call eth-hash holds a backend against a known hash
    shared.hasher, shared.preimage = chosen.hasher, chosen.preimage


prefer_pysha3(keccak)
