"""A home that keeps few payloads: what commands say of it, and that no audit calls it complete."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.cmfl.commands.conftest import SHARED, cmfl, settings_of, succeeds

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = SHARED


def test_rounds_name_pruned_payloads_and_the_audit_is_incomplete(tmp_path: Path) -> None:
    home = ("--home", tmp_path)
    settings = settings_of("protocol.rounds=2", "machine.keep=accepted")
    succeeds("run", "--preset", "smoke", *settings, *home)
    shown = succeeds("rounds", "show", 1, *home, "--json").json
    parts = shown["parts"]
    accepted = {entry["client"] for entry in parts["aggregation"]["accepted"]}
    active = {entry["client"] for entry in (*parts["updates"], *parts["committee"])}
    gone = sorted(active - accepted)
    sentence = (
        f"Of 10 payloads {len(gone)} are not stored here, those of clients "
        f"{', '.join(map(str, gone))}: what depends on them is reported, but cannot be checked."
    )
    assert sentence in succeeds("rounds", "show", 1, *home).out.splitlines()
    assert succeeds("rounds", "explain", 1, *home, "--json").json["sentences"][-1] == sentence
    report = cmfl("audit", *home)
    assert report.code == 3
    assert f"round 1, client {gone[0]}: the payload 0x" in report.out
    assert "INCOMPLETE: nothing contradicts, but steps 5, 6 lack what to check by" in report.out
    assert " 9 the model, bit for bit               passed" in report.out


def test_rounds_say_nothing_of_payloads_that_are_there(home: Path) -> None:
    assert "not stored here" not in succeeds("rounds", "explain", 1, "--home", home).out
