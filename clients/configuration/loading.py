"""Loading a configuration that is to be run, with every name and rule checked."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from clients.adversaries.faults import MemberFault, TrainerFault
from clients.attacks.registry import ATTACKS, attack_code, own_attack
from clients.attacks.registry import GROUP as ATTACK_GROUP
from clients.attacks.samples import DATA_ATTACKS, DataAttack
from clients.attacks.updates import UpdateAttack, attack_parameters
from clients.configuration.parsing import parse, plain_values, with_settings
from clients.configuration.run_configuration import key_and_value, require_same_code
from clients.configuration.schema import REMOVED_DISTANCES, Configuration, MaliceSection
from clients.datasets.registry import DATASETS
from clients.datasets.registry import GROUP as DATA_GROUP
from clients.models.registry import MODELS
from ledger.io.user_code import DISTANCE_GROUP, named_code
from ledger.protocol.documents.run import RunDocument
from ledger.protocol.errors import ConfigurationError
from ledger.protocol.rules.distance import SQUARED

_BUILT_IN: dict[str, Collection[str]] = {
    "model.name": MODELS,
    "data.name": DATASETS,
    "malice.attack": {**ATTACKS, **DATA_ATTACKS},
    "protocol.distance": (SQUARED.name, *REMOVED_DISTANCES),  # `schema` refuses the removed ones
    "machine.ray_address": (),  # results of a Ray cluster are unpickled, which can run any code
}
"""The values that run no code but this project's, for each setting that can name other code."""
_GROUPS = {
    "model.name": "",  # packages offer no model under a plain name
    "data.name": DATA_GROUP,
    "malice.attack": ATTACK_GROUP,
    "protocol.distance": DISTANCE_GROUP,
}
"""Entry points of packages, for each setting that can name code."""


def load(
    preset: str | None = None, path: Path | None = None, settings: tuple[str, ...] = ()
) -> Configuration:
    """Return the checked configuration of a preset or a file, overridden by settings."""
    return checked(plain_values(preset, path, settings))


def load_recorded(
    path: Path,
    settings: tuple[str, ...] = (),
    document: RunDocument | None = None,
    *,
    only_inputs: bool = False,
) -> Configuration:
    """Return the checked configuration that a home has of a run; the home may be somebody else's.

    Args:
        settings: the caller's, over the file. They must name each piece of code that the file
            names: no code runs because a home names it.
        document: of the run, whose digests the named code must have before it runs; None if there
            is none.
        only_inputs: leave out the attack and the own distance, which the caller does not use.
    """
    values = plain_values(path=path)
    if only_inputs:
        values.pop("malice", None)
        if "protocol.distance" in code_named_in(values):
            del values["protocol"]["distance"]
    given = {key_and_value(setting)[0] for setting in settings}
    for key, name in code_named_in(values).items():
        if key not in given:
            raise ConfigurationError(
                f"{path}: {key} = {name!r:.120} names code outside this program, which runs only "
                f"if you name it yourself: if you trust it, add --set {key}=YOUR_COPY"
            )
    with_settings(values, settings)
    if document is not None:
        for key, name in code_named_in(values).items():
            code = named_code(key, _GROUPS[key], name) if key in _GROUPS else None
            if code is not None:
                require_same_code(document, key, code)
    return checked(values)


def as_recorded(configuration: Configuration, path: Path) -> Configuration:
    """Return a configuration with the places of its code as a run's file has them already.

    The manifest binds the text of the file, and a copy of the code may lie elsewhere.
    """
    for key, reference in code_named_in(plain_values(path=path)).items():
        section, _, name = key.partition(".")
        if section != "machine":
            table = getattr(configuration, section).model_copy(update={name: reference})
            configuration = configuration.model_copy(update={section: table})
    return configuration


def is_code(setting: str) -> bool:
    """Return whether a `section.key=value` is one that can name code."""
    return key_and_value(setting)[0] in _BUILT_IN


def code_named_in(values: Mapping[str, Any]) -> dict[str, str]:
    """Return the code outside this project that plain values name, by setting."""
    named = {}
    for key, built_in in _BUILT_IN.items():
        section, _, name = key.partition(".")
        table = values.get(section)
        value = table.get(name) if isinstance(table, dict) else None
        if isinstance(value, str) and value not in built_in:
            named[key] = value
    return named


def checked(values: dict[str, Any]) -> Configuration:
    """Return the checked configuration of plain values."""
    configuration = parse(values)
    _require_malice(configuration.malice)
    return configuration


def _require_malice(malice: MaliceSection) -> None:
    """Refuse unknown attacks and faults, and settings of an attack without one."""
    own = None if malice.attack is None else attack_code(malice.attack)
    attacks: dict[str, UpdateAttack | DataAttack] = {**ATTACKS, **DATA_ATTACKS}
    if malice.attack is not None and own is not None:
        attacks[malice.attack] = own_attack(own)
    named = [] if malice.attack is None else [malice.attack]
    for subject, name, names in (
        *(("attack: unknown attack", name, [*attacks]) for name in named),
        *(("members: unknown member fault", name, [*MemberFault]) for name in malice.members),
        *(("trainers: unknown trainer fault", name, [*TrainerFault]) for name in malice.trainers),
    ):
        if name not in names:
            raise ConfigurationError(f"malice.{subject} {name!r}; known are {', '.join(names)}")
    if malice.attack is None:
        for name in ("malicious_rate", "factor", "on", "only"):
            if getattr(malice, name) != MaliceSection.model_fields[name].default:
                raise ConfigurationError(f"malice.{name} is set, but malice.attack is not")
        return
    attack = attacks[malice.attack]
    attack.factor_for(attack_parameters(malice))
    if isinstance(attack, UpdateAttack) and attack.needs_history and malice.on == "weights":
        raise ConfigurationError(
            f"malice.on = weights: attack {malice.attack!r} is made of directions of updates"
        )
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
            "clients that attack; without it none would"
        )
