"""What people's terminals show: narrow ones, and those that have only ASCII; and CSV."""

from __future__ import annotations

import csv
import io
import os
import re
import sys
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from unittest.mock import patch

import pytest
import typer

from cmfl.commands import console, sender
from cmfl.commands.console import (
    LATEST,
    PARTS,
    SOONEST,
    ProgressLines,
    Verbosity,
    command_line,
    complain,
    print_csv,
    print_line,
    print_prose,
    print_table,
    progress,
)
from ledger.protocol.errors import ConfigurationError
from tests.cmfl.commands.conftest import SHARED, cmfl, refusal, settings_of, succeeds

pytestmark = SHARED

COLUMNS = ("client", "address", "samples", "what it did")
ROWS = [(7, "0x12345678…abcdef", 20, "trained in three rounds"), (8, "", None, "± nothing")]


@pytest.mark.parametrize("is_on_path", [True, False])
def test_a_printed_command_runs_as_it_is(
    is_on_path: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    if is_on_path:
        (tmp_path / "cmfl").touch(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "argv", ["/a/cmfl/__main__.py"])
    program = "cmfl" if is_on_path else f"{sys.executable} -m cmfl"
    assert command_line("audit", "--run", "a b") == f"{program} audit --run 'a b'"


class Terminal(io.StringIO):
    def __init__(self, encoding: str) -> None:
        super().__init__()
        self._encoding = encoding

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self._encoding

    def isatty(self) -> bool:
        return True


def shown(width: int, encoding: str, act: Callable[[], None]) -> str:
    terminal = Terminal(encoding)
    told = {"COLUMNS": str(width), "TERM": "dumb", "NO_COLOR": "1"}
    with patch.dict(os.environ, told), redirect_stdout(terminal):
        act()
    return terminal.getvalue()


def table() -> None:
    print_table("clients", COLUMNS, ROWS)


def test_sentences_wrap_at_words_and_copyable_text_stays_whole() -> None:
    digest = f"0x{'5c' * 32}"
    text = f"  The head after round 7 is {digest}, and eleven-twelfths agree."
    lines = shown(40, "utf-8", lambda: print_prose(text)).splitlines()
    assert lines == ["  The head after round 7 is", f"  {digest},", "  and eleven-twelfths agree."]
    piped = io.StringIO()
    with redirect_stdout(piped):
        print_prose(text)
    assert piped.getvalue() == f"{text}\n"
    assert shown(40, "utf-8", lambda: print_prose("")) == "\n"
    assert "\x1b" not in shown(40, "utf-8", lambda: print_prose("a \x1b[31m b"))


def test_a_table_wider_than_the_terminal_becomes_blocks() -> None:
    lines = shown(30, "utf-8", table).splitlines()
    assert lines == [
        "clients",
        "client      7",
        "address     0x12345678…abcdef",
        "samples     20",
        "what it did trained in three rounds",
        "",
        "client      8",
        "address",
        "samples",
        "what it did ± nothing",
        "",
    ]


def test_a_terminal_of_ascii_is_shown_ascii() -> None:
    text = shown(80, "ascii", table)
    assert text.isascii()
    assert "0x12345678...abcdef" in text
    assert "+/- nothing" in text
    assert shown(80, "ascii", lambda: print_line("a − b ≥ c")) == "a - b >= c\n"
    err = Terminal("ascii")
    with patch.object(sys, "stderr", err):
        complain("0.9 ± 0.1 å")
    assert err.getvalue() == "cmfl: 0.9 +/- 0.1 å\n"  # the stream shows å by its code


def test_csv_has_the_values_of_json() -> None:
    out = io.StringIO()
    row = {"client": 7, "rate": 0.1, "none": None, "banned": False, "digest": b"\x01", "of": [1, 2]}
    with redirect_stdout(out):
        print_csv(tuple(row), [row | {"client": 8, "none": 'a "text",\x1b\nPASSED'}, row])
    assert "\x1b" not in out.getvalue()
    read = list(csv.DictReader(io.StringIO(out.getvalue())))
    assert read[1] == {
        "client": "7",
        "rate": "0.1",
        "none": "",
        "banned": "false",
        "digest": "0x01",
        "of": "[1, 2]",
    }
    assert read[0]["none"] == r'a "text",\x1b\nPASSED'


def test_csv_and_json_are_one_or_the_other(home: Path) -> None:
    rows = succeeds("runs", "list", "--home", home, "--json").json
    (read,) = csv.DictReader(io.StringIO(succeeds("runs", "list", "--home", home, "--csv").out))
    assert list(read) == list(rows[0])
    assert (read["run"], read["head"]) == (rows[0]["run"], rows[0]["head"])
    said = refusal("runs", "list", "--home", home, "--csv", "--json")
    assert said == "--csv and --json exclude each other; give one"


def test_no_password_is_asked_for_where_it_would_be_seen() -> None:
    asked: list[str] = []
    with (
        patch.object(sender, "_has_terminal", lambda: False),
        patch.object(typer, "prompt", lambda text, **_: asked.append(text)),
        pytest.raises(ConfigurationError, match="is asked for at a terminal; give --password-file"),
    ):
        sender.asked_password()
    assert asked == []


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def lines_of(total: int | None, steps: int, seconds: float) -> list[str]:
    """Return the lines of a work whose every step takes so many seconds."""
    clock, err = Clock(), io.StringIO()
    with redirect_stderr(err), ProgressLines(complain, clock) as lines:
        task = lines.add_task("rounds", total=total)
        for number in range(1, steps + 1):
            clock.now += seconds
            lines.update(task, completed=number, said=f"accuracy 0.{number}")
    return err.getvalue().splitlines()


def test_every_tenth_of_the_work_has_a_line() -> None:
    # 40 rounds of 5 s: a tenth is 4 rounds, 20 s.
    found = lines_of(40, 40, 5.0)
    assert len(found) == PARTS
    assert found[0] == "cmfl: rounds: 4 of 40, accuracy 0.4"
    assert found[-1] == "cmfl: rounds: 40 of 40, accuracy 0.40"


def test_what_is_quick_says_nothing() -> None:
    assert lines_of(40, 40, SOONEST / 41) == []


def test_lines_are_never_closer_than_the_shortest_time() -> None:
    # 100 rounds of 0.5 s: a tenth takes 5 s, so that every second tenth has a line.
    assert [line.split(",")[0] for line in lines_of(100, 100, 0.5)] == [
        f"cmfl: rounds: {number} of 100" for number in (20, 40, 60, 80, 100)
    ]


def test_a_tenth_that_takes_long_has_lines_in_between() -> None:
    found = lines_of(40, 4, LATEST)
    assert [line.split(",")[0] for line in found] == [
        f"cmfl: rounds: {number} of 40" for number in (1, 2, 3, 4)
    ]


def test_without_a_terminal_lines_are_printed_unless_quiet(tmp_path: Path) -> None:
    run = ("run", "--preset", "smoke", "--rounds", 2, *settings_of("machine.ledger=memory"))
    with patch.object(console, "SOONEST", 0.0):
        usual = cmfl(*run, "--home", tmp_path / "a", patient=False)
        quiet = cmfl(*run, "--home", tmp_path / "b", "-q", patient=False)
    line = r"cmfl: run, rounds: {} of 2, accuracy 0\.[0-9]{{3}}, 3 accepted, 0 of them malicious\n"
    assert re.fullmatch(line.format(1) + line.format(2), usual.err), usual.err
    assert quiet.err == ""
    assert (usual.code, quiet.code) == (0, 0)
    assert usual.out.replace(str(tmp_path / "a"), str(tmp_path / "b")) == quiet.out


def test_quiet_disables_bars_too() -> None:
    with patch("cmfl.commands.console.chosen", lambda: Verbosity.QUIET), progress() as bar:
        assert bar.add_task("x", total=1) is not None
