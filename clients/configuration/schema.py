"""The configuration of a run: each setting with its type, default and description.

`cmfl settings` prints the text under a setting. `parsing` checks rules that join several settings,
and names in registries; `loading` checks names of attacks and faults.

Settings that change the result are recorded on the chain by digest. `machine` and `evaluation` are
not, so that the same run on more workers has the same configuration, unless `early_stop` uses them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

import tomli_w
from pydantic import BeforeValidator, Field
from pydantic_core import PydanticCustomError

from clients.datasets.federated_data import SettingsTable
from clients.datasets.registry import DataChoice
from clients.devices import InstructionSet
from clients.models.model import Option
from clients.training.port import LocalTraining
from clients.training.ray_engine import LOCAL
from ledger.chain.embedded.chain_store import fresh_chain_id
from ledger.claims import EarlyStopRule
from ledger.io.user_code import own_rule
from ledger.protocol.encoding import sha256
from ledger.protocol.errors import ParametersError
from ledger.protocol.parameters import (
    COMMIT_BLOCKS,
    DEADLINE_BLOCKS,
    MAX_CLIENTS,
    VIEW_SECONDS,
    Parameters,
    parts_per_million,
)
from ledger.protocol.payloads import FLOAT32, PAYLOAD_FORMS, PayloadForm
from ledger.protocol.rules.distance import SQUARED, OwnRuleName
from ledger.protocol.types import AcceptanceForm, Beacon, Quorum

_BY_VALUE = Field(strict=False)
"""An enumeration's member may be given by its value, which is all that TOML knows."""

Attacked = Literal["update", "weights"]
"""The vector that an attack changes."""
Attacking = Literal["members", "trainers"]
"""A restriction to attackers on the committee, or to those that train; the others are honest."""
Count = Annotated[int, Field(ge=0, le=MAX_CLIENTS)]
Rate = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]

RATES = {f"{share}_ppm": f"{share}_rate" for share in ("active", "committee", "aggregation")}
"""The setting behind each parameter that is a share in millionths."""

REMOVED = {
    "protocol.scoring": "a score is the mean of the distances",
    "protocol.reference": "strategy 3 always compares with the round's peers",
    "protocol.threshold": "strategy 3 always accepts the distances below 2",
    "protocol.clip": "strategy 3 always clips to a quantile of the round's lengths",
    "protocol.election": "strategy 3 always elects by lot, strategies 1 and 2 from the middle",
    "protocol.scores_checked": "members always leave out false score vectors",
}
"""Settings that protocol 3 removed, each with its successor."""

REMOVED_DISTANCES = {
    "direction": "strategy 3 always measures directions",
    "l2": 'strategies 1 and 2 measure "squared", or your own function as file.py:name',
    "per_tensor": 'strategies 1 and 2 measure "squared", or your own function as file.py:name',
}
"""Values of `protocol.distance` that protocol 3 removed, each with its successor."""


def _one_value(value: object) -> object:
    if isinstance(value, int | float | str | bool):
        return value
    raise PydanticCustomError("one_value", "must be one number, a text, true or false")


class ProtocolSection(SettingsTable):
    """The protocol's parameters; see `ledger.protocol.parameters.Parameters`, which checks them.

    Shares are decimals here and whole millionths there. The strategy determines distance, score,
    selection, weights, clip and election. Strategies 1 and 2 are the paper's. They assume that the
    members include no attackers: one member's wild update can replace the model.
    """

    clients: int
    """K, the number of registered clients."""
    active_rate: Rate = 0.5
    """Share of the clients that are active in a round, as trainers or members."""
    committee_rate: Rate = 0.4
    """omega, share of the active clients that sit on the committee."""
    aggregation_rate: Rate = 0.4
    """alpha, share of the ranked updates that strategies 1 and 2 accept."""
    rounds: int = 40
    """T, the number of rounds."""
    strategy: int = 1
    """Rules of a round: 1 or 2 for a committee without attackers, 3 against attackers."""
    distance: str = SQUARED.name
    """Distance between updates in strategies 1 and 2, or your own function: file.py:name."""
    quorum: Annotated[Quorum, _BY_VALUE] = Quorum.PAPER
    """Number of equal replies that decide: the paper's majority, or a Byzantine quorum."""
    server_rate: float = 1.0
    """eta, the global learning rate, above 0."""
    beacon: Annotated[Beacon, _BY_VALUE] = Beacon.NONE
    """Further input of the next seed: none, or the hash of a block."""
    commit_blocks: int = COMMIT_BLOCKS
    """Number of blocks after the opening block that accept commitments."""
    deadline_blocks: int = DEADLINE_BLOCKS
    """Number of blocks before an undecided round may be abandoned, at least commit_blocks + 2."""
    view_seconds: int = VIEW_SECONDS
    """Seconds of view 0; each later view lasts twice as long as the one before."""
    payload: str = FLOAT32.name
    """Form of published updates: four bytes per number, or rounded to one byte."""

    @property
    def payload_form(self) -> PayloadForm:
        return PAYLOAD_FORMS[self.payload]

    def parameters(self, dimension: int) -> Parameters:
        values = self.model_dump()
        values["distance"] = self._distance()
        for parameter, rate in RATES.items():
            values[parameter] = parts_per_million(rate, values.pop(rate))
        try:
            return Parameters(**values | {"dimension": dimension})
        except ParametersError as error:
            raise self._named(error) from error

    def _distance(self) -> str:
        """Return the distance's name in parameters; load the user's own function."""
        if self.distance == SQUARED.name:
            return self.distance
        setting = "protocol.distance"
        if self.distance in REMOVED_DISTANCES:
            fault = f": removed in protocol 3; {REMOVED_DISTANCES[self.distance]}"
            raise ParametersError(fault, setting, self.distance)
        if self.strategy == AcceptanceForm.BELOW_TWO:
            fault = ": goes with strategies 1 and 2 only; strategy 3 always measures directions"
            raise ParametersError(fault, setting, self.distance)
        if OwnRuleName.of(self.distance) is not None:  # of a run document, whose code is loaded
            return self.distance
        name = own_rule(self.distance)
        if name is None:
            fault = f': is neither "{SQUARED.name}" nor your own function, file.py:name'
            raise ParametersError(fault, setting, self.distance)
        return name

    def _named(self, error: ParametersError) -> ParametersError:
        """Return an error about parameters under the setting's name, with its value."""
        setting = RATES.get(error.name or "", error.name)
        if setting not in ProtocolSection.model_fields:
            return error
        value = getattr(self, setting) if setting in RATES.values() else error.value
        return ParametersError(error.rule, f"protocol.{setting}", value)


class DataSection(SettingsTable):
    """Data set, and its division among the clients; `clients.datasets.registry` checks both.

    The default partition is the data's own ("natural"), or "dirichlet" for data without clients.
    """

    name: str = "digits"
    """Name of the data set."""
    path: Annotated[str, Field(min_length=1)] | None = None
    """File or folder of the data. A run records the digest of the data, not the path."""
    options: dict[str, Any] = Field(default_factory=dict)
    """Options of the data set; see cmfl settings data."""
    partition: dict[str, Any] = Field(default_factory=dict)
    """Division of the samples among clients, by name and keys; see cmfl settings data."""

    def choice(self) -> DataChoice:
        path = Path(self.path) if self.path else None
        return DataChoice(self.name, path, self.options, self.partition)


class ModelSection(SettingsTable):
    """Model, and its options."""

    name: Annotated[str, Field(min_length=1)] = "softmax"
    """Built-in model, or your own class: file.py:Class or package:Class."""
    options: dict[str, Annotated[Option, BeforeValidator(_one_value)]] = Field(default_factory=dict)
    """Options of the model, or keyword arguments of your class; see docs/reference/models.md."""


class EvaluationSection(SettingsTable):
    """Evaluations of a run in addition to accuracy and loss on the test set."""

    every: Annotated[int, Field(ge=1, le=2**31 - 1)] = 1
    """Number of rounds from one evaluation to the next; the last model is always evaluated."""
    samples: Annotated[int, Field(ge=1, le=2**31 - 1)] | None = None
    """Number of test samples, drawn once. Default: all."""
    training_loss: bool = False
    """Also measure the loss on all clients' training samples."""
    per_client: bool = False
    """Also measure the accuracy on each client's own test samples."""


class MaliceSection(SettingsTable):
    """Misbehaviour: clients that attack their updates, members and trainers with faults.

    An attack on updates may be made on the trained weights instead, as in the authors' code: `on`
    says which. With `only`, attackers are honest while they train, or while they are members.
    """

    attack: str | None = None
    """Attack of the malicious clients; see cmfl settings attacks. Needs malicious_rate."""
    malicious_rate: Rate = 0.0
    """epsilon, share of all clients that attack, for the whole run."""
    factor: float | None = None
    """Free parameter of the attack. Default: the attack's own."""
    on: Attacked | None = None
    """Vector that the attack changes. Default: update."""
    only: Attacking | None = None
    """Role in which attackers attack: members or trainers. Default: both."""
    members: dict[str, Count] = Field(default_factory=dict)
    """Number of clients with each fault on the committee; see cmfl settings faults."""
    trainers: dict[str, Count] = Field(default_factory=dict)
    """Number of clients with each fault as trainers; see cmfl settings faults."""


class MachineSection(SettingsTable):
    """Execution of the run; only `isa` and `device` change the result, by its last bits.

    On Ray, workers are actors of the cluster at the address, or of one that starts with the run. On
    Flower, each client has a SuperNode of a simulation that starts with the run.
    """

    device: Annotated[str, Field(pattern=r"^(cpu|auto|cuda(:[0-9]{1,2})?)$")] = "cpu"
    """Device of the tensors: cpu, cuda, one card as cuda:1, or auto (cuda if available)."""
    workers: Annotated[int, Field(ge=1, le=256)] = 1
    """Number of processes that train, hash and evaluate."""
    ledger: Literal["chain", "memory"] = "chain"
    """Place where rounds are decided. A run in memory is not recorded and cannot be audited."""
    engine: Literal["local", "ray", "flower"] = "local"
    """Place of the workers: this machine, actors of a Ray cluster, or SuperNodes of Flower."""
    ray_address: Annotated[str, Field(min_length=1)] | None = None
    """Address of the Ray cluster. Default: a cluster that starts with the run."""
    isa: InstructionSet | None = None
    """Newest instruction set that training uses. Default: the processor's newest."""
    keep: Literal["all", "accepted"] | Annotated[int, Field(ge=1, le=2**31 - 1)] = "all"
    """Payloads to keep: all, those of accepted updates, or all of the last N rounds."""

    @property
    def cluster(self) -> str | None:
        return (self.ray_address or LOCAL) if self.engine == "ray" else None

    @property
    def trains_elsewhere(self) -> bool:
        return self.engine != "local"


class EarlyStopSection(SettingsTable):
    """End of a run before its last round, by what is measured; see `ledger.claims`."""

    metric: Literal["accuracy", "loss"] = "accuracy"
    """Metric on the test set: accuracy or loss."""
    target: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None
    """Value of the metric at which the run ends: at least this accuracy, or at most this loss."""
    patience: Annotated[int, Field(ge=1, le=2**31 - 1)] | None = None
    """Number of evaluations in a row without a better model after which the run ends."""
    min_delta: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0
    """Difference that a better model must exceed, compared with the best model so far."""

    def rule(self) -> EarlyStopRule | None:
        return None if self == EarlyStopSection() else EarlyStopRule(**self.model_dump())


class TrackSection(SettingsTable):
    """Experiment trackers that a run is also logged to; a tracker cannot make it fail."""

    mlflow: Annotated[str, Field(min_length=1)] | None = None
    """Folder of MLflow's database and files, or a tracking URI."""
    tensorboard: Annotated[str, Field(min_length=1)] | None = None
    """Folder of TensorBoard's event files."""
    wandb: Annotated[str, Field(min_length=1)] | None = None
    """Folder of Weights & Biases' offline runs."""
    project: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,99}$")] = "cmfl"
    """Name of the MLflow experiment and of the Weights & Biases project."""
    link: Annotated[str, Field(min_length=1, max_length=1000)] | None = None
    """Link in the records, such as the URL of a service. Default: the home's path."""
    model: bool = True
    """Also log the model."""
    audit: bool = True
    """Audit the run at its end, and log the verdict."""

    @property
    def used(self) -> dict[str, str]:
        return self.model_dump(include={"mlflow", "tensorboard", "wandb"}, exclude_none=True)


class Configuration(SettingsTable):
    """Everything about a run."""

    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    """Seed of all randomness in the run."""
    protocol: ProtocolSection
    data: DataSection = DataSection()
    model: ModelSection = ModelSection()
    training: LocalTraining = LocalTraining(local_steps=5)
    malice: MaliceSection = MaliceSection()
    evaluation: EvaluationSection = EvaluationSection()
    early_stop: EarlyStopSection = EarlyStopSection()
    machine: MachineSection = MachineSection()
    track: TrackSection = TrackSection()

    @classmethod
    def names(cls) -> Iterator[str]:
        for key, field in cls.model_fields.items():
            below = field.annotation
            if isinstance(below, type) and issubclass(below, SettingsTable):
                yield from (f"{key}.{name}" for name in below.model_fields)
            else:
                yield key

    def parameters(self, dimension: int) -> Parameters:
        return self.protocol.parameters(dimension)

    def on_path(self, path: Literal["auto", "plain", "lockstep"]) -> Configuration:
        if self.training.path != "auto":
            return self
        training = self.training.model_copy(update={"path": path})
        return self.model_copy(update={"training": training})

    def recorded(self) -> dict[str, Any]:
        """Return the part that the result depends on, which the chain has by digest."""
        left_out = {"protocol", "machine", "track"}
        if self.early_stop.rule() is None:
            left_out |= {"evaluation", "early_stop"}
        return self.model_dump(exclude=left_out, exclude_none=True)

    def chain_id(self) -> int:
        """Return the id of the chain that a simulation creates in a new home.

        It follows from seed, protocol and training, so that equal commands give equal heads.
        Everything else, code and data included, is in the salt of the contract's domain.
        """
        followed = self.model_dump(
            mode="json",
            include={"seed": True, "protocol": True, "training": True},
            exclude={"protocol": {"distance"}, "training": {"path"}},
        )
        digest = sha256(json.dumps(followed, sort_keys=True).encode())
        return fresh_chain_id(int.from_bytes(digest))

    def to_toml(self) -> str:
        values = self.model_dump(exclude_none=True)
        if self.protocol.payload == FLOAT32.name:
            del values["protocol"]["payload"]  # so that texts from before it have the same bytes
        if self.early_stop.rule() is None:
            del values["early_stop"]
        if self.track == TrackSection():
            del values["track"]
        return tomli_w.dumps(values)
