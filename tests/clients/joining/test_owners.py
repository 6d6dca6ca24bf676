"""A run of owners from outside is prepared from their registry, and from nothing simulated."""

from __future__ import annotations

import pytest

from clients.configuration import load
from clients.runs.population import populate, run_document
from clients.runs.preparing import settled
from ledger.protocol.errors import ConfigurationError
from ledger.protocol.joining import registry_digest_of
from ledger.protocol.ledger_state import deployment_of
from ledger.protocol.types import Digest, RegisteredClient
from tests.clients.joining.owners import agreed, document_of, registry_of

OWNERS = registry_of().clients


def test_addresses_and_samples_are_the_registrys_and_no_key_is_known() -> None:
    registry = registry_of()
    population, document = populate(agreed(), OWNERS), document_of(registry)
    assert (population.signers, population.registry) == ((), OWNERS)
    assert document.registry == OWNERS
    data = {"name": "own", "options": {"inputs": "numbers", "shape": [1, 2, 2], "classes": 3}}
    assert document.experiment["data"] == {**data, "partition": {"name": "natural"}}
    deployment, _ = deployment_of(
        document.parameters, Digest(bytes(32)), document.registry, document.initial_model
    )
    assert registry.digest == registry_digest_of(OWNERS) == deployment.registry


def test_owners_who_do_not_fit_the_configuration_are_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"protocol\.clients = 8: the registry has 6"):
        populate(agreed("protocol.clients=8"), OWNERS)
    malicious = ("malice.attack=gradient-scaling", "malice.malicious_rate=0.2")
    for settings in (malicious, ("malice.members.silent=1",)):
        with pytest.raises(ConfigurationError, match="malice is set"):
            populate(agreed(*settings), OWNERS)
    with pytest.raises(ConfigurationError, match=r"shakespeare_lstm"):
        populate(agreed("model.name=shakespeare_lstm"), OWNERS)


def test_owners_of_a_divided_data_set_register_what_their_parts_have() -> None:
    settings = ("protocol.clients=6", "protocol.active_rate=1.0", "protocol.committee_rate=0.5")
    configuration = load("smoke", settings=settings)
    counts = populate(configuration).data.sample_counts
    fitting = tuple(
        RegisteredClient(owner.address, count) for owner, count in zip(OWNERS, counts, strict=True)
    )
    population = populate(configuration, fitting)
    assert run_document(settled(configuration, population), population).registry == fitting
    first, *rest = fitting
    wrong = (RegisteredClient(first.address, first.samples + 1), *rest)
    with pytest.raises(ConfigurationError, match=r"client 0, 0x\w+: has registered \d+ samples"):
        populate(configuration, wrong)
