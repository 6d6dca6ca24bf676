"""`cmfl settings`: all that a run can be told, as the code has it."""

from __future__ import annotations

import csv
import io
import re
from importlib.resources import files
from pathlib import Path

import pytest

import cmfl as face
from clients.adversaries.faults import MemberFault, TrainerFault
from clients.attacks.registry import ATTACKS
from clients.attacks.samples import DATA_ATTACKS
from clients.configuration.loading import load
from clients.configuration.parsing import PRESETS
from clients.configuration.schema import Configuration
from clients.configuration.settings_reference import settings
from clients.datasets.federated_data import SettingsTable
from ledger.protocol.errors import CmflError, ConfigurationError
from tests.cmfl.commands.conftest import refusal, succeeds


def keys_of(configuration: Configuration) -> set[str]:
    sections = {name: value for name, value in configuration if isinstance(value, SettingsTable)}
    return {f"{name}.{key}" for name, section in sections.items() for key, _ in section} | (
        dict(configuration).keys() - sections.keys()
    )


def test_every_setting_is_there_once_with_a_sentence() -> None:
    found = succeeds("settings", "--json").json
    names = [row["name"] for row in found]
    assert len(names) == len(set(names))
    assert set(names) == keys_of(load("smoke"))
    for row in found:
        assert list(row) == ["name", "default", "is_needed", "may_be", "sentence"]
        assert row["sentence"].endswith("."), row
        assert row["may_be"], row
    assert [row["name"] for row in found if row["is_needed"]] == ["protocol.clients"]


def test_the_defaults_are_those_of_a_bare_run() -> None:
    bare = load("smoke").model_copy(update={"protocol": load("smoke").protocol})
    configuration = Configuration(protocol={"clients": bare.protocol.clients})  # type: ignore[arg-type]
    for one in settings():
        section, _, key = one["name"].rpartition(".")
        if one["name"] != "protocol.clients":
            found = getattr(getattr(configuration, section) if section else configuration, key)
            assert one["default"] == getattr(found, "value", found), one["name"]


def test_what_a_setting_may_be_is_what_is_taken() -> None:
    by_name = {one["name"]: one for one in settings()}
    assert by_name["machine.workers"]["may_be"] == "whole number, at least 1, at most 256"
    assert by_name["protocol.rounds"]["may_be"] == "whole number, 1 to 4294967295"
    assert by_name["protocol.strategy"]["may_be"] == "whole number: 1, 2, 3"
    assert by_name["training.path"]["may_be"] == "auto or plain or lockstep"
    assert by_name["machine.keep"]["may_be"].startswith(
        "all or accepted or whole number, at least 1"
    )
    for one in by_name.values():
        if found := re.fullmatch(r"whole number, (\d+) to (\d+)", one["may_be"]):
            for wrong in (int(found[1]) - 1, int(found[2]) + 1):
                with pytest.raises(CmflError, match=one["name"].rpartition(".")[2]):
                    load("smoke", settings=(f"{one['name']}={wrong}",))


def test_attacks_have_their_factor_and_their_source() -> None:
    found = {row["name"]: row for row in succeeds("settings", "attacks", "--json").json}
    assert list(found) == [*ATTACKS, *DATA_ATTACKS]
    assert found["backdoor"]["on"] == "samples"
    ipm = found["ipm"]
    assert (ipm["factor"], ipm["least"], ipm["most"], ipm["on"]) == (0.5, 0.01, 1000.0, "update")
    assert "Fall of Empires" in ipm["source"]
    assert found["same-value"]["factor"] is None
    for name, row in found.items():
        assert row["sends"], name
        assert row["source"], name
    people = succeeds("settings", "attacks").out
    assert "malice.factor: 0.01 to 1000, default 0.5" in people


def test_faults_and_rules_are_listed_with_their_setting() -> None:
    faults = succeeds("settings", "faults", "--json").json
    assert [row["name"] for row in faults] == [*MemberFault, *TrainerFault]
    assert all(row["sentence"] for row in faults)
    rules = {(row["setting"], row["name"]) for row in succeeds("settings", "rules", "--json").json}
    assert {("protocol.strategy", "3"), ("protocol.distance", "squared")} <= rules
    assert len([name for setting, name in rules if setting == "protocol.strategy"]) == 3
    assert "malice.members false-scores\n    Member that" in succeeds("settings", "faults").out


def test_a_removed_setting_ends_a_command_before_anything_is_written(tmp_path: Path) -> None:
    sentence = (
        "protocol.reference: removed in protocol 3; strategy 3 always compares with the round's "
        "peers"
    )
    new = ("--home", tmp_path / "home", "--set", "protocol.reference=peers")
    assert refusal("run", "--preset", "smoke", *new) == sentence
    with pytest.raises(ConfigurationError, match=sentence):
        face.sweep("smoke", over={"reference": ["own", "peers"]})
    assert [*tmp_path.iterdir()] == []


def test_presets_are_listed_with_the_head_of_their_files() -> None:
    found = {row["name"]: row["sentence"] for row in succeeds("settings", "presets", "--json").json}
    assert list(found) == list(PRESETS)
    for name, sentence in found.items():
        text = (files("clients") / "presets" / f"{name}.toml").read_text()
        assert text.startswith(f"# {sentence[:40]}")
        assert sentence.endswith("."), name
    assert "smoke\n    The smallest run" in succeeds("settings", "presets").out


def test_a_section_or_one_setting_can_be_asked_for() -> None:
    assert "training.local_steps  (default 5)\n    tau" in succeeds("settings", "training").out
    assert "(must be given)" in succeeds("settings", "protocol.clients").out
    assert "data.partition, name = shards: shards" in succeeds("settings", "data").out
    (seed,) = csv.DictReader(io.StringIO(succeeds("settings", "seed", "--csv").out))
    assert (seed["name"], seed["default"]) == ("seed", "0")
    said = refusal("settings", "weather")
    assert said.startswith("settings weather: unknown section; must be one of protocol")
    assert said.endswith("attacks, faults, rules")
