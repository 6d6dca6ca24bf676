"""The manifest of a deployment: what was deployed where, in a file that its reader checks."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any

from ledger.chain.addresses import to_canonical
from ledger.home import DISK, Disk
from ledger.protocol.errors import ChainError
from ledger.protocol.types import Address, Domain

if TYPE_CHECKING:
    from pathlib import Path

MANIFEST_FORMAT = 1
MAX_MANIFEST_BYTES = 100_000


@dataclass(frozen=True, slots=True)
class Manifest:
    """What was deployed where; a hint that its reader checks against the chain.

    Attributes:
        format: version of this file.
        chain_id: of the chain.
        genesis_hash: hash of its block 0, 0x-hex.
        address: of the contract, EIP-55.
        transaction: that created it, 0x-hex.
        block: that holds it.
        deployer: who sent it, EIP-55.
        compiler: name and version.
        bytecode_sha256: of the creation code without arguments.
        sources: sha256 of each source file.
        config: digest of the run's configuration, 0x-hex.
        arguments: the constructor's arguments, readable.
    """

    format: int
    chain_id: int
    genesis_hash: str
    address: str
    transaction: str
    block: int
    deployer: str
    compiler: str
    bytecode_sha256: str
    sources: dict[str, str]
    config: str
    arguments: dict[str, Any]

    def domain(self) -> Domain:
        """Return the EIP-712 domain of the contract."""
        return Domain(self.chain_id, Address(to_canonical(self.address)))


def read_manifest(path: Path) -> Manifest:
    """Return the manifest in a file.

    Args:
        path: the file.

    Returns:
        The manifest; nothing in it has been checked against a chain yet.

    Raises:
        ChainError: it cannot be read, or is no manifest.
    """
    try:
        with path.open("rb") as file:
            data = file.read(MAX_MANIFEST_BYTES + 1)
    except OSError as error:
        raise ChainError(f"manifest {path} cannot be read: {error.strerror}") from error
    if len(data) > MAX_MANIFEST_BYTES:
        raise ChainError(f"manifest {path} is over {MAX_MANIFEST_BYTES} bytes")
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise ChainError(f"manifest {path} is not JSON: {error}") from error
    kinds: dict[str, type] = {field.name: str for field in fields(Manifest)}
    kinds |= {"format": int, "chain_id": int, "block": int, "sources": dict, "arguments": dict}
    if not isinstance(value, dict) or set(value) != set(kinds):
        raise ChainError(f"manifest {path} does not have the fields {', '.join(kinds)}")
    for name, kind in kinds.items():
        if type(value[name]) is not kind:
            raise ChainError(f"manifest {path}: {name} is not of type {kind.__name__}")
    if value["format"] != MANIFEST_FORMAT:
        raise ChainError(f"manifest {path}: format {value['format']} is not {MANIFEST_FORMAT}")
    to_canonical(value["address"])
    return Manifest(**value)


def write_manifest(path: Path, manifest: Manifest, disk: Disk = DISK) -> None:
    """Write a manifest whole or not at all.

    Args:
        path: of the file.
        manifest: what was deployed.
        disk: that it is written on.
    """
    text = json.dumps(asdict(manifest), indent=1, sort_keys=True) + "\n"
    disk.write_whole(path, text.encode())
