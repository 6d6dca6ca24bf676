"""Configurations from presets, TOML files, settings of the command line and run documents.

A run document is untrusted. It names rules, numbers and bundled parts, never code or a local file:
a user's own class and every path come from settings, and are compared with the document's digests.

`loading` checks names of attacks and faults: a production worker reads configurations too, and
imports no adversary.

A run of several owners needs seeds that no participant can choose. With `beacon = none`, k trainers
that come late and the primary that names the usable updates choose among 2^k seeds, and so the next
committee. They cannot know a future block's hash.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from difflib import get_close_matches
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from pydantic import ValidationError

from clients.configuration.schema import (
    RATES,
    REMOVED,
    Configuration,
    EarlyStopSection,
    TrackSection,
)
from clients.datasets.federated_data import first_error
from clients.datasets.own_data import FILE
from clients.datasets.registry import DATASETS, PATH_OPTIONS, data_set_named, verify_choice
from clients.models.model import RECORDED_FILE
from clients.models.registry import MODELS, file_options, verify_name
from ledger.io.home import naming, read_text
from ledger.io.parsing import MAX_DOTS, MAX_TOML_BYTES, parse_toml
from ledger.io.user_code import (
    DISTANCE_GROUP,
    UserCode,
    is_reference,
    named_code,
    use_rule,
    user_code,
)
from ledger.protocol.documents.run import RunDocument
from ledger.protocol.errors import ConfigurationError
from ledger.protocol.parameters import Parameters
from ledger.protocol.rules.distance import SQUARED, OwnRuleName
from ledger.protocol.types import AcceptanceForm, Beacon

PRESETS = (
    *("digits", "digits-by-writer", "robust", "smoke"),
    *("paper-femnist", "paper-sent140", "paper-shakespeare"),
    *("authors-sent140", "authors-shakespeare"),
)
TOML = ".toml"
"""Ending of the path of a user's own preset."""

_NO_ZERO = re.compile(r"^[+-]?(?=\.\d)")
"""The place before the point of a number such as .3, where TOML requires a zero."""
SYNONYMS = {
    "alpha": ["protocol.aggregation_rate", "data.partition.alpha"],
    "epsilon": ["malice.malicious_rate"],
    "lr": ["training.learning_rate"],
}
"""Other names of settings."""

ALLOW_PREDICTABLE = "--allow-predictable-seeds"


def plain_values(
    preset: str | None = None, path: Path | None = None, settings: tuple[str, ...] = ()
) -> dict[str, Any]:
    """Return the values that `load` checks, by section and key.

    The preset is one of `PRESETS`, or a path that ends in .toml; without a file it is "digits".
    """
    if preset and path:
        raise ConfigurationError("give a preset or a configuration file, not both")
    name = preset or "digits"
    if path is None and name.endswith(TOML):
        path = Path(name)
    if path is not None:
        text = read_text(path, MAX_TOML_BYTES)
    elif name in PRESETS:
        text = (files("clients") / "presets" / f"{name}.toml").read_text("utf-8")
    else:
        raise ConfigurationError(
            f"unknown preset {name!r}; known are {', '.join(PRESETS)}, and any path to {TOML}"
        )
    with naming(str(path or preset), ConfigurationError):
        values = parse_toml(text)
    with_settings(values, settings)
    imply_file(values, {key_and_value(setting)[0] for setting in settings})
    return values


def with_settings(values: dict[str, Any], settings: tuple[str, ...]) -> None:
    """Put `section.key=value` into plain values; an empty value takes a preset's setting back."""
    for setting in settings:
        key, equals, text = setting.partition("=")
        if not equals or not key.strip():
            raise ConfigurationError(f"--set {setting}: must be section.key=value")
        if key.count(".") > MAX_DOTS:
            raise ConfigurationError(f"--set {key[:40]}...: over {MAX_DOTS} dots in a key")
        value = _value(text)
        put_setting(values, key.strip(), None if value == "" else value)


def put_setting(values: dict[str, Any], name: str, value: object) -> None:
    """Put a setting into plain values; None takes a preset's value back."""
    *sections, last = name.split(".")
    for section in sections:
        values = values.setdefault(section, {})
        if not isinstance(values, dict):
            raise ConfigurationError(f"{name}: unknown section {section} (see cmfl settings)")
    if value is None:
        values.pop(last, None)
    else:
        values[last] = value


def data_options(settings: tuple[str, ...]) -> dict[str, Any]:
    """Return the options of a data set among settings of the command line."""
    for setting in settings:
        if not setting.strip().startswith("data.options."):
            raise ConfigurationError(f"--set {setting}: must be data.options.NAME=VALUE")
    values: dict[str, Any] = {"data": {"options": {}}}
    with_settings(values, settings)
    return dict(values["data"]["options"])


def parse(values: dict[str, Any]) -> Configuration:
    """Return the configuration of plain values; attacks and faults are not looked up."""
    try:
        configuration = Configuration.model_validate(values)
    except ValidationError as error:
        sentence, first = first_error(error), error.errors()[0]
        if first["type"] == "extra_forbidden":
            sentence = unknown_setting(".".join(map(str, first["loc"])))
        raise ConfigurationError(sentence) from error
    with naming("data.name", ConfigurationError):
        data_set_named(configuration.data.name)
    verify_choice(configuration.data.choice())
    with naming("model.name", ConfigurationError):
        verify_name(configuration.model.name)
    machine = configuration.machine
    if machine.ray_address is not None and machine.engine != "ray":
        raise ConfigurationError("machine.ray_address is set, but machine.engine is not ray")
    _require_early_stop(configuration.early_stop)
    _require_tracker(configuration.track)
    configuration.parameters(dimension=1)
    return configuration


def _require_early_stop(section: EarlyStopSection) -> None:
    default = EarlyStopSection()
    for name, needs in (("metric", ("target", "patience")), ("min_delta", ("patience",))):
        is_set = getattr(section, name) != getattr(default, name)
        if is_set and all(getattr(section, need) is None for need in needs):
            wanted = " or early_stop.".join(needs)
            raise ConfigurationError(f"early_stop.{name} is set, but no early_stop.{wanted}")
    target = section.target
    if section.metric == "accuracy" and target is not None and target > 1:
        raise ConfigurationError(f"early_stop.target = {target:g}: an accuracy is at most 1")


def tracked_by(values: dict[str, Any], settings: tuple[str, ...]) -> TrackSection:
    """Return the trackers of a run's file, with settings of the command line over them."""
    with_settings(values, settings)
    try:
        section = TrackSection.model_validate(values["track"])
    except ValidationError as error:
        raise ConfigurationError(f"track.{first_error(error)}") from error
    _require_tracker(section)
    return section


def _require_tracker(section: TrackSection) -> None:
    """Refuse settings of trackers without one, and a password, which a run's file would keep."""
    default = TrackSection()
    if section != default and not section.used:
        fields = TrackSection.model_fields
        names = ", ".join(x for x in fields if getattr(section, x) != getattr(default, x))
        raise ConfigurationError(
            f"track: {names} is set, but none of track.mlflow, track.tensorboard and track.wandb"
        )
    for name in ("tensorboard", "wandb"):
        if "://" in section.used.get(name, ""):
            raise ConfigurationError(f"track.{name}: must be a folder, not a URL")
    for name in ("mlflow", "link"):
        try:
            host = urlsplit(getattr(section, name) or "").netloc
        except ValueError as error:
            raise ConfigurationError(f"track.{name}: {error}") from error
        if "@" in host:
            raise ConfigurationError(
                f"track.{name}: a URL must not contain a user or a password; set "
                "MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD instead"
            )


def imply_file(values: dict[str, Any], keys: Collection[str]) -> None:
    """Let a path among the caller's `keys`, `section.key`, replace a bundled data set in place."""
    data = values.get("data")
    if "data.path" in keys and "data.name" not in keys and isinstance(data, dict):
        data_set = DATASETS.get(str(data.get("name")))
        if "path" in data and data_set is not None and not data_set.has_path:
            data["name"] = FILE.name


def _value(text: str) -> object:
    """Return the value after the equals sign: a TOML value, a number as `.3`, or a bare word."""
    word = text.strip()
    try:
        values = parse_toml("value = " + _NO_ZERO.sub(r"\g<0>0", word))
    except ConfigurationError:
        return word
    return values["value"] if len(values) == 1 else word


def unknown_setting(name: str) -> str:
    """Return the refusal of an unknown setting: its successor, or settings that it may mean."""
    flat = {full: full.rpartition(".")[2] for full in (*REMOVED, *Configuration.names())}
    for removed, successor in REMOVED.items():
        if name in {removed, flat.pop(removed)}:
            return f"{removed}: removed in protocol 3; {successor}"
    last = name.rpartition(".")[2]
    similar = {each for each in flat.values() if last in each.split("_")}
    similar = similar or {*get_close_matches(last, flat.values(), 3)}
    near = SYNONYMS.get(last) or [full for full, each in flat.items() if each in similar]
    hint = f"; near it: {', '.join(near)}" if near else ""
    return f"{name:.80}: there is no such setting{hint} (cmfl settings lists all)"


def set_block_beacon(values: dict[str, Any]) -> None:
    """Let a block's hash flow into each seed, unless the plain values name a beacon."""
    protocol = values.get("protocol")
    if isinstance(protocol, dict):  # what else it is, `checked` refuses
        protocol.setdefault("beacon", Beacon.BLOCK.value)


def require_no_live_settings(configuration: Configuration) -> None:
    """Refuse settings that only a run of all clients in one process has."""
    require_all_rounds(stops_early=configuration.early_stop.rule() is not None)
    if configuration.track.used:
        raise ConfigurationError(
            "track: applies to `cmfl run` only; remove it, and log a run of several owners "
            "with `cmfl track`"
        )


def require_all_rounds(*, stops_early: bool) -> None:
    """Refuse an early stop where no process could end the run by it."""
    if stops_early:
        raise ConfigurationError("early_stop: applies to `cmfl run` only; remove it")


def require_unpredictable(beacon: Beacon, *, is_allowed: bool = False) -> None:
    """Refuse a run of several owners whose seeds can be predicted, unless that is allowed."""
    if beacon is Beacon.NONE and not is_allowed:
        raise ConfigurationError(
            'protocol.beacon = "none": late trainers and a primary can together choose the '
            'next seed. For a run of several owners use "block", or accept the risk with '
            f"{ALLOW_PREDICTABLE}"
        )


def lot_warning(strategy: int, beacon: Beacon, *, mines_at_once: bool) -> str | None:
    """Return why a participant can choose the committee that strategy 3 draws; None if not."""
    if strategy != AcceptanceForm.BELOW_TWO:
        return None
    if beacon is Beacon.NONE:
        return (
            'protocol.beacon = "none": late trainers and a primary can choose the next committee, '
            'which strategy 3 draws by lot; use "block"'
        )
    if mines_at_once:
        return (
            "this chain makes a block for each transaction: the sender of a decision can choose "
            "the next committee, which strategy 3 draws by lot; use a chain with a block time"
        )
    return None


_LOCAL = ("data.path", "model.name", "machine", "evaluation")


def configuration_from_document(
    document: RunDocument, data_path: Path | None = None, settings: tuple[str, ...] = ()
) -> Configuration:
    """Return the configuration of a run document, with paths and own code by `settings` alone."""
    experiment = document.experiment
    data, model = table_of(experiment, "data"), table_of(experiment, "model")
    # The value of an option that is a path is a file's digest; a path could be any file here.
    options = {k: v for k, v in table_of(data, "options").items() if k not in PATH_OPTIONS}
    partition = table_of(data, "partition")
    values: dict[str, Any] = {
        "seed": experiment.get("seed"),
        "protocol": _protocol(document.parameters),
        "data": {"name": data.get("name"), "options": options, "partition": partition},
        "model": {"name": model.get("name"), "options": table_of(model, "options")},
        "training": table_of(experiment, "training"),
        "malice": table_of(experiment, "malice"),
    }
    if data_path is not None and data.get("name") != "own":
        values["data"]["path"] = str(data_path)
    for setting in _without_rules(document.parameters, settings):
        if key_and_value(setting)[0] != "data.name" or data.get("name") in DATASETS:
            _require_local(setting)
        with_settings(values, (setting,))
    given = {key_and_value(setting)[0] for setting in settings}
    for name, value in values["model"]["options"].items():
        if isinstance(value, str) and value.startswith(RECORDED_FILE):
            raise ConfigurationError(
                f"model.options.{name} is a file of {value}: name your own copy with --set "
                f"model.options.{name}=PATH"
            )
    known: dict[str, Collection[str]] = {"model.name": MODELS, "data.name": DATASETS}
    for key, names in known.items():
        reference = values[key.partition(".")[0]]["name"]
        if key not in given and reference not in names:
            # No code runs because a document names it.
            raise ConfigurationError(
                f"the run's {key} is {str(reference)[:80]!r}, code of the run's owner; if you "
                f"trust it, name your own copy with --set {key}=FILE.py:NAME"
            )
        if isinstance(reference, str) and is_reference(reference):
            require_same_code(document, key, user_code(key, reference))
    configuration = parse(values)
    if configuration.parameters(document.parameters.dimension) != document.parameters:
        raise ConfigurationError("the run document's parameters do not match any configuration")
    return configuration


def require_same_code(document: RunDocument, key: str, code: UserCode) -> None:
    """Reject code that is not the run document's, without running it."""
    section, _, name = key.partition(".")
    here, bound = code.recorded(), table_of(document.experiment, section)
    if section == "protocol":
        rule = OwnRuleName.of(getattr(document.parameters, name))
        here, bound = {"sha256": code.digest().hex()}, {"sha256": rule.digest if rule else "none"}
    elif section == "malice":
        bound = table_of(table_of(document.experiment, "sources"), "attack")
    for kind, digest in here.items():
        if bound.get(kind) != digest:
            raise ConfigurationError(
                f"{key} = {code.label!r}: the run's code has {kind} "
                f"{str(bound.get(kind, 'none'))[:100]}, but this code has {digest}; name a "
                "copy of the run's code"
            )


def own_code_settings(configuration: Configuration) -> tuple[str, ...]:
    """Return a worker's settings that name a configuration's own code on this machine."""
    distance, model = configuration.protocol.distance, configuration.model
    settings = [f"protocol.distance={distance}"] if is_reference(distance) else []
    if model.name not in MODELS:
        settings += [f"model.name={model.name}"]
    files = file_options(model.name, model.options)
    settings += [f"model.options.{name}={model.options[name]}" for name in files]
    return tuple(settings)


def rule_sources(configuration: Configuration) -> tuple[str, ...]:
    """Return the file or package of a configuration's own distance, for an audit."""
    distance = configuration.protocol.distance
    if distance == SQUARED.name:
        return ()
    code = named_code("protocol.distance", DISTANCE_GROUP, distance)
    return () if code is None else (code.place,)


def _protocol(parameters: Parameters) -> dict[str, Any]:
    values = {name: getattr(parameters, name) for name in Parameters.__dataclass_fields__}
    del values["dimension"]
    for parameter, rate in RATES.items():
        values[rate] = values.pop(parameter) / 1_000_000
    return values | {name: str(values[name]) for name in ("quorum", "beacon")}


def _require_local(setting: str) -> None:
    key, _ = key_and_value(setting)
    paths = [f"data.options.{name}" for name in PATH_OPTIONS]
    # An option that is no path is compared with the document's when the model is made.
    if key.startswith("model.options."):
        return
    if key not in {*_LOCAL, *paths} and key.partition(".")[0] not in _LOCAL:
        raise ConfigurationError(
            f"--set {setting}: the run document fixes this setting; you can set only "
            f"{', '.join((*_LOCAL, *paths))}"
        )


def _without_rules(parameters: Parameters, settings: tuple[str, ...]) -> tuple[str, ...]:
    """Load the own rules of a run document from the code that settings name; return the others."""
    given = dict(key_and_value(setting) for setting in settings)
    name, key = OwnRuleName.of(parameters.distance), "protocol.distance"
    if name is None:
        return settings
    if key not in given:
        raise ConfigurationError(
            f"the run's distance is {name.label} (sha256 {name.digest}), code of the run's owner; "
            f"if you trust it, name your own copy with --set {key}=FILE.py:{name.function}"
        )
    use_rule(name, given[key])
    return tuple(setting for setting in settings if key_and_value(setting)[0] != key)


def key_and_value(setting: str) -> tuple[str, str]:
    """Return the key and the text of a `section.key=value`."""
    key, _, value = setting.partition("=")
    return key.strip(), value.strip()


def table_of(document: Mapping[str, Any], key: str) -> dict[str, Any]:
    """Return a copy of a table of a run document; an absent one is empty."""
    table = document.get(key, {})
    if not isinstance(table, dict) or not all(isinstance(name, str) for name in table):
        raise ConfigurationError(f"the run document's {key} is not a table")
    return dict(table)
