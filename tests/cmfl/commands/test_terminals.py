"""What people's terminals show: narrow ones, and those that have only ASCII; and CSV."""

from __future__ import annotations

import csv
import io
import os
import sys
from contextlib import redirect_stdout
from typing import TYPE_CHECKING
from unittest.mock import patch

import pytest
import typer

from cmfl.commands import sender
from cmfl.commands.console import (
    command_line,
    complain,
    print_csv,
    print_line,
    print_prose,
    print_table,
)
from ledger.protocol.errors import ConfigurationError
from tests.cmfl.commands.conftest import SHARED, refusal, succeeds

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

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
    """A terminal of one encoding."""

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
    assert lines == [
        "  The head after round 7 is",
        f"  {digest},",
        "  and eleven-twelfths agree.",
    ]
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
    assert said == "--csv and --json: give one of them"


def test_no_password_is_asked_for_where_it_would_be_seen() -> None:
    asked: list[str] = []
    with (
        patch.object(sender, "_has_terminal", lambda: False),
        patch.object(typer, "prompt", lambda text, **_: asked.append(text)),
        pytest.raises(ConfigurationError, match="is asked for at a terminal; give --password-file"),
    ):
        sender._asked_password()
    assert asked == []
