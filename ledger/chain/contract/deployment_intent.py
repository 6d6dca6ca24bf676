"""What is about to be deployed: written before the contract's creation is sent.

It names the nonce of the transaction that creates the contract. An account's chain has one
transaction for each nonce, on whatever fork and in whatever block. So whoever is killed between
that transaction and the manifest finds his contract again by it, or sends the creation again with
the same nonce: a second contract cannot come of it, whatever has become of the first attempt.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Protocol

from ledger.chain.contract.manifest import read_fields, read_manifest
from ledger.chain.ports import TransactionRefusedError
from ledger.io.home import Home
from ledger.protocol.encoding import sha256
from ledger.protocol.errors import ChainError

if TYPE_CHECKING:
    from ledger.chain.ports import ChainWriter, Receipt, Transaction
    from ledger.io.home import Disk, RunPaths

_FORMAT = 2
# Each lost attempt means that another sender with this key has taken the nonce.
_ATTEMPTS = 4


class ReceiptLookup(Protocol):
    """What is asked of a chain to find a contract by its intent."""

    @property
    def chain_id(self) -> int:
        """The chain's id."""

    @property
    def genesis_hash(self) -> bytes:
        """The hash of its block 0."""

    def receipt_of(self, sender: str, nonce: int) -> Receipt | None:
        """Return the receipt of an account's transaction; None while no block holds it."""

    def transaction(self, transaction_hash: bytes) -> Transaction:
        """Return a transaction that a block holds."""


@dataclass(frozen=True, slots=True)
class DeploymentIntent:
    """A deployment that has been begun.

    Attributes:
        format: version of this file.
        chain_id: of the chain.
        genesis_hash: hash of its block 0, 0x-hex.
        deployer: whose transaction creates the contract, EIP-55.
        creation_sha256: of the creation code with its arguments.
        nonce: of that transaction.
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
    """Create a run's contract, or find that an earlier attempt has: once, however often it is cut.

    Args:
        chain: where to.
        creation: creation code and arguments.
        gas: the limit of gas.
        paths: of the run.
        disk: that the intent is written on.

    Returns:
        The receipt of the creation.

    Raises:
        TransactionRefusedError: the chain does not take the creation.
        ChainError: it was begun on another chain, another contract was created, or the chain's
            account does not have the nonces any more that came before.
    """
    if (begun := read_intent(paths)) is not None:
        receipt = _taken_up(chain, begun, creation, gas, paths)
        if receipt is not None:
            return receipt
    for _ in range(_ATTEMPTS - 1):
        nonce = _write(chain, creation, paths, disk)
        try:
            return chain.create_contract(creation, gas, nonce)
        except TransactionRefusedError:
            # With its nonce taken, ours never was; otherwise another nonce is no better.
            if chain.next_nonce() == nonce:
                raise
    return chain.create_contract(creation, gas, _write(chain, creation, paths, disk))


def earlier_creation(
    chain: ReceiptLookup, begun: DeploymentIntent, creation: bytes, paths: RunPaths
) -> Receipt | None:
    """Return the creation that an earlier attempt has sent, None while no block holds one.

    Args:
        chain: where it should be.
        begun: the deployment.
        creation: creation code and arguments, as they would be sent now.
        paths: of the run.

    Raises:
        ChainError: it was begun on another chain, or another contract was created.
    """
    _require_chain(chain, begun, paths)
    receipt = chain.receipt_of(begun.deployer, begun.nonce)
    if receipt is None or not _is_its(chain, begun, receipt, paths):
        return None
    if begun.creation_sha256 != sha256(creation).hex():
        raise ChainError(
            f"run {paths.name!r} was being deployed with another configuration, as contract "
            f"{receipt.contract_address}: go on with that one, or take another name"
        )
    return receipt


def _taken_up(
    chain: ChainWriter, begun: DeploymentIntent, creation: bytes, gas: int, paths: RunPaths
) -> Receipt | None:
    """Return the creation that was begun, None if none will come of it any more.

    Raises:
        TransactionRefusedError: the chain does not take the creation.
        ChainError: it is of another configuration, or the chain is not as it was.
    """
    found = earlier_creation(chain, begun, creation, paths)
    if found is not None or chain.receipt_of(begun.deployer, begun.nonce) is not None:
        return found
    if (begun.deployer, begun.creation_sha256) != (chain.sender, sha256(creation).hex()):
        chain.wait_for_pending(begun.deployer)
        return earlier_creation(chain, begun, creation, paths)
    if begun.nonce > (expected := chain.next_nonce()):
        raise ChainError(
            f"run {paths.name!r} was being deployed by transaction {begun.nonce} of "
            f"{begun.deployer}, whose next one is {expected}: the node lags, or its chain was "
            f"taken back; wait, or remove {paths.intent} to deploy it anew"
        )
    try:
        return chain.create_contract(creation, gas, begun.nonce, again=True)
    except TransactionRefusedError:
        # What was sent before may have come into a block just now, or another with its nonce.
        if chain.receipt_of(begun.deployer, begun.nonce) is None:
            raise
        return earlier_creation(chain, begun, creation, paths)


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
    """Return the deployment of a run that has been begun, None if none has.

    Args:
        paths: of the run.

    Raises:
        ChainError: it cannot be read, or is none.
    """
    if not paths.intent.exists():
        return None
    kinds: dict[str, type] = {field.name: str for field in fields(DeploymentIntent)}
    kinds |= {"format": int, "chain_id": int, "nonce": int}
    found = DeploymentIntent(**read_fields(paths.intent, "deployment intent", _FORMAT, kinds))
    if len(found.creation_sha256) != 64 or set(found.creation_sha256) - set("0123456789abcdef"):
        raise ChainError(f"deployment intent {paths.intent}: creation_sha256 is no digest")
    if found.nonce < 0:
        raise ChainError(f"deployment intent {paths.intent}: nonce {found.nonce} is below 0")
    return found


def _require_chain(chain: ReceiptLookup, begun: DeploymentIntent, paths: RunPaths) -> None:
    genesis_hash = f"0x{chain.genesis_hash.hex()}"
    if (begun.chain_id, begun.genesis_hash) != (chain.chain_id, genesis_hash):
        raise ChainError(
            f"run {paths.name!r} was being deployed on chain {begun.chain_id} with genesis "
            f"{begun.genesis_hash}, not on {chain.chain_id} with {genesis_hash}: go on there, or "
            f"remove {paths.intent} to deploy it here"
        )


def _is_its(
    chain: ReceiptLookup, begun: DeploymentIntent, receipt: Receipt, paths: RunPaths
) -> bool:
    """Say whether a transaction is the creation that was begun, and no other run has its contract.

    The nonce may have gone to something else, if it was never sent.
    """
    if receipt.status != 1 or receipt.contract_address is None:
        return False
    sent = chain.transaction(receipt.transaction_hash)
    is_same = sha256(sent.input).hex() == begun.creation_sha256
    return is_same and receipt.contract_address not in _taken_by_others(paths)


def _taken_by_others(paths: RunPaths) -> frozenset[str]:
    others = [run for run in Home(paths.path.parent.parent).deployed() if run.path != paths.path]
    return frozenset(read_manifest(run.manifest).address for run in others)
