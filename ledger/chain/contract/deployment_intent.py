"""The deployment intent: a file written before the contract's creation is sent.

It names the nonce of the creating transaction. On every fork an account has one transaction per
nonce. A process that was killed between that transaction and the manifest finds its contract by
the nonce, or sends the creation again with the same nonce: there can be no second contract.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from typing import Protocol

from ledger.chain.contract.manifest import read_fields, read_manifest
from ledger.chain.ports import ChainWriter, Receipt, Transaction, TransactionRefusedError
from ledger.io.home import Disk, Home, RunPaths
from ledger.protocol.encoding import sha256
from ledger.protocol.errors import ChainError

_FORMAT = 2
# An attempt fails when another sender with this key has used the nonce.
_ATTEMPTS = 4


class ReceiptLookup(Protocol):
    """The part of a chain that finds a contract by its intent."""

    @property
    def chain_id(self) -> int:
        """The chain's id."""

    @property
    def genesis_hash(self) -> bytes:
        """The hash of its block 0."""

    def receipt_of(self, sender: str, nonce: int) -> Receipt | None:
        """Return the receipt of an account's transaction; None until it is mined."""

    def transaction(self, transaction_hash: bytes) -> Transaction:
        """Return a mined transaction."""


@dataclass(frozen=True, slots=True)
class DeploymentIntent:
    """A started deployment.

    Attributes:
        genesis_hash: hash of its block 0, 0x-hex.
        deployer: sender of the creating transaction, EIP-55.
    """

    format: int
    chain_id: int
    genesis_hash: str
    deployer: str
    creation_sha256: str
    nonce: int


def create_once(
    chain: ChainWriter, creation: bytes, gas: int, paths: RunPaths, disk: Disk
) -> Receipt:
    """Create a run's contract exactly once, however often earlier attempts were interrupted."""
    if (intent := read_intent(paths)) is not None:
        receipt = _resume(chain, intent, creation, gas, paths)
        if receipt is not None:
            return receipt
    for _ in range(_ATTEMPTS - 1):
        nonce = _write(chain, creation, paths, disk)
        try:
            return chain.create_contract(creation, gas, nonce)
        except TransactionRefusedError:
            # Retry only if the nonce was used by another transaction.
            if chain.next_nonce() == nonce:
                raise
    return chain.create_contract(creation, gas, _write(chain, creation, paths, disk))


def earlier_creation(
    chain: ReceiptLookup, intent: DeploymentIntent, creation: bytes, paths: RunPaths
) -> Receipt | None:
    """Return the receipt of an earlier attempt's creation; None until it is mined."""
    _require_chain(chain, intent, paths)
    receipt = chain.receipt_of(intent.deployer, intent.nonce)
    if receipt is None or not _is_creation_of(chain, intent, receipt, paths):
        return None
    if intent.creation_sha256 != sha256(creation).hex():
        raise ChainError(
            f"run {paths.name!r} was being deployed with another configuration, as contract "
            f"{receipt.contract_address}: continue with that one, or use another name"
        )
    return receipt


def _resume(
    chain: ChainWriter, intent: DeploymentIntent, creation: bytes, gas: int, paths: RunPaths
) -> Receipt | None:
    """Return the creation of an earlier attempt; None if it can no longer be mined."""
    receipt = earlier_creation(chain, intent, creation, paths)
    if receipt is not None or chain.receipt_of(intent.deployer, intent.nonce) is not None:
        return receipt
    if (intent.deployer, intent.creation_sha256) != (chain.sender, sha256(creation).hex()):
        chain.wait_for_pending(intent.deployer)
        return earlier_creation(chain, intent, creation, paths)
    if intent.nonce > (expected := chain.next_nonce()):
        raise ChainError(
            f"run {paths.name!r} was being deployed by transaction {intent.nonce} of "
            f"{intent.deployer}, whose next one is {expected}: the node lags, or its chain was "
            f"taken back; wait, or remove {paths.intent} to deploy it anew"
        )
    try:
        return chain.create_contract(creation, gas, intent.nonce, again=True)
    except TransactionRefusedError:
        # The earlier attempt, or another transaction with its nonce, may just have been mined.
        if chain.receipt_of(intent.deployer, intent.nonce) is None:
            raise
        return earlier_creation(chain, intent, creation, paths)


def _write(chain: ChainWriter, creation: bytes, paths: RunPaths, disk: Disk) -> int:
    """Write the intent of a new attempt, and return its nonce."""
    intent = DeploymentIntent(
        format=_FORMAT,
        chain_id=chain.chain_id,
        genesis_hash=f"0x{chain.genesis_hash.hex()}",
        deployer=chain.sender,
        creation_sha256=sha256(creation).hex(),
        nonce=chain.next_nonce(),
    )
    text = json.dumps(asdict(intent), indent=1, sort_keys=True) + "\n"
    disk.write_whole(paths.intent, text.encode())
    return intent.nonce


def read_intent(paths: RunPaths) -> DeploymentIntent | None:
    """Return the intent of a run's started deployment; None if there is none."""
    if not paths.intent.exists():
        return None
    kinds: dict[str, type] = {field.name: str for field in fields(DeploymentIntent)}
    kinds |= {"format": int, "chain_id": int, "nonce": int}
    intent = DeploymentIntent(
        **read_fields(paths.intent, "deployment intent", "format", _FORMAT, kinds)
    )
    if len(intent.creation_sha256) != 64 or set(intent.creation_sha256) - set("0123456789abcdef"):
        raise ChainError(f"deployment intent {paths.intent}: creation_sha256 is not a digest")
    if intent.nonce < 0:
        raise ChainError(f"deployment intent {paths.intent}: nonce {intent.nonce} is below 0")
    return intent


def _require_chain(chain: ReceiptLookup, intent: DeploymentIntent, paths: RunPaths) -> None:
    genesis_hash = f"0x{chain.genesis_hash.hex()}"
    if (intent.chain_id, intent.genesis_hash) != (chain.chain_id, genesis_hash):
        raise ChainError(
            f"run {paths.name!r} was being deployed on chain {intent.chain_id} with genesis "
            f"{intent.genesis_hash}, not on {chain.chain_id} with {genesis_hash}: continue "
            f"there, or remove {paths.intent} to deploy it here"
        )


def _is_creation_of(
    chain: ReceiptLookup, intent: DeploymentIntent, receipt: Receipt, paths: RunPaths
) -> bool:
    """Return whether a transaction is the intended creation, and no other run has its contract.

    The nonce may have been used by something else if the creation was never sent.
    """
    if receipt.status != 1 or receipt.contract_address is None:
        return False
    sent = chain.transaction(receipt.transaction_hash)
    is_same = sha256(sent.input).hex() == intent.creation_sha256
    return is_same and receipt.contract_address not in _contracts_of_others(paths)


def _contracts_of_others(paths: RunPaths) -> frozenset[str]:
    others = [run for run in Home(paths.path.parent.parent).deployed() if run.path != paths.path]
    return frozenset(read_manifest(run.manifest).address for run in others)
