"""Deploying the contract, and the manifest that says what was deployed where.

Deploying is idempotent: a manifest that names a contract which is on this chain, is this code and
has this configuration is taken as it is, registration is completed if it was cut off, and anything
that does not match is refused rather than deployed beside it.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from ledger.chain.addresses import to_canonical
from ledger.chain.contract import abi
from ledger.chain.contract.calls import RegisterCall
from ledger.chain.contract.committee_ledger import CommitteeLedger, LedgerWriter
from ledger.chain.contract.manifest import MANIFEST_FORMAT, Manifest, read_manifest, write_manifest
from ledger.protocol import ledger_state
from ledger.protocol.documents.run import RunDocument, encode_run
from ledger.protocol.encoding import sha256
from ledger.protocol.errors import ChainError
from ledger.protocol.types import Beacon

if TYPE_CHECKING:
    from pathlib import Path

    from ledger.chain.ports import ChainReader, ChainWriter

DEPLOYMENT_GAS = 6_500_000


def deployment_for(
    document: RunDocument,
) -> tuple[ledger_state.Deployment, tuple[RegisterCall, ...]]:
    """Return the constructor's arguments and registrations for a run's configuration."""
    config = sha256(encode_run(document))
    deployment, batches = ledger_state.deployment_of(
        document.parameters, config, document.registry, document.initial_model
    )
    return deployment, tuple(RegisterCall(words, rest) for words, rest in batches)


def creation_data(deployment: ledger_state.Deployment) -> bytes:
    """Return the contract's creation code with a deployment's arguments."""
    d = deployment
    sizes = (d.config, d.registry, d.clients, d.trainers, d.members, d.aggregation_ppm)
    times = (int(d.form), d.rounds, d.commit_blocks, d.deadline_blocks, d.replies)
    return abi.creation_data((*sizes, *times, d.beacon is Beacon.BLOCK, d.model))


def deploy(chain: ChainWriter, document: RunDocument, manifest_path: Path) -> Manifest:
    """Deploy the contract for a run and register its clients, or find that this was done.

    Args:
        chain: where to.
        document: the run's configuration.
        manifest_path: where the manifest is, or will be.

    Returns:
        The manifest of a contract that is open, or finished.

    Raises:
        ChainError: the manifest there is of another chain, code or configuration, or the chain
            refuses.
    """
    deployment, batches = deployment_for(document)
    if manifest_path.exists():
        manifest = read_manifest(manifest_path)
        found = connect(chain, manifest)
        if f"0x{deployment.config.hex()}" != manifest.config:
            raise ChainError(
                f"{manifest_path} is of another configuration ({manifest.config}), not of "
                f"0x{deployment.config.hex()}"
            )
        _register(LedgerWriter(chain, found.address, found.from_block), batches)
        return manifest
    receipt = chain.send(None, creation_data(deployment), DEPLOYMENT_GAS)
    if receipt.contract_address is None:
        raise ChainError("the chain gave no address for the new contract")
    manifest = Manifest(
        format=MANIFEST_FORMAT,
        chain_id=chain.chain_id,
        genesis_hash=f"0x{chain.genesis_hash.hex()}",
        address=receipt.contract_address,
        transaction=f"0x{receipt.transaction_hash.hex()}",
        block=receipt.block_number,
        deployer=chain.sender,
        compiler=abi.artifact().compiler,
        bytecode_sha256=sha256(abi.artifact().bytecode).hex(),
        sources=abi.artifact().sources,
        config=f"0x{deployment.config.hex()}",
        arguments=_readable(deployment),
    )
    require_code(chain, manifest.address)
    write_manifest(manifest_path, manifest)
    _register(LedgerWriter(chain, manifest.address, manifest.block), batches)
    return manifest


def connect(chain: ChainReader, manifest: Manifest) -> CommitteeLedger:
    """Return the contract that a manifest names, checked against the chain.

    Args:
        chain: where it should be.
        manifest: what was deployed.

    Returns:
        The contract.

    Raises:
        ChainError: another chain, no code or other code there, another creation, or another
            configuration.
    """
    if manifest.chain_id != chain.chain_id:
        raise ChainError(f"the manifest is for chain {manifest.chain_id}, not {chain.chain_id}")
    if manifest.genesis_hash != f"0x{chain.genesis_hash.hex()}":
        raise ChainError(
            f"the manifest is for the chain with genesis {manifest.genesis_hash}, not "
            f"0x{chain.genesis_hash.hex()}"
        )
    require_code(chain, manifest.address)
    _require_creation(chain, manifest)
    ledger = CommitteeLedger(chain, manifest.address, manifest.block)
    config = f"0x{ledger.deployment().config.hex()}"
    if config != manifest.config:
        raise ChainError(f"the contract has configuration {config}, not {manifest.config}")
    return ledger


def require_code(chain: ChainReader, address: str) -> None:
    """Refuse an address that does not hold this contract's code.

    Args:
        chain: where it should be.
        address: EIP-55.

    Raises:
        ChainError: no code, or other code.
    """
    code, runtime = chain.code(address), abi.artifact().runtime
    if not code:
        raise ChainError(f"there is no contract at {address}")
    # Vyper appends the immutables to the runtime code: only they may differ.
    if not code.startswith(runtime) or len(code) - len(runtime) > 1024:
        raise ChainError(
            f"the code at {address} is not that of {abi.artifact().compiler}'s artefact"
        )


def _require_creation(chain: ChainReader, manifest: Manifest) -> None:
    """Refuse a wrong creating block: whoever begins to read too late misses events.

    Raises:
        ChainError: another transaction or block created the contract.
    """
    try:
        transaction = bytes.fromhex(manifest.transaction.removeprefix("0x"))
    except ValueError as error:
        raise ChainError("the manifest's transaction is no hash") from error
    receipt = chain.receipt(transaction) if len(transaction) == 32 else None
    created = receipt.contract_address if receipt is not None else None
    if (
        receipt is None
        or created is None
        or to_canonical(created) != to_canonical(manifest.address)
    ):
        raise ChainError("the manifest's transaction did not create the contract")
    if receipt.block_number != manifest.block:
        raise ChainError(f"block {receipt.block_number} created the contract, not {manifest.block}")


def _register(ledger: LedgerWriter, batches: tuple[RegisterCall, ...]) -> None:
    """Register what is not registered yet."""
    done = ledger.state().registered
    for batch in batches:
        if done >= len(batch.words):
            done -= len(batch.words)
            continue
        ledger.register_clients(batch.words, batch.rest)


def _readable(deployment: ledger_state.Deployment) -> dict[str, Any]:
    found = asdict(deployment)
    hexed = {name: f"0x{v.hex()}" for name, v in found.items() if isinstance(v, bytes)}
    return found | hexed | {"form": int(deployment.form), "beacon": str(deployment.beacon)}
