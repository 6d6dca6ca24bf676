"""Verification of a contract's runtime code: the artefact, followed by the immutables."""

from __future__ import annotations

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


def _immutables(deployment: Deployment, domain: Domain) -> bytes:
    """Return the words that Vyper appends to the runtime code, one for each immutable."""
    d = deployment
    numbers = (d.clients, d.trainers, d.members, d.aggregation_ppm, int(d.form), d.rounds)
    times = (d.commit_blocks, d.deadline_blocks, d.replies)
    types = ["bytes32"] * 4 + ["uint256"] * len(numbers + times) + ["bool", "bytes32"]
    values = (domain_separator(domain), domain.salt, d.config, d.registry, *numbers, *times)
    return encode(types, [*values, d.beacon is Beacon.BLOCK, d.model])
