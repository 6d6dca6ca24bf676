"""The malicious and faulty clients of a run; a run without any does not load this module."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from clients.adversaries.attackers import Attackers, AttackMemory, false_model, malicious_clients
from clients.adversaries.faults import MemberFault, TrainerFault, assign_faults
from clients.attacks.registry import attack_code, attack_named, try_attack
from clients.attacks.samples import DATA_ATTACKS, poisoned
from clients.attacks.updates import attack_parameters
from clients.configuration.schema import Configuration
from clients.datasets.federated_data import FederatedData, named_stream
from clients.runs.population import Population
from ledger.io.home import naming
from ledger.protocol.encoding import RegisteredClient
from ledger.protocol.errors import ConfigurationError
from ledger.protocol.types import ClientId


def with_adversaries(population: Population, configuration: Configuration) -> Population:
    """Return a population whose clients attack and fail as a configuration states."""
    seed, malice = configuration.seed, configuration.malice
    malicious = malicious_of(configuration)
    data_attack = DATA_ATTACKS.get(malice.attack or "")
    attack = None if data_attack else malice.attack
    if malice.attack is not None and attack_code(malice.attack) is not None:
        try_attack(attack_named(malice.attack), population.model.dimension)
    data = population.clean
    if data_attack is not None:
        with naming("malice.attack", ConfigurationError):
            data = poisoned_by(configuration, data)
    honest = [c for c in range(configuration.protocol.clients) if c not in malicious]
    with naming("malice.members", ConfigurationError):
        of_members = {MemberFault(name): count for name, count in sorted(malice.members.items())}
        members = assign_faults(honest, of_members, named_stream(seed, "member faults"))
    with naming("malice.trainers", ConfigurationError):
        of_trainers = {TrainerFault(name): count for name, count in sorted(malice.trainers.items())}
        others = [client for client in honest if client not in members]
        trainers = assign_faults(others, of_trainers, named_stream(seed, "trainer faults"))
    parameters, registry = attack_parameters(malice), population.registry
    if population.signers:
        forging = Attackers(malicious, attack, parameters)
        counts = forging.declared_samples(population.clean.sample_counts)
        addresses = (client.address for client in registry)
        registry = tuple(map(RegisteredClient, addresses, counts))
    return replace(
        population,
        registry=registry,
        data=data,
        malicious=malicious,
        attack=attack,
        data_attack=data_attack,
        attack_parameters=parameters,
        member_faults={ClientId(client): fault for client, fault in members.items()},
        trainer_faults={ClientId(client): fault for client, fault in trainers.items()},
    )


def malicious_of(configuration: Configuration) -> frozenset[ClientId]:
    """Return the clients that attack."""
    rng = named_stream(configuration.seed, "malicious")
    clients, rate = configuration.protocol.clients, configuration.malice.malicious_rate
    return frozenset(map(ClientId, malicious_clients(clients, rate, rng)))


def poisoned_by(configuration: Configuration, clean: FederatedData) -> FederatedData:
    """Return data with the attackers' samples poisoned."""
    malice, attackers = configuration.malice, malicious_of(configuration)
    attack, parameters = DATA_ATTACKS[malice.attack or ""], attack_parameters(malice)
    return poisoned(clean, attackers, attack, parameters, configuration.seed)


def attack_memory(population: Population, configuration: Configuration) -> AttackMemory | None:
    """Return what the attackers know before a run begins; None unless their attack needs it."""
    if not population.attackers.need_history:
        return None
    training, device = configuration.training, configuration.machine.device
    malicious, seed = population.malicious, configuration.seed
    model, data, initial = population.model, population.data, population.initial
    with naming("malice.attack", ConfigurationError):
        bad_model = false_model(model, data, malicious, training, initial, device, seed)
    return AttackMemory(bad_model, malicious)


def record_attack(recorded: dict[str, Any], name: str) -> None:
    """Add the code of an own attack to the settings in a run document."""
    attack = attack_code(name)
    if attack is not None:
        recorded["malice"] |= {"attack": attack.label}
        recorded["sources"] = {"attack": {"name": attack.label, **attack.recorded()}}
