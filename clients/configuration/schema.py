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
    """K, how many clients are registered."""
    active_rate: Rate = 0.5
    """Share of the clients that train or serve in a round."""
    committee_rate: Rate = 0.4
    """omega, share of the active clients that sit on the committee."""
    aggregation_rate: Rate = 0.4
    """alpha, share of the ranked updates that strategies I and II accept."""
    rounds: int = 40
    """T, how many rounds there are."""
    strategy: int = 1
    """Rules of a round: 1 or 2 if no attackers are among the members, 3 against attackers."""
    distance: str = SQUARED.name
    """Distance between updates in strategies 1 and 2, or a function of yours: file.py:name."""
    quorum: Annotated[Quorum, _BY_VALUE] = Quorum.PAPER
    """How many equal replies decide: those of the paper, or of a Byzantine quorum."""
    server_rate: float = 1.0
    """eta, the global learning rate, above 0."""
    beacon: Annotated[Beacon, _BY_VALUE] = Beacon.NONE
    """What else flows into the next seed: nothing, or a block's hash."""
    commit_blocks: int = COMMIT_BLOCKS
    """Blocks after the opening one in which commitments are taken."""
    deadline_blocks: int = DEADLINE_BLOCKS
    """Blocks after which an undecided round may be abandoned, commit_blocks + 2 at least."""
    view_seconds: int = VIEW_SECONDS
    """How long view 0 lasts; every later one lasts twice as long."""
    payload: str = FLOAT32.name
    """How updates are published: in four bytes a number, or rounded to one."""

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
    """Which data set."""
    path: Annotated[str, Field(min_length=1)] | None = None
    """File or folder of the data; a run records the digest of what it reads, never the path."""
    options: dict[str, Any] = Field(default_factory=dict)
    """The data set's own settings: cmfl settings data."""
    partition: dict[str, Any] = Field(default_factory=dict)
    """How samples are divided among clients, by name and keys: cmfl settings data."""

    def choice(self) -> DataChoice:
        path = Path(self.path) if self.path else None
        return DataChoice(self.name, path, self.options, self.partition)


class ModelSection(SettingsTable):
    """Model, and its options."""

    name: Annotated[str, Field(min_length=1)] = "softmax"
    """A built-in model, or a class of yours: file.py:Class or package:Class."""
    options: dict[str, Annotated[Option, BeforeValidator(_one_value)]] = Field(default_factory=dict)
    """The built-in model's, or keyword arguments of your class: docs/reference/models.md."""


class EvaluationSection(SettingsTable):
    """Evaluations of a run in addition to accuracy and loss on the test set."""

    every: Annotated[int, Field(ge=1, le=2**31 - 1)] = 1
    """Rounds from one measured model to the next; the last is always measured."""
    samples: Annotated[int, Field(ge=1, le=2**31 - 1)] | None = None
    """Test samples to measure on, drawn once; all if not given."""
    training_loss: bool = False
    """Also the loss on all clients' training samples."""
    per_client: bool = False
    """Also the accuracy on each client's own test samples."""


class MaliceSection(SettingsTable):
    """Misbehaviour: clients that attack their updates, members and trainers with faults.

    An attack on updates may be made on the trained weights instead, as in the authors' code: `on`
    says which. With `only`, attackers are honest while they train, or while they are members.
    """

    attack: str | None = None
    """What malicious clients do: cmfl settings attacks. Goes with malicious_rate."""
    malicious_rate: Rate = 0.0
    """epsilon, share of all clients that attack, for the whole run."""
    factor: float | None = None
    """The one number that an attack may leave open; its own if not given."""
    on: Attacked | None = None
    """What the attack is made on; the update if not given."""
    only: Attacking | None = None
    """Attackers attack as members alone, or as trainers alone; always if not given."""
    members: dict[str, Count] = Field(default_factory=dict)
    """How many clients have each fault on the committee: cmfl settings faults."""
    trainers: dict[str, Count] = Field(default_factory=dict)
    """How many clients have each fault as trainers: cmfl settings faults."""


class MachineSection(SettingsTable):
    """Execution of the run; only `isa` and `device` change the result, by its last bits.

    On Ray, workers are actors of the cluster at the address, or of one that starts with the run. On
    Flower, each client has a SuperNode of a simulation that starts with the run.
    """

    device: Annotated[str, Field(pattern=r"^(cpu|auto|cuda(:[0-9]{1,2})?)$")] = "cpu"
    """Where tensors live: cpu, cuda, one card as cuda:1, or auto for cuda where there is one."""
    workers: Annotated[int, Field(ge=1, le=256)] = 1
    """Processes that train, hash and evaluate."""
    ledger: Literal["chain", "memory"] = "chain"
    """Where rounds are decided; memory records nothing, and cannot be audited."""
    engine: Literal["local", "ray", "flower"] = "local"
    """Where the workers are: on this machine, actors of a Ray cluster, or SuperNodes of Flower."""
    ray_address: Annotated[str, Field(min_length=1)] | None = None
    """Of the cluster, with engine = ray; one of the run's own if not given."""
    isa: InstructionSet | None = None
    """Newest instruction set that training uses; what the processor can do if not given."""
    keep: Literal["all", "accepted"] | Annotated[int, Field(ge=1, le=2**31 - 1)] = "all"
    """Which payloads stay: all, those of accepted updates, or all of the last N rounds."""

    @property
    def cluster(self) -> str | None:
        return (self.ray_address or LOCAL) if self.engine == "ray" else None

    @property
    def trains_elsewhere(self) -> bool:
        return self.engine != "local"


class EarlyStopSection(SettingsTable):
    """End of a run before its last round, by what is measured; see `ledger.claims`."""

    metric: Literal["accuracy", "loss"] = "accuracy"
    """What counts: accuracy on the test set, or the loss there."""
    target: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None
    """The run ends with the first model that is as good."""
    patience: Annotated[int, Field(ge=1, le=2**31 - 1)] | None = None
    """It ends after so many evaluations in a row without a better model."""
    min_delta: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0
    """By how much a model must exceed the best one so far to count as better."""

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
    """MLflow's experiment, and the project of Weights & Biases."""
    link: Annotated[str, Field(min_length=1, max_length=1000)] | None = None
    """What the records link back to, such as a service's URL; the home's path if not given."""
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
    """Of all chance in the run."""
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
