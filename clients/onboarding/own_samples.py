"""The samples of the clients that one worker hosts, whichever data set the run has.

Of a data set that has files for all, the worker divides it as everybody would and takes its
clients' parts: part i is client i's. Of `own` it reads its clients' own files and no others.
"""

from __future__ import annotations

from dataclasses import replace
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
from ledger.protocol.errors import ConfigurationError
from ledger.protocol.types import ClientId

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from clients.configuration.schema import Configuration
    from ledger.protocol.documents.run import RunDocument

SUFFIXES = (".npz", ".safetensors")


def own_part(
    configuration: Configuration,
    document: RunDocument,
    client: ClientId,
    data_path: Path | None = None,
) -> Samples:
    """Return the training samples of one client.

    Args:
        configuration: of the run, as `configuration_of` returns it.
        document: of the run.
        client: which.
        data_path: see `own_parts`.

    Raises:
        ConfigurationError: see `own_parts`.
    """
    return own_parts(configuration, document, (client,), data_path).train[client]


def own_parts(
    configuration: Configuration,
    document: RunDocument,
    clients: Sequence[ClientId],
    data_path: Path | None = None,
    salts: Mapping[ClientId, bytes] | None = None,
) -> FederatedData:
    """Return a run's data as far as one worker has to do with them; it is read once for all.

    Args:
        configuration: of the run, as `configuration_of` returns it.
        document: of the run, whose registry says how many samples each client has.
        clients: that this worker hosts.
        data_path: where the files lie here: of the data set, or, with `own`, the one client's file
            or a folder with a file `0xADDRESS.npz` (or `.safetensors`), in small letters, of each.
        salts: of the same clients, by which their `own` samples are compared with the digests that
            they have registered; None where no key is at hand.

    Returns:
        Training samples of client i at index i; with `own` those of others are empty, and the test
        set is what the hosted clients' files have for the test, which may be nothing.

    Raises:
        ConfigurationError: a file is missing, damaged, not the one that the run was deployed with
            or of another form, or a client has another number of samples than the registry says.
    """
    _require_clients(document, clients)
    if configuration.data.name == OWN.name:
        data = _own(configuration, document, clients, data_path)
    else:
        data = _divided(configuration, document, data_path)
    for client in clients:
        held, registered = len(data.train[client].y), document.registry[client].samples
        if held != registered:
            raise ConfigurationError(
                f"client {client} has {held} training samples here, and is registered with "
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
    found = {
        client: read_own(_file_of(document, client, clients, data_path), options)
        for client in clients
    }
    nothing = _nothing(next(iter(found.values())))
    return FederatedData(
        name=OWN.name,
        form=options.form(),
        train=tuple(
            found[client].train if client in found else nothing
            for client in map(ClientId, range(len(document.registry)))
        ),
        test=_joined([one.test for one in found.values() if one.test is not None], nothing),
        collate=options.collate(),
    )


def _file_of(
    document: RunDocument, client: ClientId, clients: Sequence[ClientId], data_path: Path
) -> Path:
    """Return the file with a client's own samples.

    Raises:
        ConfigurationError: there is none in the folder, or one file is given for several clients.
    """
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
    """Refuse clients that are not registered.

    Raises:
        ConfigurationError: names the first, or says that there is none at all.
    """
    if not clients:
        raise ConfigurationError("there is no client whose samples could be loaded")
    for client in clients:
        if not 0 <= client < len(document.registry):
            raise ConfigurationError(
                f"client {client}: the registry has clients 0 .. {len(document.registry) - 1}"
            )
