"""A run of owners from outside is prepared from their registry, and from nothing simulated."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from clients.configuration.loading import load, owner_samples
from clients.configuration.parsing import configuration_from_document
from clients.datasets.own_samples import own_parts
from clients.registration import combined_registry, proposal_digest, signed_entry
from clients.runs.population import populate, run_document, with_training_path
from ledger.protocol.encoding import RegisteredClient
from ledger.protocol.errors import ConfigurationError
from ledger.protocol.inputs import data_root
from ledger.protocol.ledger_state import deployment_of
from ledger.protocol.signing import data_salt, registry_digest_of
from ledger.protocol.types import NO_DIGEST, ClientId, Digest
from tests.clients.onboarding.owners import (
    RUN,
    agreed,
    document_of,
    owner,
    registry_of,
    samples_file,
)

OWNERS = registry_of().owners


def test_addresses_and_samples_come_from_the_registry_without_keys() -> None:
    registry = registry_of()
    population, document = populate(agreed(), OWNERS), document_of(registry)
    assert (population.signers, population.registry) == ((), OWNERS.clients)
    assert document.registry == OWNERS.clients
    data = {"name": "own", "options": {"inputs": "numbers", "shape": [1, 2, 2], "classes": 3}}
    nothing = {"digests": bytes(32 * 6)}
    assert document.experiment["data"] == {**data, "partition": {"name": "natural"}, **nothing}
    deployment, _ = deployment_of(
        document.parameters, Digest(bytes(32)), document.registry, document.initial_model
    )
    assert registry.digest == registry_digest_of(OWNERS.clients) == deployment.registry


def test_owners_who_do_not_fit_the_configuration_are_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"protocol\.clients = 8: the registry has 6"):
        populate(agreed("protocol.clients=8"), OWNERS)
    malicious = ("malice.attack=gradient-scaling", "malice.malicious_rate=0.2")
    for settings in (malicious, ("malice.members.silent=1",)):
        with pytest.raises(ConfigurationError, match="malice is set"):
            populate(agreed(*settings), OWNERS)
    with pytest.raises(ConfigurationError, match=r"shakespeare_lstm"):
        populate(agreed("model.name=shakespeare_lstm"), OWNERS)


def test_owners_of_divided_data_register_their_parts() -> None:
    settings = ("protocol.clients=6", "protocol.active_rate=1.0", "protocol.committee_rate=0.5")
    configuration = load("smoke", settings=settings)
    counts = populate(configuration).data.sample_counts
    fitting = tuple(
        RegisteredClient(owner.address, count)
        for owner, count in zip(OWNERS.clients, counts, strict=True)
    )
    population = populate(configuration, replace(OWNERS, clients=fitting))
    assert (
        run_document(with_training_path(configuration, population), population).registry == fitting
    )
    first, *rest = fitting
    wrong = (RegisteredClient(first.address, first.samples + 1), *rest)
    with pytest.raises(ConfigurationError, match=r"client 0, 0x\w+: has registered \d+ samples"):
        populate(configuration, replace(OWNERS, clients=wrong))


def test_owners_who_disclose_a_digest_are_held_to_their_samples(tmp_path: Path) -> None:
    signer, other = owner(2), owner(3)
    mine = samples_file(tmp_path / "mine.npz", 12)
    count, digest = owner_samples(agreed(), None, mine, signer)
    assert count == 12
    assert owner_samples(agreed(), 12, mine, signer) == (12, digest)
    assert owner_samples(agreed(), 12, None, signer) == (12, NO_DIGEST)
    assert owner_samples(agreed(), 12, mine, other)[1] != digest, "another key has another salt"

    entries = [
        signed_entry(owner(number), RUN, proposal_digest(agreed()), 10 + number, data)
        for number, data in enumerate([NO_DIGEST, NO_DIGEST, digest, *[NO_DIGEST] * 3])
    ]
    registry = combined_registry(("entry", entry) for entry in entries)
    document = document_of(registry)
    client = [registered.address for registered in document.registry].index(signer.address)
    leaves = [NO_DIGEST] * 6
    leaves[client] = digest
    assert document.data_root == data_root([c.samples for c in document.registry], leaves)

    told, salts = configuration_from_document(document, mine), {ClientId(client): data_salt(signer)}
    own_parts(told, document, (ClientId(client),), mine, salts)
    swapped = samples_file(tmp_path / "swapped.npz", 12, seed=5)
    with pytest.raises(ConfigurationError, match=r"expected digest 0x.*, got 0x") as caught:
        own_parts(told, document, (ClientId(client),), swapped, salts)
    assert digest.hex() in str(caught.value)
    forged = replace(document, data_root=NO_DIGEST)
    with pytest.raises(ConfigurationError, match="data_root does not match its data digests"):
        own_parts(told, forged, (ClientId(client),), mine, salts)
    number = replace(document, experiment={**document.experiment, "data": {"digests": 5}})
    with pytest.raises(ConfigurationError, match="are not bytes"):
        own_parts(told, number, (ClientId(client),), mine, salts)
    undisclosed = document_of(registry_of())
    own_parts(told, undisclosed, (ClientId(client),), swapped, salts)


def test_a_digest_of_other_samples_than_the_runs_is_refused(tmp_path: Path) -> None:
    mine = samples_file(tmp_path / "mine.npz", 12)
    with pytest.raises(ConfigurationError, match=r"--samples 11: .* has 12"):
        owner_samples(agreed(), 11, mine, owner(2))
    with pytest.raises(ConfigurationError, match="--samples N, or --data FILE"):
        owner_samples(agreed(), None, None, owner(2))
    with pytest.raises(ConfigurationError, match="the clients share the files"):
        owner_samples(load("smoke"), 12, mine, owner(2))
