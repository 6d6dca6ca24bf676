"""Owners from outside as the clients of a configuration: what must fit before a run is deployed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from clients.chance import named_stream
from clients.datasets.options import parsed
from clients.datasets.own import OWN, OwnOptions, tried_data
from clients.datasets.registry import load_dataset
from clients.sections import MaliceSection
from ledger.protocol.errors import ConfigurationError

if TYPE_CHECKING:
    from clients.configuration import Configuration
    from clients.datasets.federated import FederatedData
    from ledger.protocol.types import RegisteredClient


def data_of_owners(
    configuration: Configuration, owners: tuple[RegisteredClient, ...]
) -> FederatedData:
    """Return the data by which a run of owners from outside is prepared.

    Args:
        configuration: of the run.
        owners: by ascending address.

    Returns:
        The divided data set; where each owner has samples of its own, a few of their form that are
        drawn for the trial of the model and trained by nobody.

    Raises:
        ConfigurationError: another number of clients, somebody who misbehaves by configuration, or
            an owner who has registered another number of samples than its part has.
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
        options = parsed(OwnOptions, configuration.data.options, "data.options")
        return tried_data(options, clients, named_stream(configuration.seed, "tried data"))
    rng = named_stream(configuration.seed, "data")
    data = load_dataset(configuration.data.choice(), clients, rng)
    for client, (owner, held) in enumerate(zip(owners, data.sample_counts, strict=True)):
        if owner.samples != held:
            raise ConfigurationError(
                f"client {client}, 0x{owner.address.hex()}: has registered {owner.samples} "
                f"samples, and its part of {configuration.data.name!r} has {held}"
            )
    return data
