"""The manifest of a deployment: a file with what was deployed and where.

A manifest belongs to one run folder. It names the run and the digest of its settings, so that the
manifests of two runs cannot be exchanged.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from ledger.chain.addresses import eip55, to_canonical
from ledger.io.home import DISK, MANIFEST, Disk, Home, RunPaths, read_file
from ledger.io.parsing import MAX_TOML_BYTES, parse_json, parse_toml
from ledger.protocol.canonical import other_version
from ledger.protocol.encoding import sha256
from ledger.protocol.errors import ChainError, ConfigurationError
from ledger.protocol.types import PROTOCOL_VERSION, Address, Digest, Domain

MAX_MANIFEST_BYTES = 100_000
_SALT = re.compile("0x[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Manifest:
    """A deployed contract; the reader checks each field.

    Attributes:
        configuration: digest of the settings in its `config.toml`, 0x-hex.
        genesis_hash: hash of its block 0, 0x-hex.
        address: of the contract, EIP-55.
        salt: of its EIP-712 domain, 0x-hex.
        transaction: hash of the creating transaction, 0x-hex.
        deployer: its sender, EIP-55.
        sources: sha256 of each source file.
        config: digest of the run's document, 0x-hex.
    """

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
    version: int = PROTOCOL_VERSION

    def domain(self) -> Domain:
        salt = Digest(bytes.fromhex(self.salt.removeprefix("0x")))
        return Domain(self.chain_id, Address(to_canonical(self.address)), salt)


def read_run_manifest(paths: RunPaths) -> Manifest:
    """Return the manifest of a run folder, checked against the run's name and settings.

    Nothing in it has been checked against a chain.
    """
    manifest = read_manifest(paths.manifest)
    if manifest.run != paths.name:
        raise ChainError(
            f"{paths.manifest} is the manifest of run {manifest.run!r}, not of {paths.name!r}: "
            f"move it back, or give its folder the name {manifest.run!r} again"
        )
    digest = settings_digest(paths)
    if digest != manifest.configuration:
        raise ChainError(
            f"{paths.configuration} is of another configuration ({digest}) than {paths.manifest} "
            f"({manifest.configuration}): restore the file that the run was deployed with"
        )
    return manifest


def require_unplayed(paths: RunPaths) -> None:
    """Reject a run without a manifest that has files which only a deployed run writes."""
    if (left := paths.left_by_play()) is not None:
        raise ChainError(
            f"{paths.manifest} is missing, though run {paths.name!r} has been played "
            f"({left.name} is there): put it back; no second contract is deployed"
        )


def settings_digest(paths: RunPaths) -> str:
    """Return the digest of a run's settings, 0x-hex, without those of machine and trackers."""
    settings = _settings(paths)
    settings.pop("machine", None)
    settings.pop("track", None)
    try:
        _without_path(settings)
        text = json.dumps(settings, sort_keys=True, default=str)
    except (ValueError, RecursionError) as error:
        raise ChainError(f"{paths.configuration}: {error}") from error
    return f"0x{sha256(text.encode()).hex()}"


def was_in_memory(paths: RunPaths) -> bool:
    """Return whether a run without a manifest used the memory ledger, which needs none."""
    machine = _settings(paths).get("machine")
    is_memory = isinstance(machine, dict) and machine.get("ledger") == "memory"
    # Only a run on a chain has a journal of its signatures.
    return is_memory and not paths.journal.exists()


def _settings(paths: RunPaths) -> dict[str, Any]:
    """Return a run's settings; none if it has no file of them."""
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
    """Return the manifest in a file, of whichever run.

    Nothing in it has been checked against a chain.
    """
    kinds: dict[str, type] = {field.name: str for field in fields(Manifest)}
    kinds |= {"version": int, "chain_id": int, "block": int, "sources": dict, "arguments": dict}
    value = read_fields(path, "manifest", "version", PROTOCOL_VERSION, kinds)
    if not _SALT.fullmatch(value["salt"]):
        raise ChainError(f"manifest {path}: salt {value['salt']!r:.80} is not 0x and 64 hex digits")
    return Manifest(**value | {"address": eip55(value["address"])})


def read_fields(
    path: Path, what: str, field: str, version: int, kinds: Mapping[str, type]
) -> dict[str, Any]:
    """Return the fields of a small JSON file.

    Args:
        field: name of the field with the version, `version` or `format`.
        kinds: type of each field; no other field may exist.
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
    if field == "version":
        _require_version(f"{what} {path}", value)
    elif isinstance(value, dict) and value.get(field, version) != version:
        raise ChainError(
            f"{what} {path}: {field} {str(value[field])[:20]} is not {version}: another version of "
            f"this program has written it, and only that one reads this home"
        )
    if not isinstance(value, dict) or set(value) != set(kinds):
        raise ChainError(f"{what} {path} does not have the fields {', '.join(kinds)}")
    for name, kind in kinds.items():
        if type(value[name]) is not kind:
            raise ChainError(f"{what} {path}: {name} is not of type {kind.__name__}")
    return value


def require_current_home(home: Home) -> None:
    """Reject a home whose runs are of another protocol version, before anything in it is opened."""
    try:
        path = next(home.runs.glob(f"*/{MANIFEST}"), None)
        value = None if path is None else parse_json(read_file(path, MAX_MANIFEST_BYTES))
    except (OSError, ValueError):
        return  # a damaged manifest is reported by the commands that read it
    _require_version(f"manifest {path}", value)


def _require_version(name: str, value: object) -> None:
    """Reject a manifest of another version; those of version 2 have a format instead."""
    if not isinstance(value, dict):
        return
    found = value.get("version", 2 if "format" in value else PROTOCOL_VERSION)
    if found != PROTOCOL_VERSION:
        raise ChainError(other_version(name, found))


def write_manifest(path: Path, manifest: Manifest, disk: Disk = DISK) -> None:
    """Write a manifest atomically and durably; raise OSError if that fails."""
    text = json.dumps(asdict(manifest), indent=1, sort_keys=True) + "\n"
    disk.write_whole(path, text.encode())


def _without_path(settings: dict[str, Any]) -> None:
    """Remove the path of a data file: the run document records its sha256 instead."""
    if isinstance(data := settings.get("data"), dict):
        data.pop("path", None)
