"""The examples of systemd units begin commands that there are, with options that they have."""

from __future__ import annotations

import re
import shlex
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer.main

from cmfl.commands.application import app

UNITS = sorted((Path(__file__).parents[2] / "docs" / "systemd").glob("*.service"))

each_unit = pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)


def settings(unit: Path, name: str) -> list[str]:
    """Return the values of a setting, with lines that go on put together."""
    text = unit.read_text("utf-8").replace("\\\n", " ")
    return re.findall(rf"^{name}=(.*)$", text, re.MULTILINE)


@cache
def all_commands() -> Any:
    """Return the tree of commands, which takes a fifth of a second to make."""
    return typer.main.get_command(app)


def unknown_options(words: list[str]) -> list[str]:
    """Return what a command line names, of commands and options, that there is not."""
    command = all_commands()
    while hasattr(command, "commands"):
        if words[0] not in command.commands:
            return words[:1]
        command, words = command.commands[words[0]], words[1:]
    known = {option for parameter in command.params for option in parameter.opts}
    return [word for word in words if word.startswith("--") and word not in known]


@each_unit
def test_a_unit_begins_a_command_with_options_that_it_has(unit: Path) -> None:
    (line,) = settings(unit, "ExecStart")
    program, *words = shlex.split(line)
    assert Path(program).name == "cmfl"
    assert unknown_options(words) == []


def test_what_there_is_not_is_found() -> None:
    assert unknown_options(["chain", "serves"]) == ["serves"]
    assert unknown_options(["chain", "serve", "--port", "1", "--prot", "1"]) == ["--prot"]


@each_unit
def test_no_unit_holds_a_secret_or_gets_new_rights(unit: Path) -> None:
    (line,) = settings(unit, "ExecStart")
    assert "--password-file" not in line or "${CREDENTIALS_DIRECTORY}" in line
    assert not re.search(r"[0-9a-f]{64}|://[^ ]*@", unit.read_text("utf-8"))
    assert settings(unit, "NoNewPrivileges") == ["yes"]
    assert settings(unit, "User") not in ([], ["root"])
    assert settings(unit, "Restart") == ["on-failure"]


def test_a_worker_with_pending_repairs_is_not_restarted() -> None:
    (worker,) = [unit for unit in UNITS if "worker" in unit.stem]
    assert settings(worker, "RestartPreventExitStatus") == ["2"]
