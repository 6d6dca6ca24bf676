"""Requirements of the contract on a chain, checked by calls that cost nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any, TypeAlias

from ledger.chain.rpc import wire
from ledger.protocol.errors import ChainError

Call: TypeAlias = "Callable[[bytes, int], bytes]"
"""Runs code, without a contract, after the block with a number; raises RpcFault if it fails."""

MIN_BLOCK_GAS = 12_000_000

_STOP = bytes.fromhex("00")
_CANCUN = bytes.fromhex("5f5c5f5f5f5e00")  # PUSH0 TLOAD PUSH0 PUSH0 PUSH0 MCOPY STOP
_NUMBER = bytes.fromhex("435f5260205ff3")  # returns block.number
# Returns a zero byte and blockhash(block.number - 1). A node may run code without a contract as a
# creation, and a creation fails if its answer begins with 0xEF (EIP-3541).
_PARENT_HASH = bytes.fromhex("600143034060015260215ff3")
_ATTEMPTS = 2


class Requirement(StrEnum):
    """Names of the requirements."""

    BASE_FEE = "base-fee"
    BLOCK_GAS = "block-gas"
    CANCUN = "cancun"
    BLOCK_NUMBER = "block-number"
    BLOCK_HASH = "block-hash"
    """Only a run with `protocol.beacon = block` has it."""


class UnsuitableChainError(ChainError):
    """The chain cannot run the contract."""

    def __init__(self, node: str | None, unmet: Mapping[Requirement, str]) -> None:
        self.unmet = dict(unmet)
        found = "; ".join(f"{name}: {sentence}" for name, sentence in unmet.items())
        super().__init__(
            f"{node or 'the chain'} cannot run the contract: {found}. Nothing was sent; use "
            f"another chain, docs/chains.md lists the requirements"
        )


def unmet_requirements(block: Mapping[str, Any], call: Call) -> dict[Requirement, str]:
    """Return the requirements that a chain does not meet, each with a sentence."""
    unmet: dict[Requirement, str] = {}
    if block.get("baseFeePerGas") is None:
        unmet[Requirement.BASE_FEE] = "its blocks have no base fee (EIP-1559)"
    limit = block.get("gasLimit")
    if limit is not None and (gas := wire.quantity(limit)) < MIN_BLOCK_GAS:
        unmet[Requirement.BLOCK_GAS] = (
            f"a block takes {gas:,} gas, and the contract needs {MIN_BLOCK_GAS:,}"
        )
    number = wire.quantity(block.get("number"))
    if not _runs(call, _STOP, number):
        return unmet  # this node runs no code without a contract, so nothing follows
    # A node that fails for another reason, say one of several that lags, fails the control too.
    if all(
        not _runs(call, _CANCUN, number) and _runs(call, _STOP, number) for _ in range(_ATTEMPTS)
    ):
        unmet[Requirement.CANCUN] = (
            "its EVM is older than the Cancun fork (PUSH0, TLOAD and MCOPY fail)"
        )
        return unmet
    seen = int.from_bytes(call(_NUMBER, number), "big")
    # Some nodes run a call as part of the next block.
    if seen not in {number, number + 1}:
        unmet[Requirement.BLOCK_NUMBER] = (
            f"block.number is {seen} in block {number}, as on Arbitrum, and the contract counts "
            f"its windows and deadlines by it"
        )
    known = {b"\0" + wire.data(block.get(name), 32) for name in ("parentHash", "hash")}
    if call(_PARENT_HASH, number) not in known:
        unmet[Requirement.BLOCK_HASH] = (
            "blockhash() is not the hash that the node gives a block, so protocol.beacon must be "
            "none"
        )
    return unmet


def _runs(call: Call, code: bytes, number: int) -> bool:
    """Return whether code runs; raise RpcFault where the node limits requests."""
    try:
        call(code, number)
    except wire.RpcFault as fault:
        if fault.code == wire.LIMIT_EXCEEDED:
            raise
        return False
    return True
