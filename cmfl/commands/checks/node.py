"""Checks of a node and of the paying account."""

from __future__ import annotations

from pathlib import Path

from cmfl.commands.checks.check import Check
from cmfl.commands.options import KEY_VARIABLE
from cmfl.commands.sender import environment_address, in_ether, keystore_address, read_keystore
from cmfl.where import Target
from ledger.protocol.errors import CmflError


def node_checks(where: Target, keystore: Path | None) -> list[Check]:
    """Return the checks of a node and of the sender's key, as far as one is named.

    Args:
        where: names the node, or none.
        keystore: the sender's encrypted key; None for the one in the environment.
    """
    listed: list[Check] = []
    if where.rpc_url is not None:
        listed.append(("node", lambda: _node(where)))
    if where.rpc_url is not None or keystore is not None:
        listed.append(("account", lambda: _account(where, keystore)))
    return listed


def _node(where: Target) -> str:
    from ledger.chain.rpc.node import Requirement

    with where.node_reader() as node:
        head = node.head()
        node.require_suitable(needs_block_hash=False)
        note = node.unmet_requirements().get(Requirement.BLOCK_HASH)
    found = f"chain {node.chain_id}, block {head.number}, 0x{head.hash.hex()}"
    return found if note is None else f"{found}; {note}"


def _account(where: Target, keystore: Path | None) -> str:
    address, source = _address(keystore)
    if address is None:
        return source
    if where.rpc_url is None:
        return f"{address} of {source}"
    with where.node_reader() as node:
        balance = node.balance_of(address)
    if balance == 0:
        raise CmflError(
            f"{address} of {source} has 0 ETH on chain {node.chain_id}: send it some, unless gas "
            f"costs nothing there"
        )
    return f"{address} of {source} has {in_ether(balance)}"


def _address(keystore: Path | None) -> tuple[str | None, str]:
    """Return the sender's address and where it is from, or None and why it is not known."""
    if keystore is not None:
        address = keystore_address(read_keystore(keystore))
        unnamed = f"{keystore} does not name its account; only its password shows it"
        return address, unnamed if address is None else str(keystore)
    address = environment_address()
    missing = f"none: to write there, give --keystore or set {KEY_VARIABLE}"
    return address, missing if address is None else f"the variable {KEY_VARIABLE}"
