"""Loading a configuration that is to be run, with every name and rule checked.

Owners with keys of their own may be the clients of a configuration; they are checked before
deployment.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clients.configuration.parsing import (
    key_and_value,
    parse,
    plain_values,
    require_no_live_settings,
    require_same_code,
    require_unpredictable,
    set_block_beacon,
    with_settings,
)
from clients.configuration.schema import REMOVED_DISTANCES, Configuration, MaliceSection
from clients.datasets.federated_data import FederatedData, named_stream, parse_settings
from clients.datasets.own import OWN, OwnOptions, read_own, trial_data
from clients.datasets.own_samples import samples_digest_of
from clients.datasets.registry import DATASETS, load_dataset
from clients.datasets.registry import GROUP as DATA_GROUP
from clients.models.registry import MODELS
from ledger.io.user_code import DISTANCE_GROUP, named_code
from ledger.protocol.documents.run import RunDocument
from ledger.protocol.encoding import RegisteredClient
from ledger.protocol.errors import ConfigurationError
from ledger.protocol.rules.distance import SQUARED
from ledger.protocol.signing import KeySigner, data_salt
from ledger.protocol.types import NO_DIGEST, Digest


def _attacks() -> tuple[Collection[str], str]:
    from clients.attacks.registry import ATTACKS, GROUP  # noqa: PLC0415 - not without attackers
    from clients.attacks.samples import DATA_ATTACKS  # noqa: PLC0415

    return {**ATTACKS, **DATA_ATTACKS}, GROUP


_NAMES_CODE: dict[str, Callable[[], tuple[Collection[str], str | None]]] = {
    "model.name": lambda: (MODELS, ""),  # packages offer no model under a plain name
    "data.name": lambda: (DATASETS, DATA_GROUP),
    "malice.attack": _attacks,
    # `schema` refuses the removed distances.
    "protocol.distance": lambda: ((SQUARED.name, *REMOVED_DISTANCES), DISTANCE_GROUP),
    # Results of a Ray cluster are unpickled, which can run any code.
    "machine.ray_address": lambda: ((), None),
}
"""Settings that can name code: the values that run this project's alone, and packages' group.

The group is of entry points; None where a setting names no code by itself.
"""


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
    """Return the checked configuration of a run in a home, which may be another user's.

    `settings` over the file must name each piece of code that the file names: no code runs because
    a home names it. The code must have the digests of `document` before it runs. `only_inputs`
    leaves out the attack and the own distance.
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
                f"{path}: {key} = {name!r:.120} names external code, which is not executed; "
                f"if you trust the code, add --set {key}=YOUR_COPY"
            )
    with_settings(values, settings)
    if document is not None:
        for key, name in code_named_in(values).items():
            group = _NAMES_CODE[key]()[1]
            code = None if group is None else named_code(key, group, name)
            if code is not None:
                require_same_code(document, key, code)
    return checked(values)


def as_recorded(configuration: Configuration, path: Path) -> Configuration:
    """Return a configuration with the places of its code as the run's file at `path` has them."""
    for key, reference in code_named_in(plain_values(path=path)).items():
        section, _, name = key.partition(".")
        if section != "machine":
            table = getattr(configuration, section).model_copy(update={name: reference})
            configuration = configuration.model_copy(update={section: table})
    return configuration


def is_code(setting: str) -> bool:
    """Return whether a `section.key=value` is one that can name code."""
    return key_and_value(setting)[0] in _NAMES_CODE


def code_named_in(values: Mapping[str, Any]) -> dict[str, str]:
    """Return the code outside this project that plain values name, by setting."""
    named = {}
    for key, known in _NAMES_CODE.items():
        section, _, name = key.partition(".")
        table = values.get(section)
        value = table.get(name) if isinstance(table, dict) else None
        if isinstance(value, str) and value not in known()[0]:
            named[key] = value
    return named


def checked(values: dict[str, Any]) -> Configuration:
    """Return the checked configuration of plain values."""
    configuration = parse(values)
    if configuration.malice != MaliceSection():
        _require_malice(configuration.malice)
    return configuration


def _require_malice(malice: MaliceSection) -> None:
    from clients.adversaries.faults import MemberFault, TrainerFault  # noqa: PLC0415
    from clients.attacks.registry import ATTACKS, attack_code, own_attack  # noqa: PLC0415
    from clients.attacks.samples import DATA_ATTACKS, DataAttack  # noqa: PLC0415
    from clients.attacks.updates import UpdateAttack, attack_parameters  # noqa: PLC0415

    attacks: dict[str, UpdateAttack | DataAttack] = {**ATTACKS, **DATA_ATTACKS}
    own = None if malice.attack is None else attack_code(malice.attack)
    if malice.attack is not None and own is not None:
        attacks[malice.attack] = own_attack(own)
    for subject, given, known in (
        ("attack: unknown attack", [malice.attack] if malice.attack is not None else [], attacks),
        ("members: unknown member fault", malice.members, MemberFault),
        ("trainers: unknown trainer fault", malice.trainers, TrainerFault),
    ):
        names: list[str] = [*known]
        unknown = next((name for name in given if name not in names), None)
        if unknown is not None:
            raise ConfigurationError(f"malice.{subject} {unknown!r}; known are {', '.join(names)}")
    if malice.attack is None:
        for name in ("malicious_rate", "factor", "on", "only"):
            if getattr(malice, name) != MaliceSection.model_fields[name].default:
                raise ConfigurationError(f"malice.{name} is set, but malice.attack is not")
        return
    attack = attacks[malice.attack]
    attack.factor_for(attack_parameters(malice))
    if isinstance(attack, UpdateAttack) and attack.needs_history and malice.on == "weights":
        raise ConfigurationError(f"malice.on = weights: {malice.attack!r} is made of directions")
    for name, value in (("on", malice.on), ("only", malice.only)):
        if value is not None and malice.attack in DATA_ATTACKS:
            raise ConfigurationError(f"malice.{name} = {value}: {malice.attack!r} changes samples")
    # A rate of 0 that is given stays: it is where a comparison over rates begins.
    if "malicious_rate" not in malice.model_fields_set:
        raise ConfigurationError(
            f"malice.attack = {malice.attack} needs malice.malicious_rate, the share of attackers"
        )


@dataclass(frozen=True, slots=True)
class Owners:
    """Clients with keys of their own, addresses ascending, and their samples' digests, or zeros."""

    clients: tuple[RegisteredClient, ...]
    data: tuple[Digest, ...]


def shared_configuration(
    preset: str | None = None,
    path: Path | None = None,
    settings: tuple[str, ...] = (),
    *,
    allow_predictable: bool = False,
) -> Configuration:
    """Return the configuration, as `load`, of several owners, with a block's hash as beacon."""
    values = plain_values(preset, path, settings)
    set_block_beacon(values)
    configuration = checked(values)
    require_unpredictable(configuration.protocol.beacon, is_allowed=allow_predictable)
    require_no_live_settings(configuration)
    return configuration


def owner_samples(
    configuration: Configuration, samples: int | None, path: Path | None, signer: KeySigner
) -> tuple[int, Digest]:
    """Return number and digest of an owner's samples; without a file no digest is disclosed."""
    if path is None:
        if samples is None:
            raise ConfigurationError("say how many samples you have: --samples N, or --data FILE")
        return samples, NO_DIGEST
    count, digest = samples_with_salt(configuration, path, data_salt(signer))
    if samples not in {None, count}:
        raise ConfigurationError(f"--samples {samples}: {path} has {count}")
    return count, digest


def samples_with_salt(configuration: Configuration, path: Path, salt: bytes) -> tuple[int, Digest]:
    """Return number and digest of the samples in an owner's file."""
    if configuration.data.name != OWN.name:
        raise ConfigurationError(
            f"{path}: the clients share the files of {configuration.data.name!r}, so an owner "
            "registers only a number of samples (--samples)"
        )
    options = parse_settings(OwnOptions, configuration.data.options, "data.options")
    train = read_own(path, options).train
    return len(train.y), samples_digest_of(train, salt)


def data_of_owners(
    configuration: Configuration, owners: tuple[RegisteredClient, ...]
) -> FederatedData:
    """Return the data that prepare a run of several owners: a few drawn ones if private."""
    clients, count = configuration.protocol.clients, len(owners)
    if clients != count:
        raise ConfigurationError(f"protocol.clients = {clients}: the registry has {count} clients")
    if configuration.malice != MaliceSection():
        raise ConfigurationError("malice is set, but is only for simulations; remove it")
    if configuration.data.name == OWN.name:
        options = parse_settings(OwnOptions, configuration.data.options, "data.options")
        return trial_data(options, clients, named_stream(configuration.seed, "tried data"))
    rng = named_stream(configuration.seed, "data")
    data = load_dataset(configuration.data.choice(), clients, rng)
    for client, (owner, held) in enumerate(zip(owners, data.sample_counts, strict=True)):
        if owner.samples != held:
            raise ConfigurationError(
                f"client {client}, 0x{owner.address.hex()}: has registered {owner.samples} "
                f"samples, and its part of {configuration.data.name!r} has {held}"
            )
    return data
