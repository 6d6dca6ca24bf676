"""The clients of a run: keys, data, attacks and faults."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from clients.configuration.loading import Owners, data_of_owners
from clients.configuration.schema import Configuration, MaliceSection
from clients.datasets.federated_data import FederatedData, named_stream
from clients.datasets.own import OWN
from clients.datasets.own_samples import simulated_digests, simulated_signers
from clients.datasets.registry import data_digest, load_dataset
from clients.models.model import Model, check_model, require_class_labels
from clients.models.registry import model_named
from clients.training.lockstep.plan import plan
from ledger.io.user_code import try_rules
from ledger.protocol.documents.run import RunDocument
from ledger.protocol.encoding import RegisteredClient, sha256, vector_bytes
from ledger.protocol.errors import ConfigurationError
from ledger.protocol.inputs import data_root
from ledger.protocol.parameters import Parameters
from ledger.protocol.signing import KeySigner
from ledger.protocol.types import NO_DIGEST, ClientId, Digest

if TYPE_CHECKING:
    from clients.adversaries.attackers import Attackers, AttackMemory
    from clients.adversaries.faults import MemberFault, TrainerFault
    from clients.attacks.samples import DataAttack
    from clients.attacks.updates import AttackParameters


@dataclass(frozen=True, slots=True)
class Population:
    """Clients of a run; without adversaries among them, no code of attacks or faults is loaded."""

    parameters: Parameters
    signers: tuple[KeySigner, ...]  # keys by ascending address; none of owners from outside
    registry: tuple[RegisteredClient, ...]  # addresses, and the samples that they declare
    data: FederatedData
    clean: FederatedData
    model: Model
    data_digests: tuple[Digest, ...]
    initial: NDArray[np.float32]  # w_1, shape (d,)
    malicious: frozenset[ClientId] = frozenset()
    attack: str | None = None
    data_attack: DataAttack | None = None  # attack on samples, already applied to `data`
    attack_parameters: AttackParameters | None = None
    member_faults: Mapping[ClientId, MemberFault] = field(default_factory=dict)
    trainer_faults: Mapping[ClientId, TrainerFault] = field(default_factory=dict)

    @property
    def attackers(self) -> Attackers:
        from clients.adversaries.attackers import Attackers  # noqa: PLC0415
        from clients.attacks.updates import AttackParameters  # noqa: PLC0415

        parameters = self.attack_parameters or AttackParameters()
        return Attackers(self.malicious, self.attack, parameters)

    def attack_memory(self, configuration: Configuration) -> AttackMemory | None:
        if self.attack is None:
            return None
        from clients.runs.malice import attack_memory  # noqa: PLC0415

        return attack_memory(self, configuration)

    @property
    def favoured(self) -> frozenset[ClientId]:
        """Clients that favouring members favour: the malicious ones, else one another."""
        from clients.adversaries.faults import FAVOURS  # noqa: PLC0415

        members = self.member_faults.items()
        return self.malicious or frozenset(c for c, fault in members if fault in FAVOURS)


def populate(configuration: Configuration, owners: Owners | None = None) -> Population:
    """Return owners with their keys, or simulated clients; each part has its own random stream."""
    seed, clients = configuration.seed, configuration.protocol.clients
    if owners is None:
        clean = load_dataset(configuration.data.choice(), clients, named_stream(seed, "data"))
        signers = simulated_signers(seed, clients)
    else:
        clean, signers = data_of_owners(configuration, owners.clients), ()
    model = model_named(configuration.model.name, clean.form, configuration.model.options)
    check_model(model, clean)
    if configuration.training.calibrated:
        require_class_labels(clean.form.task)
    parameters = configuration.parameters(model.dimension)
    try_rules(parameters)
    addresses = (signer.address for signer in signers)
    registry = tuple(map(RegisteredClient, addresses, clean.sample_counts))
    if clean.name != OWN.name:
        digests = simulated_digests(clean, seed)
    else:  # zeros where an owner discloses none
        digests = (NO_DIGEST,) * clean.clients if owners is None else owners.data
    if owners is not None:
        registry = owners.clients
    initial = model.initial(named_stream(seed, "model"))
    population = Population(parameters, signers, registry, clean, clean, model, digests, initial)
    if configuration.malice == MaliceSection():
        return population
    from clients.runs.malice import with_adversaries  # noqa: PLC0415

    return with_adversaries(population, configuration)


def with_training_path(configuration: Configuration, population: Population) -> Configuration:
    """Return a configuration whose training path "auto" is replaced by the chosen one."""
    if configuration.training.path == "plain":
        return configuration
    machine = configuration.machine
    # The path is the same on every device, and this process may have no card.
    device = "cpu" if machine.trains_elsewhere else machine.device
    path_plan = plan(population.model, population.data, configuration.training, device)
    if configuration.training.path != "auto" and path_plan.path == "plain":
        raise ConfigurationError(f"training.path = lockstep: {path_plan.reason}")
    return configuration.on_path(path_plan.path)


def run_document(configuration: Configuration, population: Population) -> RunDocument:
    """Return the run document, whose digest is on the chain; it has the sha256 of each file."""
    recorded = configuration.recorded()
    recorded["data"] = data_digest(configuration.data.choice())
    if configuration.data.name == OWN.name:
        # Nobody else can compute them: each owner finds its own here.
        recorded["data"]["digests"] = b"".join(population.data_digests)
    recorded["model"] = population.model.recorded()
    if population.attack is not None:
        from clients.runs.malice import record_attack  # noqa: PLC0415

        record_attack(recorded, population.attack)
    counts = [client.samples for client in population.registry]
    return RunDocument(
        parameters=population.parameters,
        registry=population.registry,
        initial_model=sha256(vector_bytes(population.initial)),
        layout=population.model.layout,
        experiment=recorded,
        model_source=population.model.source,
        frozen_state=population.model.frozen_state,
        data_root=data_root(counts, population.data_digests),
    )
