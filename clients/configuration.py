"""One configuration of a run: read from TOML, checked, and recorded by digest on the chain.

What changes the result is recorded; how fast and where it runs (`machine`), and what is measured
of it (`evaluation`), is not, so that the same run on more workers has the same configuration.
"""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, Literal

import tomli_w
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic_core import PydanticCustomError

from clients.adversaries.data.registry import DATA_ATTACKS
from clients.adversaries.faults import MemberFault, TrainerFault
from clients.adversaries.registry import ATTACKS
from clients.adversaries.updates.attack import Attacked, Attacking, AttackParameters
from clients.datasets.registry import DataChoice, verify_choice
from clients.first_fault import first_fault
from clients.local_sgd import LocalTraining
from clients.models.model import Option
from clients.models.registry import verify_name
from ledger.bounded_toml import MAX_DOTS, MAX_TOML_BYTES, parse_toml
from ledger.home import read_text
from ledger.protocol.errors import ConfigurationError
from ledger.protocol.parameters import (
    COMMIT_BLOCKS,
    DEADLINE_BLOCKS,
    MAX_CLIENTS,
    VIEW_SECONDS,
    Parameters,
    parts_per_million,
)
from ledger.protocol.rules import registry
from ledger.protocol.types import Beacon, Quorum

PRESETS = (
    "digits",
    "digits-by-writer",
    "robust",
    "smoke",
    "paper-femnist",
    "paper-sent140",
    "paper-shakespeare",
    "authors-sent140",
    "authors-shakespeare",
)

_BY_VALUE = Field(strict=False)
"""An enumeration's member may be given by its value, which is all that TOML knows."""

Count = Annotated[int, Field(ge=0, le=MAX_CLIENTS)]
Rate = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
TrainingPath = Literal["auto", "plain", "lockstep"]
Whole = Annotated[int, Field(le=2**31 - 1)]
"""A number that msgpack can record; what uses it says how small it may be."""


def _one_value(value: object) -> object:
    if isinstance(value, int | float | str | bool):
        return value
    raise PydanticCustomError("one_value", "must be one number, a text, true or false")


_Scalar = Annotated[Option, BeforeValidator(_one_value)]


class _Section(BaseModel):
    """A table of the TOML file: no unknown keys, no guessing of types."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class ProtocolSection(_Section):
    """The protocol's parameters; see `ledger.protocol.parameters.Parameters`, which checks them.

    Shares are decimals here and whole millionths there. Strategy, scoring, distance, reference and
    threshold are those of `ledger.protocol.rules.registry`. A threshold that is not given is the
    one made for the distance, where the strategy needs one ("direction" for distance =
    "direction"), else the first that goes with any distance ("spread"), and "none" where the
    strategy needs none.
    """

    clients: int
    active_rate: Rate = 0.5
    committee_rate: Rate = 0.4
    aggregation_rate: Rate = 0.4
    rounds: int = 40
    strategy: int = 1
    scoring: str = "mean"
    distance: str = "squared"
    reference: str = "own"
    threshold: str | None = None
    quorum: Annotated[Quorum, _BY_VALUE] = Quorum.PAPER
    server_rate: float = 1.0
    scores_checked: bool = True
    beacon: Annotated[Beacon, _BY_VALUE] = Beacon.NONE
    commit_blocks: int = COMMIT_BLOCKS
    deadline_blocks: int = DEADLINE_BLOCKS
    view_seconds: int = VIEW_SECONDS

    def parameters(self, dimension: int) -> Parameters:
        """Return the protocol's parameters.

        Args:
            dimension: d, from the model.

        Returns:
            Shares in millionths, and the threshold that is meant where none is given.
        """
        values = self.model_dump()
        for share in ("active", "committee", "aggregation"):
            rate = values.pop(f"{share}_rate")
            values[f"{share}_ppm"] = parts_per_million(f"{share}_rate", rate)
        threshold = self._usual() if self.threshold is None else self.threshold
        return Parameters(**values | {"dimension": dimension, "threshold": threshold})

    def _usual(self) -> str:
        """Return the threshold that is meant where none is given."""
        selection = registry.SELECTIONS.get(self.strategy)
        is_needed = selection is not None and selection.needs_threshold
        fitting = [
            rule
            for rule in registry.THRESHOLDS.values()
            if rule.is_certified == is_needed and rule.distance in {None, self.distance}
        ]
        return min(fitting, key=lambda rule: rule.distance is None).name


class DataSection(_Section):
    """Which data, and how they are divided among the clients.

    The options are those of the data set, the partition's keys those of its partitioner: see
    `clients.datasets.registry`, which checks both. Without a partition it is the data's own
    ("natural"), or "dirichlet" where the data know no clients.
    """

    name: str = "digits"
    path: Annotated[str, Field(min_length=1)] | None = None
    options: dict[str, Any] = {}
    partition: dict[str, Any] = {}

    def choice(self) -> DataChoice:
        """Return what the registry of data sets is asked for."""
        path = Path(self.path) if self.path else None
        return DataChoice(self.name, path, self.options, self.partition)


class ModelSection(_Section):
    """Which model: a built-in one by name, or `file.py:Class`, or `package:Class`.

    The options are the built-in model's, or keyword arguments of the class.
    """

    name: Annotated[str, Field(min_length=1)] = "softmax"
    options: dict[str, _Scalar] = {}


class TrainingSection(_Section):
    """How each client trains; see `clients.local_sgd.LocalTraining`.

    A path is a way to compute the same steps: updates of two paths differ in their last digits, so
    the one that "auto" comes to is settled when a run is prepared, and recorded.
    """

    learning_rate: float = 0.1
    batch_size: Whole = 32
    local_steps: Whole | None = None
    local_epochs: Whole | None = None
    proximal: float | None = None
    path: TrainingPath = "auto"


class EvaluationSection(_Section):
    """What is measured of a run beside accuracy and loss on the test set.

    Rounds between two that are measured have neither; the last round is always measured.
    """

    every: Annotated[int, Field(ge=1, le=2**31 - 1)] = 1
    samples: Annotated[int, Field(ge=1, le=2**31 - 1)] | None = None
    training_loss: bool = False
    per_client: bool = False


class MaliceSection(_Section):
    """Who misbehaves: clients that attack their updates, members and trainers with faults.

    The factor is the one number that an attack may leave open; see its file. An attack on updates
    may be made on the trained weights instead, as the authors' code has it: `on` says which. With
    `only` it is made by attackers on the committee, who are honest as long as they train.
    """

    attack: str | None = None
    malicious_rate: Rate = 0.0
    factor: float | None = None
    on: Attacked | None = None
    only: Attacking | None = None
    members: dict[str, Count] = {}
    trainers: dict[str, Count] = {}


class MachineSection(_Section):
    """How the run is carried out; changes no result.

    On Ray, workers are actors of the cluster at the address, or of one that begins with the run.
    """

    device: Literal["cpu", "cuda", "auto"] = "cpu"
    workers: Annotated[int, Field(ge=1, le=256)] = 1
    ledger: Literal["chain", "memory"] = "chain"
    engine: Literal["local", "ray"] = "local"
    ray_address: Annotated[str, Field(min_length=1)] | None = None
    keep: Literal["all", "accepted"] | Annotated[int, Field(ge=1, le=2**31 - 1)] = "all"


class Configuration(_Section):
    """Everything about a run."""

    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    protocol: ProtocolSection
    data: DataSection = DataSection()
    model: ModelSection = ModelSection()
    training: TrainingSection = TrainingSection(local_steps=5)
    malice: MaliceSection = MaliceSection()
    evaluation: EvaluationSection = EvaluationSection()
    machine: MachineSection = MachineSection()

    def parameters(self, dimension: int) -> Parameters:
        """Return the protocol's parameters.

        Args:
            dimension: d, from the model.
        """
        return self.protocol.parameters(dimension)

    def local_training(self) -> LocalTraining:
        """Return how each client trains."""
        return LocalTraining(**self.training.model_dump(exclude={"path"}))

    def on_path(self, path: TrainingPath) -> Configuration:
        """Return the configuration with its training path settled.

        Args:
            path: what "auto" comes to here; a path that is given stays.
        """
        if self.training.path != "auto":
            return self
        training = self.training.model_copy(update={"path": path})
        return self.model_copy(update={"training": training})

    def attack_parameters(self) -> AttackParameters:
        """Return what the attack leaves open."""
        return AttackParameters(self.malice.factor, self.malice.on, self.malice.only)

    def recorded(self) -> dict[str, Any]:
        """Return what is recorded on the chain by digest: what the result follows from."""
        left_out = {"protocol", "evaluation", "machine"}
        return self.model_dump(exclude=left_out, exclude_none=True)

    def to_toml(self) -> str:
        """Return the configuration as TOML that `load` reads back."""
        return tomli_w.dumps(self.model_dump(exclude_none=True))


def load(
    preset: str | None = None, path: Path | None = None, settings: tuple[str, ...] = ()
) -> Configuration:
    """Return the configuration of a preset or a file, with settings of the command line on top.

    Args:
        preset: one of `PRESETS`; the default is "digits" where no file is given.
        path: a TOML file.
        settings: `section.key=value` of each, the value in TOML's notation, or a bare word.

    Returns:
        The checked configuration.

    Raises:
        ConfigurationError: both preset and file, an unreadable file, or a setting that is
            unknown, of the wrong type or out of range.
    """
    return checked(plain_values(preset, path, settings))


def plain_values(
    preset: str | None = None, path: Path | None = None, settings: tuple[str, ...] = ()
) -> dict[str, Any]:
    """Return what `load` checks: sections and their keys.

    Args:
        preset: one of `PRESETS`; the default is "digits" where no file is given.
        path: a TOML file.
        settings: `section.key=value` of each.

    Raises:
        ConfigurationError: both preset and file, an unreadable file, or a setting that has
            another form.
    """
    if preset and path:
        raise ConfigurationError("give a preset or a configuration file, not both")
    text = read_text(path, MAX_TOML_BYTES) if path else _preset(preset or "digits")
    try:
        values = parse_toml(text)
    except ConfigurationError as error:
        raise ConfigurationError(f"{path or preset}: {error}") from error
    for setting in settings:
        _apply(values, setting)
    return values


def checked(values: dict[str, Any]) -> Configuration:
    """Return the configuration behind plain values.

    Args:
        values: sections and their keys.

    Returns:
        The checked configuration.

    Raises:
        ConfigurationError: names the first setting that is wrong, and the rule.
    """
    try:
        configuration = Configuration.model_validate(values)
    except ValidationError as error:
        raise ConfigurationError(first_fault(error)) from error
    _require_names(configuration)
    return configuration


def _require_names(configuration: Configuration) -> None:
    """Refuse unknown names and impossible numbers before anything is loaded.

    Raises:
        ConfigurationError: names the value and what is known.
    """
    verify_choice(configuration.data.choice())
    verify_name(configuration.model.name)
    _require_malice(configuration.malice, configuration.attack_parameters())
    machine = configuration.machine
    if machine.ray_address is not None and machine.engine != "ray":
        raise ConfigurationError("machine.ray_address is set, but machine.engine is not ray")
    configuration.local_training()
    configuration.parameters(dimension=1)


def _require_malice(malice: MaliceSection, parameters: AttackParameters) -> None:
    """Refuse attacks and faults that there are not, and settings of an attack that has none.

    Raises:
        ConfigurationError: names the value and what is known.
    """
    attacks = ATTACKS | DATA_ATTACKS
    for what, name, known in (
        *(("attack", name, tuple(attacks)) for name in [malice.attack] if name is not None),
        *(("member fault", name, tuple(MemberFault)) for name in malice.members),
        *(("trainer fault", name, tuple(TrainerFault)) for name in malice.trainers),
    ):
        if name not in known:
            raise ConfigurationError(f"unknown {what} {name!r}; known are {', '.join(known)}")
    if malice.attack is None:
        for name in ("malicious_rate", "factor", "on", "only"):
            if getattr(malice, name) != MaliceSection.model_fields[name].default:
                raise ConfigurationError(f"malice.{name} is set, but malice.attack is not")
        return
    attacks[malice.attack].factor_for(parameters)
    for name in ("on", "only"):
        if getattr(malice, name) is not None and malice.attack in DATA_ATTACKS:
            raise ConfigurationError(
                f"malice.{name} is set, but attack {malice.attack!r} is on training samples, not "
                "on what is sent"
            )


def _preset(name: str) -> str:
    if name not in PRESETS:
        raise ConfigurationError(f"unknown preset {name!r}; known are {', '.join(PRESETS)}")
    return (files("clients") / "presets" / f"{name}.toml").read_text("utf-8")


def _apply(values: dict[str, Any], setting: str) -> None:
    """Put one `section.key=value` into the values.

    Raises:
        ConfigurationError: it has another form.
    """
    key, equals, text = setting.partition("=")
    if not equals or not key.strip():
        raise ConfigurationError(f"--set {setting}: must be section.key=value")
    if key.count(".") > MAX_DOTS:
        raise ConfigurationError(f"--set {key[:40]}...: over {MAX_DOTS} dots in a key")
    value = _value(text)
    *sections, last = key.strip().split(".")
    table = values
    for section in sections:
        table = table.setdefault(section, {})
        if not isinstance(table, dict):
            raise ConfigurationError(f"--set {setting}: {section} is no section")
    if value == "":
        table.pop(last, None)  # an empty value takes a setting of the preset back
    else:
        table[last] = value


def _value(text: str) -> object:
    """Return what stands behind the equals sign: one TOML value, or a bare word."""
    try:
        values = parse_toml(f"value = {text}")
    except ConfigurationError:
        return text.strip()
    return values["value"] if len(values) == 1 else text.strip()
