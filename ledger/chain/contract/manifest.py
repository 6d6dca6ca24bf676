"""The manifest of a deployment: what was deployed where, in a file that its reader checks.

A manifest belongs to one run folder: it names the run and the settings that lie beside it, so that
those of two runs cannot take each other's place.
"""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any

from ledger.chain.addresses import eip55, to_canonical
from ledger.io.home import DISK, Disk, RunPaths, read_file
from ledger.io.json import parse_json
from ledger.io.toml import MAX_TOML_BYTES, parse_toml
from ledger.protocol.encoding import sha256
from ledger.protocol.errors import ChainError, ConfigurationError
from ledger.protocol.types import Address, Digest, Domain

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

MANIFEST_FORMAT = 3
MAX_MANIFEST_BYTES = 100_000
_SALT = re.compile("0x[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Manifest:
    """What was deployed where; each field is checked by its reader.

    Attributes:
        format: version of this file.
        run: name of the run, which is that of its folder.
        configuration: digest of the settings in its `config.toml`, 0x-hex.
        chain_id: of the chain.
        genesis_hash: hash of its block 0, 0x-hex.
        address: of the contract, EIP-55.
        salt: of its EIP-712 domain, 0x-hex.
        transaction: that created it, 0x-hex.
        block: that holds it.
        deployer: who sent it, EIP-55.
        compiler: name and version.
        bytecode_sha256: of the creation code without arguments.
        sources: sha256 of each source file.
        config: digest of the run's document, 0x-hex.
        arguments: the constructor's arguments, readable.
    """

    format: int
    run: str
    configuration: str
    chain_id: int
    genesis_hash: str
    address: str
    salt: str
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
        salt = Digest(bytes.fromhex(self.salt.removeprefix("0x")))
        return Domain(self.chain_id, Address(to_canonical(self.address)), salt)


def read_run_manifest(paths: RunPaths) -> Manifest:
    """Return the manifest of a run folder.

    Args:
        paths: of the run.

    Returns:
        The manifest, which is of this run and of the settings beside it; nothing in it has been
        checked against a chain yet.

    Raises:
        ChainError: it cannot be read, or is of another run or of other settings.
    """
    manifest = read_manifest(paths.manifest)
    if manifest.run != paths.name:
        raise ChainError(
            f"{paths.manifest} is the manifest of run {manifest.run!r}, not of {paths.name!r}: "
            f"move it back, or give its folder the name {manifest.run!r} again"
        )
    found = settings_digest(paths)
    if found != manifest.configuration:
        raise ChainError(
            f"{paths.configuration} is of another configuration ({found}) than {paths.manifest} "
            f"({manifest.configuration}): put the file back that the run was begun with"
        )
    return manifest


def require_unplayed(paths: RunPaths) -> None:
    """Accept a run without a manifest only if it has not been deployed yet.

    Args:
        paths: of the run, which has no manifest.

    Raises:
        ChainError: something is there that only a deployed run writes.
    """
    if (left := paths.left_by_play()) is not None:
        raise ChainError(
            f"{paths.manifest} is missing, though run {paths.name!r} has been played "
            f"({left.name} is there): put it back; no second contract is deployed"
        )


def settings_digest(paths: RunPaths) -> str:
    """Return the digest of a run's settings, 0x-hex, without those of the machine it runs on.

    Args:
        paths: of the run; without a `config.toml` it has no settings.

    Raises:
        ChainError: the file cannot be read, or is no TOML.
    """
    settings = _settings(paths)
    settings.pop("machine", None)
    try:
        _without_path(settings)
        text = json.dumps(settings, sort_keys=True, default=str)
    except (ValueError, RecursionError) as error:
        raise ChainError(f"{paths.configuration}: {error}") from error
    return f"0x{sha256(text.encode()).hex()}"


def was_in_memory(paths: RunPaths) -> bool:
    """Say whether a run was on the memory ledger, so that it has no manifest and needs none.

    Args:
        paths: of the run, which has no manifest.

    Raises:
        ChainError: its configuration cannot be read, or is no TOML.
    """
    machine = _settings(paths).get("machine")
    asked = isinstance(machine, dict) and machine.get("ledger") == "memory"
    # Only a run on a chain keeps what its keys have signed.
    return asked and not paths.journal.exists()


def _settings(paths: RunPaths) -> dict[str, Any]:
    """Return the settings of a run, none where it has no file of them.

    Raises:
        ChainError: the file cannot be read, or is no TOML.
    """
    path = paths.configuration
    try:
        data = read_file(path, MAX_TOML_BYTES)
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise ChainError(f"{path} cannot be read: {error.strerror}") from error
    if len(data) > MAX_TOML_BYTES:
        raise ChainError(f"{path} is over {MAX_TOML_BYTES} bytes")
    try:
        return parse_toml(data.decode("utf-8"))
    except (ValueError, RecursionError, ConfigurationError) as error:
        raise ChainError(f"{path}: {error}") from error


def read_manifest(path: Path) -> Manifest:
    """Return the manifest in a file, whichever run's it is.

    Args:
        path: the file.

    Returns:
        The manifest; nothing in it has been checked against a chain yet.

    Raises:
        ChainError: it cannot be read, or is no manifest.
    """
    kinds: dict[str, type] = {field.name: str for field in fields(Manifest)}
    kinds |= {"format": int, "chain_id": int, "block": int, "sources": dict, "arguments": dict}
    value = read_fields(path, "manifest", MANIFEST_FORMAT, kinds)
    if not _SALT.fullmatch(value["salt"]):
        raise ChainError(f"manifest {path}: salt {value['salt']!r:.80} is not 0x and 64 hex digits")
    return Manifest(**value | {"address": eip55(value["address"])})


def read_fields(path: Path, what: str, version: int, kinds: Mapping[str, type]) -> dict[str, Any]:
    """Return the fields of a small JSON file.

    Args:
        path: of the file.
        what: it should be, for the sentence that refuses it.
        version: that its field `format` must have.
        kinds: of all its fields.

    Raises:
        ChainError: it cannot be read, or has not exactly these fields.
    """
    try:
        data = read_file(path, MAX_MANIFEST_BYTES)
    except OSError as error:
        raise ChainError(f"{what} {path} cannot be read: {error.strerror}") from error
    if len(data) > MAX_MANIFEST_BYTES:
        raise ChainError(f"{what} {path} is over {MAX_MANIFEST_BYTES} bytes")
    try:
        value = parse_json(data)
    except ValueError as error:
        raise ChainError(f"{what} {path} is not JSON: {error}") from error
    if isinstance(value, dict) and value.get("format", version) != version:
        raise ChainError(
            f"{what} {path}: format {str(value['format'])[:20]} is not {version}: another version "
            f"of this program has written it, and only that one reads this home"
        )
    if not isinstance(value, dict) or set(value) != set(kinds):
        raise ChainError(f"{what} {path} does not have the fields {', '.join(kinds)}")
    for name, kind in kinds.items():
        if type(value[name]) is not kind:
            raise ChainError(f"{what} {path}: {name} is not of type {kind.__name__}")
    return value


def write_manifest(path: Path, manifest: Manifest, disk: Disk = DISK) -> None:
    """Write a manifest whole or not at all; it survives a power cut.

    Args:
        path: of the file.
        manifest: what was deployed.
        disk: that it is written on.

    Raises:
        OSError: it cannot be written.
    """
    text = json.dumps(asdict(manifest), indent=1, sort_keys=True) + "\n"
    disk.write_whole(path, text.encode())


def _without_path(settings: dict[str, Any]) -> None:
    """Leave out where a data file lies: it is recorded by its sha256, in the run's document."""
    if isinstance(data := settings.get("data"), dict):
        data.pop("path", None)
