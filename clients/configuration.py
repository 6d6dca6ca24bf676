"""One configuration of a run: read from TOML, checked, and recorded by digest on the chain.

What changes the result is recorded; how fast and where it runs (`machine`), and what is measured
of it (`evaluation`), is not, so that the same run on more workers has the same configuration.
"""

from __future__ import annotations

from importlib.resources import files
from typing import TYPE_CHECKING, Annotated, Any

import tomli_w
from pydantic import Field, ValidationError

from clients.adversaries.faults import MemberFault, TrainerFault
from clients.attacks.data.registry import DATA_ATTACKS
from clients.attacks.registry import ATTACKS
from clients.attacks.updates.update_attack import AttackParameters
from clients.datasets.registry import data_set_named, verify_choice
from clients.first_fault import first_fault
from clients.local_sgd import LocalTraining
from clients.models.registry import verify_name
from clients.of_setting import of_setting
from clients.sections import (
    DataSection,
    EvaluationSection,
    MachineSection,
    MaliceSection,
    ModelSection,
    ProtocolSection,
    Section,
    TrainingPath,
    TrainingSection,
)
from ledger.io.home import read_text
from ledger.io.toml import MAX_DOTS, MAX_TOML_BYTES, parse_toml
from ledger.protocol.errors import ConfigurationError

if TYPE_CHECKING:
    from pathlib import Path

    from ledger.protocol.parameters import Parameters

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


class Configuration(Section):
    """Everything about a run."""

    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    """Of all chance in the run."""
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
    with_settings(values, settings)
    return values


def with_settings(values: dict[str, Any], settings: tuple[str, ...]) -> None:
    """Put settings of the command line into plain values.

    Args:
        values: sections and their keys; changed.
        settings: `section.key=value` of each.

    Raises:
        ConfigurationError: a setting has another form.
    """
    for setting in settings:
        _apply(values, setting)


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
    with of_setting("data.name"):
        data_set_named(configuration.data.name)
    verify_choice(configuration.data.choice())
    with of_setting("model.name"):
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
    named = [] if malice.attack is None else [malice.attack]
    for what, name, known in (
        *(("attack: unknown attack", name, [*attacks]) for name in named),
        *(("members: unknown member fault", name, [*MemberFault]) for name in malice.members),
        *(("trainers: unknown trainer fault", name, [*TrainerFault]) for name in malice.trainers),
    ):
        if name not in known:
            raise ConfigurationError(f"malice.{what} {name!r}; known are {', '.join(known)}")
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
    # A rate of 0 that is given stays: it is where a comparison over rates begins.
    if "malicious_rate" not in malice.model_fields_set:
        raise ConfigurationError(
            f"malice.attack = {malice.attack} needs malice.malicious_rate, the share of the "
            "clients that attack; without it nobody would"
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
