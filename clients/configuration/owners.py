"""Owners with keys of their own as the clients of a configuration, checked before deployment."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from clients.configuration.loading import checked
from clients.configuration.parsing import (
    plain_values,
    require_no_live_settings,
    require_unpredictable,
    set_block_beacon,
)
from clients.configuration.schema import Configuration, MaliceSection
from clients.datasets.federated_data import FederatedData, Samples, parse_settings
from clients.datasets.own import OWN, OwnOptions, read_own, trial_data
from clients.datasets.own_samples import samples_digest_of
from clients.datasets.registry import load_dataset
from clients.random_streams import named_stream
from ledger.protocol.errors import ConfigurationError
from ledger.protocol.signing import KeySigner, data_salt
from ledger.protocol.types import NO_DIGEST, Digest, RegisteredClient


@dataclass(frozen=True, slots=True)
class Owners:
    """Clients of a run with keys of their own.

    Attributes:
        clients: address and samples of each, addresses ascending.
        data: digest of each one's samples, zeros where it discloses none.
    """

    clients: tuple[RegisteredClient, ...]
    data: tuple[Digest, ...]


def shared_configuration(
    preset: str | None = None,
    path: Path | None = None,
    settings: tuple[str, ...] = (),
    *,
    allow_predictable: bool = False,
) -> Configuration:
    """Return the configuration of a run that several owners share.

    The arguments are those of `clients.configuration.loading.load`. The beacon is a block's hash,
    unless given.
    """
    values = plain_values(preset, path, settings)
    set_block_beacon(values)
    configuration = checked(values)
    require_unpredictable(configuration.protocol.beacon, is_allowed=allow_predictable)
    require_no_live_settings(configuration)
    return configuration


def owner_samples(
    configuration: Configuration, samples: int | None, path: Path | None, signer: KeySigner
) -> tuple[int, Digest]:
    """Return number and digest of an owner's samples, as it registers them.

    Without a number those of the file are counted; without a file no digest is disclosed.
    """
    if path is None:
        if samples is None:
            raise ConfigurationError("say how many samples you have: --samples N, or --data FILE")
        return samples, NO_DIGEST
    if configuration.data.name != OWN.name:
        raise ConfigurationError(
            f"--data {path}: the samples of {configuration.data.name!r} are divided from files for "
            f"all, and bound without it; give --samples alone"
        )
    train = _training_samples(configuration, path)
    if samples not in {None, len(train.y)}:
        raise ConfigurationError(f"--samples {samples}: {path} has {len(train.y)}")
    return len(train.y), samples_digest_of(train, data_salt(signer))


def samples_with_salt(configuration: Configuration, path: Path, salt: bytes) -> tuple[int, Digest]:
    """Return number and digest of an owner's samples, for whoever has its salt."""
    if configuration.data.name != OWN.name:
        raise ConfigurationError(
            f"{path}: the samples of {configuration.data.name!r} are divided from files for all, "
            f"and no owner's key salts them; only those of 'own' are an owner's"
        )
    train = _training_samples(configuration, path)
    return len(train.y), samples_digest_of(train, salt)


def data_of_owners(
    configuration: Configuration, owners: tuple[RegisteredClient, ...]
) -> FederatedData:
    """Return the data that prepare a run of several owners.

    Where each owner has private samples, they are a few drawn ones of their form, to try the model.
    """
    clients = configuration.protocol.clients
    if clients != len(owners):
        raise ConfigurationError(
            f"protocol.clients = {clients}: the registry has {len(owners)} clients; set it to that"
        )
    if configuration.malice != MaliceSection():
        raise ConfigurationError(
            "malice is set: what owners from outside do, no configuration says; take it out"
        )
    if configuration.data.name == OWN.name:
        options = parse_settings(OwnOptions, configuration.data.options, "data.options")
        return trial_data(options, clients, named_stream(configuration.seed, "tried data"))
    rng = named_stream(configuration.seed, "data")
    data = load_dataset(configuration.data.choice(), clients, rng)
    for client, (owner, held) in enumerate(zip(owners, data.sample_counts, strict=True)):
        if owner.samples != held:
            raise ConfigurationError(
                f"client {client}, 0x{owner.address.hex()}: has registered {owner.samples} "
                f"samples, and its part of {configuration.data.name!r} has {held}"
            )
    return data


def _training_samples(configuration: Configuration, path: Path) -> Samples:
    options = parse_settings(OwnOptions, configuration.data.options, "data.options")
    return read_own(path, options).train
