"""Progress on a terminal, in lines, and not at all."""

from __future__ import annotations

import io
import sys

import pytest

from cmfl.display import tracking


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def played(*, shown: bool | None, line_for_each: bool = False) -> None:
    with tracking("work", shown=shown, line_for_each=line_for_each) as show:
        for done in range(1, 21):
            show(done, 20, f"note {done}")


def test_a_terminal_gets_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    played(shown=None)
    assert "work" in terminal.getvalue()
    assert "20/20" in terminal.getvalue()


def test_a_terminal_without_rich_gets_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rich.console", None)
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    played(shown=None)
    assert terminal.getvalue().splitlines()[-1] == "work: 20 of 20, note 20"


def test_lines_are_one_for_each_tenth_or_step_and_only_if_asked_for(
    capsys: pytest.CaptureFixture[str],
) -> None:
    played(shown=True)
    assert len(capsys.readouterr().err.splitlines()) == 11
    played(shown=None)
    assert capsys.readouterr().err == ""
    for shown, lines in ((None, 20), (True, 20), (False, 0)):
        played(shown=shown, line_for_each=True)
        assert len(capsys.readouterr().err.splitlines()) == lines


def test_nothing_is_shown_if_that_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    played(shown=False)
    assert terminal.getvalue() == ""
