"""The configuration of a deployed run, from its run document and settings of this machine.

A document is untrusted. It names rules, numbers and bundled parts, never code or a local file: a
user's own class and every path come from settings, and are compared with the document's digests.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from clients.configuration.parsing import parse, with_settings
from clients.configuration.schema import RATES, Configuration
from clients.datasets.registry import DATASETS, PATH_OPTIONS
from clients.models.model import RECORDED_FILE
from clients.models.registry import MODELS, file_options
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

_LOCAL = ("data.path", "model.name", "machine", "evaluation")


def configuration_from_document(
    document: RunDocument, data_path: Path | None = None, settings: tuple[str, ...] = ()
) -> Configuration:
    """Return the configuration of a run document, with paths and own code by `settings` alone."""
    experiment = document.experiment
    data, model = _table(experiment, "data"), _table(experiment, "model")
    # The value of an option that is a path is a file's digest; a path could be any file here.
    options = {k: v for k, v in _table(data, "options").items() if k not in PATH_OPTIONS}
    partition = _table(data, "partition")
    values: dict[str, Any] = {
        "seed": experiment.get("seed"),
        "protocol": _protocol(document.parameters),
        "data": {"name": data.get("name"), "options": options, "partition": partition},
        "model": {"name": model.get("name"), "options": _table(model, "options")},
        "training": _table(experiment, "training"),
        "malice": _table(experiment, "malice"),
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
                f"the run's {key} is {str(reference)[:80]!r}, which is code of its owner's: if you "
                f"trust it, name your own copy with --set {key}=FILE.py:NAME"
            )
        if isinstance(reference, str) and is_reference(reference):
            require_same_code(document, key, user_code(key, reference))
    configuration = parse(values)
    if configuration.parameters(document.parameters.dimension) != document.parameters:
        raise ConfigurationError("no configuration has the parameters of the run document")
    return configuration


def require_same_code(document: RunDocument, key: str, code: UserCode) -> None:
    """Reject code that is not the run document's, without running it."""
    section, _, name = key.partition(".")
    here, bound = code.recorded(), _table(document.experiment, section)
    if section == "protocol":
        rule = OwnRuleName.of(getattr(document.parameters, name))
        here, bound = {"sha256": code.digest().hex()}, {"sha256": rule.digest if rule else "none"}
    elif section == "malice":
        bound = _table(_table(document.experiment, "sources"), "attack")
    for kind, digest in here.items():
        if bound.get(kind) != digest:
            raise ConfigurationError(
                f"{key} = {code.label!r}: the run's code has {kind} "
                f"{str(bound.get(kind, 'none'))[:100]}, and this has {digest}: name a copy of the "
                f"run's code"
            )


def own_code_settings(configuration: Configuration) -> tuple[str, ...]:
    """Return the settings by which a worker on this machine names a configuration's own code."""
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
    """Return the settings behind parameters: shares as decimals, no dimension."""
    values = {name: getattr(parameters, name) for name in Parameters.__dataclass_fields__}
    del values["dimension"]
    for parameter, rate in RATES.items():
        values[rate] = values.pop(parameter) / 1_000_000
    return values | {name: str(values[name]) for name in ("quorum", "beacon")}


def _require_local(setting: str) -> None:
    key = setting.partition("=")[0].strip()
    paths = [f"data.options.{name}" for name in PATH_OPTIONS]
    # An option that is no path is compared with the document's when the model is made.
    if key.startswith("model.options."):
        return
    if key not in {*_LOCAL, *paths} and key.partition(".")[0] not in _LOCAL:
        raise ConfigurationError(
            f"--set {setting}: the run document says that; of this machine are "
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
            f"the run's distance is {name.label} (sha256 {name.digest}), which is code of its "
            f"owner's: if you trust it, name your own copy with --set {key}=FILE.py:"
            f"{name.function}"
        )
    use_rule(name, given[key])
    return tuple(setting for setting in settings if key_and_value(setting)[0] != key)


def key_and_value(setting: str) -> tuple[str, str]:
    """Return the key and the text of a `section.key=value`."""
    key, _, value = setting.partition("=")
    return key.strip(), value.strip()


def _table(document: Mapping[str, Any], key: str) -> dict[str, Any]:
    table = document.get(key, {})
    if not isinstance(table, dict) or not all(isinstance(name, str) for name in table):
        raise ConfigurationError(f"the run document's {key} is no table")
    return dict(table)
