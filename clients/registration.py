"""Keystores, signed registrations of owners, and the registry that combines them.

A keystore of version 3, as wallets and nodes read it, is the only form of a key on disk.

An owner signs its address, its number of samples, and the digest of the proposed configuration. The
collector can leave an owner out, but change nothing: every owner can compare the registry's digest
with the contract's digest.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from enum import IntEnum
from pathlib import Path
from typing import Any

from eth_account import Account

from clients.configuration.loading import Owners
from clients.configuration.schema import Configuration
from clients.datasets.registry import without_paths
from clients.models.registry import bound_paths
from ledger.io.home import DISK, RUN_NAME, read_text
from ledger.io.parsing import parse_json
from ledger.protocol import canonical
from ledger.protocol.documents.run import MAX_SAMPLES
from ledger.protocol.encoding import RegisteredClient, checksum, sha256, to_canonical
from ledger.protocol.errors import ChainError, ConfigurationError, SignatureError
from ledger.protocol.rules.distance import OwnRuleName
from ledger.protocol.signing import (
    Registration,
    Signer,
    is_registered_by_owner,
    registration_digest,
    registry_digest_of,
)
from ledger.protocol.types import NO_DIGEST, PROTOCOL_VERSION, Address, Digest

PASSWORD_FILE = "password.txt"  # noqa: S105 - its name
PUBLIC_PASSWORD = "public"  # noqa: S105 - of public test keys


class ScryptCost(IntEnum):
    """Cost of scrypt: the time of one try of a password; test keys protect nothing."""

    USUAL = 2**18  # about a second, as wallets have it
    OF_TEST_KEYS = 2**12


def write_keystore(
    path: Path, private_key: bytes, password: str, work: ScryptCost = ScryptCost.USUAL
) -> None:
    """Write a key's keystore, readable for its owner alone; no file is ever replaced."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError as error:
        raise ConfigurationError(
            f"--keystore {path}: exists, and a key is never overwritten; name a new file"
        ) from error
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            # Not before the name is ours: encrypting takes a second.
            content = Account.encrypt(private_key, password, kdf="scrypt", iterations=int(work))
            file.write(json.dumps(content, indent=1) + "\n")
        # A key whose file a power cut takes back may have been sent money meanwhile.
        DISK.sync([path])
    except BaseException:
        path.unlink(missing_ok=True)
        raise


def write_test_keystores(folder: Path, keys: Sequence[bytes]) -> list[Path]:
    """Write `client-000.json` and so on of PUBLIC TEST KEYS, and their password, into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    existing = next(folder.iterdir(), None)
    if existing is not None:
        raise ConfigurationError(
            f"--folder {folder}: contains {existing.name}; put test keys into a separate folder"
        )
    (folder / PASSWORD_FILE).touch(0o600)
    (folder / PASSWORD_FILE).write_text(f"{PUBLIC_PASSWORD}\n", "utf-8")
    written = [folder / f"client-{index:03}.json" for index in range(len(keys))]
    for path, key in zip(written, keys, strict=True):
        write_keystore(path, key, PUBLIC_PASSWORD, ScryptCost.OF_TEST_KEYS)
    return written


MAX_ENTRY_BYTES = 10_000
MAX_REGISTRY_BYTES = 32 * 2**20
_ENTRY = {"version", "run", "configuration", "client", "samples", "data", "signature"}
_REGISTRY = {"version", "run", "configuration", "registry", "clients"}
_CLIENT = {"client", "samples", "data", "signature"}


@dataclass(frozen=True, slots=True)
class RegistryEntry:
    """A registration with its owner's signature (65 bytes r, s, v)."""

    registration: Registration
    signature: bytes


@dataclass(frozen=True, slots=True)
class Registry:
    """The owners that accept the digest of a configuration, in ascending order of address."""

    run: str
    configuration: Digest
    entries: tuple[RegistryEntry, ...]

    @property
    def clients(self) -> tuple[RegisteredClient, ...]:
        signed = (entry.registration for entry in self.entries)
        return tuple(RegisteredClient(entry.client, entry.samples) for entry in signed)

    @property
    def owners(self) -> Owners:
        return Owners(self.clients, tuple(entry.registration.data for entry in self.entries))

    @property
    def digest(self) -> Digest:
        return registry_digest_of(self.clients)


def proposal_digest(configuration: Configuration) -> Digest:
    """Return the digest of the configuration that owners agree to before the registry is known.

    It leaves out the number of clients, paths, `machine` and `evaluation`.
    """
    protocol = configuration.protocol.model_dump(mode="json", exclude={"clients"})
    distance = configuration.parameters(dimension=1).distance
    if OwnRuleName.of(distance) is not None:
        protocol["distance"] = distance  # not the path, which differs between machines
    recorded = configuration.recorded()
    recorded["data"] = asdict(without_paths(configuration.data.choice()))
    recorded["model"] |= bound_paths(configuration.model.name, configuration.model.options)
    agreed = {"protocol": protocol, "experiment": recorded}
    return sha256(canonical.encode(_without_none(agreed)))


def signed_entry(
    signer: Signer, run: str, configuration: Digest, samples: int, data: Digest = NO_DIGEST
) -> RegistryEntry:
    """Return an owner's signed entry; `data` is the salted digest of its samples, or zeros."""
    registration = Registration(run, configuration, signer.address, samples, data)
    _require_possible(registration, "the entry")
    return RegistryEntry(registration, signer.sign(registration_digest(registration)))


def combined_registry(entries: Iterable[tuple[str, RegistryEntry]]) -> Registry:
    """Return the registry of several entries, each with its name for error messages."""
    by_address: dict[Address, tuple[str, RegistryEntry]] = {}
    for where, entry in entries:
        client = entry.registration.client
        if client in by_address:
            raise ConfigurationError(
                f"{where}: {checksum(client)} already has an entry in {by_address[client][0]}"
            )
        by_address[client] = (where, entry)
    if not by_address:
        raise ConfigurationError("there is no entry to gather")
    ordered = [by_address[client] for client in sorted(by_address)]
    first_where, first = ordered[0]
    for where, entry in ordered:
        for name, word in (("run", "run"), ("configuration", "settings")):
            value, other = (getattr(e.registration, name) for e in (entry, first))
            if value != other:
                raise ConfigurationError(
                    f"{where}: is for {word} {_shown(value)}, and {first_where} for {_shown(other)}"
                )
    total = sum(entry.registration.samples for _, entry in ordered)
    if total >= MAX_SAMPLES:
        raise ConfigurationError(f"the owners claim {total} samples; must be fewer than 2^53")
    of = first.registration
    return Registry(of.run, of.configuration, tuple(entry for _, entry in ordered))


def encode_entry(entry: RegistryEntry) -> bytes:
    """Return the bytes of an entry's file."""
    of = entry.registration
    named = {"version": PROTOCOL_VERSION, "run": of.run, "configuration": _shown(of.configuration)}
    return _encoded(named | _client_of(entry))


def encode_registry(registry: Registry) -> bytes:
    """Return the bytes of a registry's file."""
    return _encoded(
        {
            "version": PROTOCOL_VERSION,
            "run": registry.run,
            "configuration": _shown(registry.configuration),
            "registry": _shown(registry.digest),
            "clients": [_client_of(entry) for entry in registry.entries],
        }
    )


def read_entry(path: Path) -> RegistryEntry:
    """Return an owner's entry with a verified signature."""
    value = _read(path, MAX_ENTRY_BYTES, _ENTRY, "entry")
    configuration = _digest(value["configuration"], f"{path}: configuration")
    return _entry(value, value["run"], configuration, str(path))


def read_registry(path: Path) -> Registry:
    """Return a registry with verified signatures, order and digest."""
    value = _read(path, MAX_REGISTRY_BYTES, _REGISTRY, "registry")
    configuration = _digest(value["configuration"], f"{path}: configuration")
    listed = value["clients"]
    if not isinstance(listed, list):
        raise ConfigurationError(f"{path}: clients must be a list")
    entries = []
    for index, one in enumerate(listed):
        where = f"{path}: client {index}"
        _require_keys(one, _CLIENT, where)
        entries.append((where, _entry(one, value["run"], configuration, where)))
    registry = combined_registry(entries)
    if [entry for _, entry in entries] != list(registry.entries):
        raise ConfigurationError(f"{path}: the addresses must be ascending")
    stated = _digest(value["registry"], f"{path}: registry")
    if stated != registry.digest:
        raise ConfigurationError(
            f"{path}: states the registry digest {_shown(stated)}, but its clients have "
            f"{_shown(registry.digest)}"
        )
    return registry


def _read(path: Path, limit: int, keys: set[str], what: str) -> dict[str, Any]:
    try:
        value = parse_json(read_text(path, limit), unique_keys=True)
    except ValueError as error:
        raise ConfigurationError(f"{path}: is not JSON ({error!s:.200})") from error
    _require_keys(value, keys, f"{path}: no {what}")
    if value["version"] != PROTOCOL_VERSION or type(value["version"]) is not int:
        raise ConfigurationError(
            f"{path}: {what} has protocol version {value['version']!s:.20}; this program needs "
            f"version {PROTOCOL_VERSION}"
        )
    return dict(value)


def _require_keys(value: object, keys: set[str], where: str) -> None:
    if not isinstance(value, dict) or set(value) != keys:
        raise ConfigurationError(f"{where}: must be a map of {', '.join(sorted(keys))}")


def _entry(value: dict[str, Any], run: object, configuration: Digest, where: str) -> RegistryEntry:
    try:
        client = Address(to_canonical(str(value["client"])))
    except ChainError as error:
        raise ConfigurationError(f"{where}, client: {error}") from error
    samples = value["samples"]
    if type(run) is not str or type(samples) is not int:
        raise ConfigurationError(f"{where}: run must be a name, and samples a whole number")
    data = _digest(value["data"], f"{where}: data")
    registration = Registration(run, configuration, client, samples, data)
    _require_possible(registration, where)
    signature = _octets(value["signature"], 65, f"{where}: signature")
    try:
        is_signed = is_registered_by_owner(registration, signature)
    except SignatureError as error:
        raise ConfigurationError(f"{where}, signature: {error}") from error
    if not is_signed:
        raise ConfigurationError(f"{where}: is not signed by {checksum(client)}")
    return RegistryEntry(registration, signature)


def _require_possible(registration: Registration, where: str) -> None:
    if not RUN_NAME.fullmatch(registration.run):
        raise ConfigurationError(
            f"{where}: run name {registration.run[:80]!r} must be at most 64 letters, digits, "
            "dots, dashes and underscores"
        )
    if not 1 <= registration.samples < MAX_SAMPLES:
        raise ConfigurationError(
            f"{where}: samples = {str(registration.samples)[:40]} must be 1 .. 2^53 - 1"
        )


def _digest(value: object, where: str) -> Digest:
    return Digest(_octets(value, 32, where))


def _octets(value: object, length: int, where: str) -> bytes:
    try:
        data = bytes.fromhex(str(value).removeprefix("0x"))
    except ValueError:
        data = b""
    if len(data) != length or value != _shown(data):
        raise ConfigurationError(
            f"{where}: must be 0x and {2 * length} hex digits in small letters"
        )
    return data


def _client_of(entry: RegistryEntry) -> dict[str, Any]:
    of, signature = entry.registration, _shown(entry.signature)
    fields = {"client": checksum(of.client), "samples": of.samples, "data": _shown(of.data)}
    return fields | {"signature": signature}


def _encoded(value: dict[str, Any]) -> bytes:
    return f"{json.dumps(value, indent=1)}\n".encode()


def _shown(value: bytes | str) -> str:
    return f"0x{value.hex()}" if isinstance(value, bytes) else value


def _without_none(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_none(item) for key, item in value.items() if item is not None}
    return value
