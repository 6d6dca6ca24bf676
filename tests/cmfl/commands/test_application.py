"""What every command takes and says: help, versions, completion, how much it tells."""

from __future__ import annotations

import io
import logging
import os
import re
from contextlib import redirect_stdout
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import typer

from clients.configuration.parsing import PRESETS
from cmfl.commands import application, console
from cmfl.commands.application import command_for
from cmfl.commands.console import Verbosity
from ledger.protocol.types import PROTOCOL_VERSION
from tests.cmfl.commands.conftest import SHARED, cmfl, every_command, refusal, succeeds

pytestmark = SHARED


@cache
def every_module() -> Any:
    return typer.main.get_command(application.application())


def help_of(words: tuple[str, ...], command: Any) -> str:
    out = io.StringIO()
    with redirect_stdout(out):
        assert command([*words, "-h"], prog_name="cmfl", standalone_mode=False) == 0
    return out.getvalue()


def test_h_is_help_of_every_command_and_group() -> None:
    every = [each.words for each in every_command().values()]
    assert {(), ("run",), ("rounds",), ("rounds", "list"), ("experiment", "audit")} < set(every)
    assert succeeds("rounds", "-h").out.startswith("Usage: ")
    for words in every:
        whole, alone = help_of(words, every_module()), help_of(words, command_for(*words[:1]))
        assert whole == alone, "a command that is made or listed alone is the same"
        assert alone.startswith(f"Usage: cmfl {' '.join((*words, '[OPTIONS]'))}"), words
        assert "-h, --help" in alone
        is_group = "COMMAND [ARGS]" in alone
        assert ("-q, --quiet" in alone, "-v, --verbose" in alone) == (not is_group, not is_group)


def test_the_version_is_that_of_package_protocol_and_contract_compiler() -> None:
    said = dict(line.rsplit(" ", 1) for line in succeeds("--version").out.splitlines())
    assert list(said) == ["cmfl", "protocol", "contract compiler vyper"]
    assert said["protocol"] == str(PROTOCOL_VERSION)
    assert re.fullmatch(r"[0-9]+\.[0-9]+\.[0-9]+", said["cmfl"])
    assert said["contract compiler vyper"] == "0.4.3"


def test_runs_and_presets_complete_themselves(home: Path) -> None:
    # What bash asks for, in this process: nothing is imported twice.
    command = typer.main.get_command(application.application())

    def asked(line: str, place: int) -> list[str]:
        told = {"COMP_WORDS": line, "COMP_CWORD": str(place), "_CMFL_COMPLETE": "complete_bash"}
        said = io.StringIO()
        with (
            patch.dict(os.environ, told),
            redirect_stdout(said),
            pytest.raises(SystemExit) as ended,
        ):
            command(prog_name="cmfl", standalone_mode=False)
        assert ended.value.code == 0
        return said.getvalue().split()

    assert asked(f"cmfl rounds list --home {home} --run r", 6) == ["run"]
    assert asked("cmfl run --preset rob", 3) == ["robust"]
    assert asked("cmfl run --preset ", 3) == sorted(PRESETS)


def test_quiet_and_verbose_contradict_each_other(home: Path) -> None:
    rows = ("rounds", "list", "--home", home)
    assert refusal(*rows, "-q", "-v") == "-q and -v exclude each other; give one"
    usual, quiet = succeeds(*rows), succeeds(*rows, "--quiet")
    assert usual.out == quiet.out
    assert console.chosen() is Verbosity.USUAL


def test_verbose_says_what_is_read_and_how_long_it_took(home: Path) -> None:
    result = cmfl("rounds", "list", "--home", home, "-v")
    assert result.code == 0
    first, *_, last = result.err.splitlines()
    assert first == f"cmfl: reads {home / 'chain.sqlite'}"
    assert re.fullmatch(r"cmfl: took [0-9]+\.[0-9] s", last)
    assert result.out == succeeds("rounds", "list", "--home", home).out


def warned(*options: str) -> str:
    """Return standard error of a command whose chain warns, and tells."""

    def telling(_: object) -> None:
        logging.getLogger("ledger.chain").warning("a warning")
        logging.getLogger("ledger.chain").error("an error")

    with patch("cmfl.where.Target.reader", telling):
        return cmfl("rounds", "list", *options).err


def test_quiet_keeps_back_what_is_only_worth_knowing() -> None:
    assert "a warning" in warned()
    assert "a warning" not in warned("-q")
    assert "an error" in warned("-q")


def test_an_internal_error_shows_its_origin_only_on_request() -> None:
    def broken(_: object) -> None:
        raise RuntimeError("broken")

    with patch("cmfl.where.Target.reader", broken):
        result = cmfl("rounds", "list")
        assert (result.code, result.err.count("\n")) == (70, 1)
        result = cmfl("rounds", "list", "-v")
        assert result.code == 70, "1 would be a verdict"
        assert "Traceback" in result.err
        assert "RuntimeError: broken" in result.err
