"""Samples of the clients that one worker hosts, and what binds them to a run.

A shared data set is divided as on every machine: part i is client i's. Of `own` only the hosted
clients' files are read. Simulated clients have PUBLIC keys and salts, which protect nothing.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from clients.datasets.federated_data import (
    FederatedData,
    Samples,
    frozen_samples,
    named_stream,
    parse_settings,
)
from clients.datasets.own import OWN, SUFFIXES, OwnOptions, read_own
from clients.datasets.registry import DataChoice, data_digest, load_dataset
from ledger.protocol.documents.run import RunDocument
from ledger.protocol.encoding import keccak256
from ledger.protocol.errors import ConfigurationError
from ledger.protocol.inputs import NamedArray, data_root, samples_digest, simulated_salt
from ledger.protocol.signing import KeySigner
from ledger.protocol.types import NO_DIGEST, ClientId, Digest

if TYPE_CHECKING:
    from clients.configuration.schema import Configuration


_DIGESTS = "digests"
"""Run document field with a 32-byte digest of each owner's samples, which only the owner has."""


def salt_of(text: str, subject: str) -> bytes:
    """Return a salt of 64 hex digits; `subject` names it in the message."""
    match = re.fullmatch(r"(?:0x)?([0-9a-fA-F]{64})", text.strip())
    if match is None:
        raise ConfigurationError(f"{subject}: must be 64 hex digits")
    return bytes.fromhex(match[1])


def samples_digest_of(samples: Samples, salt: bytes) -> Digest:
    """Return the digest of one client's training samples as stored, in order."""
    return samples_digest(salt, _named("x", samples.x), _named("y", samples.y))


def simulated_keys(seed: int, clients: int) -> tuple[bytes, ...]:
    """Return TEST KEYS, 32 bytes for each client, by ascending address as in the registry."""
    name = b"PUBLIC TEST KEY of a simulated client %d %d"
    keys = [keccak256(name % (seed, client)) for client in range(clients)]
    return tuple(sorted(keys, key=lambda key: KeySigner(key).address))


def simulated_signers(seed: int, clients: int) -> tuple[KeySigner, ...]:
    """Return signers with TEST KEYS, by ascending address as in the registry."""
    return tuple(KeySigner(key) for key in simulated_keys(seed, clients))


def simulated_digests(data: FederatedData, seed: int) -> tuple[Digest, ...]:
    """Return the digest of each client's samples, before any client poisons its own."""
    salts = (simulated_salt(seed, ClientId(client)) for client in range(data.clients))
    return tuple(map(samples_digest_of, data.train, salts))


def require_bound_files(document: RunDocument, choice: DataChoice) -> None:
    """Reject other data files or settings than the run was deployed with."""
    recorded, here = document.experiment.get("data"), data_digest(choice)
    entries = recorded.items() if isinstance(recorded, dict) else ()
    bound = {name: value for name, value in entries if name != _DIGESTS}
    if here == bound:
        return
    names = sorted({*bound, *here}, key=lambda name: (name != "sha256", name))
    name = next(name for name in names if bound.get(name) != here.get(name))
    subject = "the sha256 of its files" if name == "sha256" else f"data.{name}"
    raise ConfigurationError(
        f"the data {choice.path or choice.name} differ from the run's data: expected "
        f"{subject} {bound.get(name)!s:.300}, got {here.get(name)!s:.300}"
    )


def require_bound_samples(
    document: RunDocument, digests: Sequence[Digest], counts: Sequence[int]
) -> None:
    """Reject other training samples than the run was deployed with."""
    here = data_root(counts, digests)
    if here != document.data_root:
        raise ConfigurationError(
            "the training samples differ from the run's samples: expected root "
            f"0x{document.data_root.hex()}, got 0x{here.hex()}"
        )


def _named(name: str, values: NDArray[Any]) -> NamedArray:
    plain = np.ascontiguousarray(values)
    if sys.byteorder == "big" or plain.dtype.byteorder == ">":
        plain = plain.astype(plain.dtype.newbyteorder("<"))
    data = plain.reshape(-1).view(np.uint8).data if plain.size else b""
    return NamedArray(name, plain.dtype.newbyteorder("=").name, plain.shape, data)


def own_parts(
    configuration: Configuration,
    document: RunDocument,
    clients: Sequence[ClientId],
    data_path: Path | None = None,
    salts: Mapping[ClientId, bytes] | None = None,
) -> FederatedData:
    """Return the samples of a worker's clients at their index, and with `own` empty ones of others.

    `data_path` has the data set or, with `own`, is the client's file or a folder with a file
    `0xADDRESS.npz` (or `.safetensors`), in small letters, of each. `salts`, None without keys, are
    to compare `own` samples with their registered digests.
    """
    if not clients:
        raise ConfigurationError("no client is given whose samples could be loaded")
    outside = [client for client in clients if not 0 <= client < len(document.registry)]
    if outside:
        raise ConfigurationError(
            f"client {outside[0]} must be one of 0 .. {len(document.registry) - 1}"
        )
    if configuration.data.name == OWN.name:
        data = _own(configuration, document, clients, data_path)
    else:
        choice = configuration.data.choice()
        if data_path is not None:
            choice = replace(choice, path=data_path)
        require_bound_files(document, choice)
        rng = named_stream(configuration.seed, "data")
        data = load_dataset(choice, len(document.registry), rng)
        digests = simulated_digests(data, configuration.seed)
        require_bound_samples(document, digests, data.sample_counts)
    for client in clients:
        count, registered = len(data.train[client].y), document.registry[client].samples
        if count != registered:
            raise ConfigurationError(
                f"client {client} has {count} training samples, and is registered with {registered}"
            )
        if salts is not None and data.name == OWN.name:
            _require_registered(document, client, data.train[client], salts[client])
    return data


def disclosed_digests(document: RunDocument) -> bytes:
    """Return the digests of all clients' samples, 32 bytes each; no bytes if none is disclosed."""
    data = document.experiment.get("data")
    digests = data.get(_DIGESTS, b"") if isinstance(data, dict) else b""
    if not isinstance(digests, bytes):
        raise ConfigurationError("the run document's data digests are not bytes")
    return digests


def _require_registered(
    document: RunDocument, client: ClientId, samples: Samples, salt: bytes
) -> None:
    """Reject other samples of an owner than it registered, if it disclosed their digest."""
    disclosed = disclosed_digests(document)
    digests = [Digest(disclosed[at : at + 32]) for at in range(0, len(disclosed), 32)]
    counts = [registered.samples for registered in document.registry]
    if len(digests) != len(counts) or data_root(counts, digests) != document.data_root:
        raise ConfigurationError("the run document's data_root does not match its data digests")
    here, bound = samples_digest_of(samples, salt), digests[client]
    if bound not in {NO_DIGEST, here}:
        raise ConfigurationError(
            f"client {client}: the training samples differ from the registered ones; expected "
            f"digest 0x{bound.hex()}, got 0x{here.hex()}"
        )


def _own(
    configuration: Configuration,
    document: RunDocument,
    clients: Sequence[ClientId],
    data_path: Path | None,
) -> FederatedData:
    if data_path is None:
        raise ConfigurationError("data.name = own: give the file of your own samples with --data")
    if not data_path.is_dir() and len(clients) > 1:
        raise ConfigurationError(f"--data {data_path}: {len(clients)} clients need a folder")
    options = parse_settings(OwnOptions, configuration.data.options, "data.options")
    samples = {
        client: read_own(_file_of(document, client, data_path), options) for client in clients
    }
    tests = [test for _, test in samples.values() if test is not None]
    x, y = samples[clients[0]].train
    nothing = frozen_samples(x[:0], y[:0])
    if len(tests) > 1:
        x, y = (np.concatenate(parts) for parts in zip(*tests, strict=True))
        tests = [frozen_samples(x, y)]
    hosted = {client: train for client, (train, _) in samples.items()}
    return FederatedData(
        name=OWN.name,
        form=options.form(),
        train=tuple(hosted.get(ClientId(at), nothing) for at in range(len(document.registry))),
        test=tests[0] if tests else nothing,
        collate=options.collate(),
        # How clients are trained together depends on the sizes of all: on no one's host.
        registered=tuple(client.samples for client in document.registry),
    )


def _file_of(document: RunDocument, client: ClientId, data_path: Path) -> Path:
    if not data_path.is_dir():
        return data_path
    name = f"0x{document.registry[client].address.hex()}"
    for suffix in SUFFIXES:
        if (path := data_path / f"{name}{suffix}").exists():
            return path
    raise ConfigurationError(f"--data {data_path}: has no {name}.npz or .safetensors")
