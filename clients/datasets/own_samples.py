"""Samples of the clients that one worker hosts.

A shared data set is divided as on every machine: part i is client i's. Of `own` only the hosted
clients' files are read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from clients.datasets.data_binding import (
    require_bound_files,
    require_bound_own,
    require_bound_samples,
    simulated_digests,
)
from clients.datasets.federated_data import FederatedData, Samples, frozen_samples
from clients.datasets.own import OWN, OwnOptions, OwnSamples, read_own
from clients.datasets.registry import load_dataset
from clients.datasets.settings_table import parse_settings
from clients.random_streams import named_stream
from ledger.protocol.documents.run import RunDocument
from ledger.protocol.errors import ConfigurationError
from ledger.protocol.types import ClientId

if TYPE_CHECKING:
    from clients.configuration.schema import Configuration

SUFFIXES = (".npz", ".safetensors")


def own_parts(
    configuration: Configuration,
    document: RunDocument,
    clients: Sequence[ClientId],
    data_path: Path | None = None,
    salts: Mapping[ClientId, bytes] | None = None,
) -> FederatedData:
    """Return the part of a run's data that one worker needs.

    Args:
        document: of the run, whose registry has each client's number of samples.
        data_path: location of the files: of the data set, or, with `own`, the client's file or a
            folder with a file `0xADDRESS.npz` (or `.safetensors`), in small letters, of each.
        salts: of the same clients, to compare `own` samples with their registered digests; None
            without keys.

    Returns:
        Training samples of client i at index i; with `own` those of others are empty, and the test
        set is that of the hosted clients' files, possibly empty.
    """
    _require_clients(document, clients)
    if configuration.data.name == OWN.name:
        data = _own(configuration, document, clients, data_path)
    else:
        data = _divided(configuration, document, data_path)
    for client in clients:
        count, registered = len(data.train[client].y), document.registry[client].samples
        if count != registered:
            raise ConfigurationError(
                f"client {client} has {count} training samples here, and is registered with "
                f"{registered}"
            )
        if salts is not None and data.name == OWN.name:
            require_bound_own(document, client, data.train[client], salts[client])
    return data


def _divided(
    configuration: Configuration, document: RunDocument, data_path: Path | None
) -> FederatedData:
    choice = configuration.data.choice()
    if data_path is not None:
        choice = replace(choice, path=data_path)
    require_bound_files(document, choice)
    rng = named_stream(configuration.seed, "data")
    data = load_dataset(choice, len(document.registry), rng)
    digests = simulated_digests(data, configuration.seed)
    require_bound_samples(document, digests, data.sample_counts)
    return data


def _own(
    configuration: Configuration,
    document: RunDocument,
    clients: Sequence[ClientId],
    data_path: Path | None,
) -> FederatedData:
    if data_path is None:
        raise ConfigurationError(
            f"data.name = {OWN.name}: give the file of your own samples with --data"
        )
    options = parse_settings(OwnOptions, configuration.data.options, "data.options")
    samples = {
        client: read_own(_file_of(document, client, clients, data_path), options)
        for client in clients
    }
    nothing = _nothing(next(iter(samples.values())))
    return FederatedData(
        name=OWN.name,
        form=options.form(),
        train=tuple(
            samples[client].train if client in samples else nothing
            for client in map(ClientId, range(len(document.registry)))
        ),
        test=_joined([part.test for part in samples.values() if part.test is not None], nothing),
        collate=options.collate(),
        # How clients are trained together depends on the sizes of all: on no one's host.
        registered=tuple(client.samples for client in document.registry),
    )


def _file_of(
    document: RunDocument, client: ClientId, clients: Sequence[ClientId], data_path: Path
) -> Path:
    """Return the file with a client's own samples."""
    if not data_path.is_dir():
        if len(clients) > 1:
            raise ConfigurationError(
                f"--data {data_path}: {len(clients)} clients have a file each: give their folder"
            )
        return data_path
    name = f"0x{document.registry[client].address.hex()}"
    for suffix in SUFFIXES:
        if (path := data_path / f"{name}{suffix}").exists():
            return path
    raise ConfigurationError(
        f"--data {data_path}: has no {name}{' or '.join(SUFFIXES)} of client {client}"
    )


def _nothing(samples: OwnSamples) -> Samples:
    return frozen_samples(samples.train.x[:0], samples.train.y[:0])


def _joined(parts: list[Samples], nothing: Samples) -> Samples:
    if len(parts) <= 1:
        return parts[0] if parts else nothing
    return frozen_samples(
        np.concatenate([part.x for part in parts]), np.concatenate([part.y for part in parts])
    )


def _require_clients(document: RunDocument, clients: Sequence[ClientId]) -> None:
    """Refuse clients that are not registered."""
    if not clients:
        raise ConfigurationError("there is no client whose samples could be loaded")
    for client in clients:
        if not 0 <= client < len(document.registry):
            raise ConfigurationError(
                f"client {client}: the registry has clients 0 .. {len(document.registry) - 1}"
            )
