"""What `cmfl doctor` says of a configuration's training."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.cmfl.commands.conftest import cmfl, succeeds

if TYPE_CHECKING:
    from pathlib import Path


def training_rows(*arguments: str | Path) -> list[dict[str, object]]:
    shown = succeeds("doctor", *arguments).json
    return [row for row in shown if row["check"] == "training"]


def test_doctor_says_how_the_clients_of_a_configuration_would_train(tmp_path: Path) -> None:
    home = ("--home", tmp_path / "none", "--json")
    assert not training_rows(*home)
    (row,) = training_rows(*home, "--preset", "digits")
    assert row == {
        "check": "training",
        "ok": True,
        "found": "lockstep path: 10 clients take each step at once; "
        "linear 64 to 10: one matrix for each client, in one call",
    }
    (plain,) = training_rows(*home, "--set", "training.path=plain")
    assert str(plain["found"]).startswith("plain path, as the configuration says; left open")


def test_doctor_says_what_is_wrong_with_a_configuration(tmp_path: Path) -> None:
    result = cmfl("doctor", "--home", tmp_path / "none", "--set", "model.name=vgg")
    assert result.code == 1
    assert "unknown model 'vgg'" in result.out
