"""What is about to be deployed: written before the contract's creation is sent.

Whoever is killed between that transaction and the manifest finds his contract again by it, instead
of leaving it without an owner and deploying a second one.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING

from ledger.chain.contract.manifest import read_fields, read_manifest
from ledger.home import Home
from ledger.protocol.encoding import sha256
from ledger.protocol.errors import ChainError
from ledger.protocol.types import Digest

if TYPE_CHECKING:
    from ledger.chain.ports import ChainWriter, Receipt
    from ledger.home import Disk, RunPaths

_FORMAT = 1


@dataclass(frozen=True, slots=True)
class Intent:
    """A deployment that has been begun.

    Attributes:
        format: version of this file.
        chain_id: of the chain.
        genesis_hash: hash of its block 0, 0x-hex.
        deployer: whose transaction creates the contract, EIP-55.
        creation_sha256: of the creation code with its arguments.
        from_block: no block before it holds that transaction.
    """

    format: int
    chain_id: int
    genesis_hash: str
    deployer: str
    creation_sha256: str
    from_block: int


def declare(chain: ChainWriter, creation: bytes, paths: RunPaths, disk: Disk) -> Receipt | None:
    """Write down that a contract is about to be created, or find that it has been.

    Args:
        chain: where to.
        creation: creation code and arguments.
        paths: of the run.
        disk: that the intent is written on.

    Returns:
        The receipt of the creation that an earlier attempt has sent, None if none was.

    Raises:
        ChainError: it was begun on another chain, or another contract was created.
    """
    if paths.intent.exists():
        begun = _read(paths)
        _require_chain(chain, begun, paths)
        receipt = _found(chain, begun, paths)
        if receipt is not None and begun.creation_sha256 != sha256(creation).hex():
            raise ChainError(
                f"run {paths.name!r} was being deployed with another configuration, as contract "
                f"{receipt.contract_address}: go on with that one, or take another name"
            )
        if receipt is not None:
            return receipt
    intent = Intent(
        format=_FORMAT,
        chain_id=chain.chain_id,
        genesis_hash=f"0x{chain.genesis_hash.hex()}",
        deployer=chain.sender,
        creation_sha256=sha256(creation).hex(),
        from_block=chain.head().number + 1,
    )
    text = json.dumps(asdict(intent), indent=1, sort_keys=True) + "\n"
    disk.write_whole(paths.intent, text.encode())
    return None


def _read(paths: RunPaths) -> Intent:
    kinds: dict[str, type] = {field.name: str for field in fields(Intent)}
    kinds |= {"format": int, "chain_id": int, "from_block": int}
    found = Intent(**read_fields(paths.intent, "deployment intent", _FORMAT, kinds))
    if len(found.creation_sha256) != 64 or set(found.creation_sha256) - set("0123456789abcdef"):
        raise ChainError(f"deployment intent {paths.intent}: creation_sha256 is no digest")
    return found


def _require_chain(chain: ChainWriter, begun: Intent, paths: RunPaths) -> None:
    genesis_hash = f"0x{chain.genesis_hash.hex()}"
    if (begun.chain_id, begun.genesis_hash) != (chain.chain_id, genesis_hash):
        raise ChainError(
            f"run {paths.name!r} was being deployed on chain {begun.chain_id} with genesis "
            f"{begun.genesis_hash}, not on {chain.chain_id} with {genesis_hash}: go on there, or "
            f"remove {paths.intent} to deploy it here"
        )


def _found(chain: ChainWriter, begun: Intent, paths: RunPaths) -> Receipt | None:
    """Return the creation that was sent, if none of the other runs has its contract."""
    digest = Digest(bytes.fromhex(begun.creation_sha256))
    created = chain.creations(begun.deployer, digest, begun.from_block)
    taken = _taken_by_others(paths) if created else frozenset()
    return next((one for one in created if one.contract_address not in taken), None)


def _taken_by_others(paths: RunPaths) -> frozenset[str]:
    others = [run for run in Home(paths.path.parent.parent).deployed() if run.path != paths.path]
    return frozenset(read_manifest(run.manifest).address for run in others)
