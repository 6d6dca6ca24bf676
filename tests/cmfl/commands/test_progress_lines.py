"""Progress without a terminal: a line now and then, and none of what is quick."""

from __future__ import annotations

import io
import re
from contextlib import redirect_stderr
from typing import TYPE_CHECKING
from unittest.mock import patch

from cmfl.commands import progress_lines
from cmfl.commands.console import complain, progress
from cmfl.commands.progress_lines import LATEST, PARTS, SOONEST, ProgressLines
from cmfl.commands.verbosity import Verbosity
from tests.cmfl.commands.conftest import SHARED, cmfl, settings_of

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = SHARED


class Clock:
    """A clock that only goes on where it is told to."""

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
    with patch.object(progress_lines, "SOONEST", 0.0):
        usual = cmfl(*run, "--home", tmp_path / "a", patient=False)
        quiet = cmfl(*run, "--home", tmp_path / "b", "-q", patient=False)
    line = r"cmfl: run, rounds: {} of 2, accuracy 0\.[0-9]{{3}}, 3 accepted, 0 of them malicious\n"
    assert re.fullmatch(line.format(1) + line.format(2), usual.err), usual.err
    assert quiet.err == ""
    assert (usual.code, quiet.code) == (0, 0)
    assert usual.out.replace(str(tmp_path / "a"), str(tmp_path / "b")) == quiet.out


def test_quiet_disables_bars_too() -> None:
    with patch("cmfl.commands.verbosity.chosen", lambda: Verbosity.QUIET), progress() as bar:
        assert bar.add_task("x", total=1) is not None
