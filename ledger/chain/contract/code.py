"""A contract's code: its constructor's values, and the artefact followed by the immutables."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING

from eth_abi.abi import encode

from ledger.chain.contract import abi
from ledger.protocol.signing import domain_separator
from ledger.protocol.types import Beacon

if TYPE_CHECKING:
    from ledger.protocol.ledger_state import Deployment
    from ledger.protocol.types import Domain


def code_violation(code: bytes, deployment: Deployment, domain: Domain) -> str | None:
    """Return why runtime code is not this deployment's; None if it is."""
    runtime = abi.artifact().runtime
    if not code:
        return "there is no code"
    if not code.startswith(runtime):
        return "it is not the artefact's"
    if code[len(runtime) :] != _immutables(deployment, domain):
        return "its immutables are not those of this deployment"
    return None


def constructor_values(deployment: Deployment) -> tuple[bytes | int, ...]:
    """Return the fields of the constructor's struct, in its order, which is the deployment's."""
    values = (getattr(deployment, field.name) for field in fields(deployment))
    return tuple(value is Beacon.BLOCK if isinstance(value, Beacon) else value for value in values)


def _immutables(deployment: Deployment, domain: Domain) -> bytes:
    """Return the words that Vyper appends to the runtime code, one for each immutable."""
    values = [domain_separator(domain), domain.salt, *constructor_values(deployment)]
    types = ["bytes32" if isinstance(value, bytes) else "uint256" for value in values]
    return encode(types, [value if isinstance(value, bytes) else int(value) for value in values])
