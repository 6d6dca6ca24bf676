"""Loading a configuration that is to be run, with every name and rule checked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from clients.adversaries.faults import MemberFault, TrainerFault
from clients.attacks.data.registry import DATA_ATTACKS
from clients.attacks.own_attack import own_attack
from clients.attacks.registry import ATTACKS, attack_code
from clients.attacks.updates.update_attack import UpdateAttack, attack_parameters
from clients.configuration.parsing import parse, plain_values
from clients.configuration.schema import MaliceSection
from ledger.protocol.errors import ConfigurationError

if TYPE_CHECKING:
    from pathlib import Path

    from clients.attacks.data.data_attack import DataAttack
    from clients.configuration.schema import Configuration


def load(
    preset: str | None = None, path: Path | None = None, settings: tuple[str, ...] = ()
) -> Configuration:
    """Return the checked configuration of a preset or a file, overridden by settings.

    Args:
        preset: one of `PRESETS`; the default is "digits" without a file.
        path: a TOML file.
        settings: `section.key=value` of each, the value in TOML's notation, or a bare word.

    Raises:
        ConfigurationError: both preset and file, an unreadable file, or a setting that is unknown,
            of the wrong type or out of range.
    """
    return checked(plain_values(preset, path, settings))


def checked(values: dict[str, Any]) -> Configuration:
    """Return the checked configuration of plain values.

    Raises:
        ConfigurationError: names the first setting that is wrong, and the rule.
    """
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
