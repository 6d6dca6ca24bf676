"""The logs of all processes as one, whatever becomes of the files meanwhile."""

from __future__ import annotations

from typing import TYPE_CHECKING

from clients.testnet.watch import LogFollower

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def told(logs: LogFollower) -> list[str]:
    found: list[str] = []
    logs.show(found.append)
    return found


def test_each_whole_line_is_told_once_behind_its_name(tmp_path: Path) -> None:
    logs, one, other = LogFollower(tmp_path), tmp_path / "one.log", tmp_path / "other.log"
    one.write_bytes(b"first\nhalf a")
    other.write_bytes(b"\xff\n")
    assert told(logs) == ["one: first", "other: \ufffd"]
    with one.open("ab") as file:
        file.write(b" line\n")
    assert told(logs) == ["one: half a line"]
    assert told(logs) == []


def test_a_log_that_was_cut_is_followed_from_its_beginning(tmp_path: Path) -> None:
    logs, path = LogFollower(tmp_path), tmp_path / "one.log"
    path.write_bytes(b"before the cut\n")
    told(logs)
    path.write_bytes(b"after\n")
    assert told(logs) == ["one: after"]


def test_a_line_without_an_end_holds_up_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("clients.testnet.watch._MOST_AT_ONCE", 8)
    logs, path = LogFollower(tmp_path), tmp_path / "one.log"
    path.write_bytes(b"x" * 8 + b"\nend\n")
    assert [told(logs), told(logs)] == [["one: xxxxxxxx"], ["one: ", "one: end"]]
