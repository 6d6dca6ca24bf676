"""Small experiments for tests, as TOML and as rows."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from clients.experiments.catalogue import definition_of
from clients.experiments.plan import plan_experiment
from clients.experiments.rows import CellRow, CellSeconds

if TYPE_CHECKING:
    from clients.experiments.definition import Definition
    from clients.experiments.plan import ExperimentPlan

MINI = Path(__file__).with_name("mini.toml")
TEXT = MINI.read_text("utf-8")


def defined(*changes: tuple[str, str], text: str = TEXT) -> Definition:
    """Return the experiment with some of its text replaced, each of which has to be there."""
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    return definition_of(text, "mini")


def plan_of(*changes: tuple[str, str], **options: Any) -> ExperimentPlan:
    """Return the plan of the experiment with some of its text replaced."""
    return plan_experiment("mini", defined(*changes), **options)


def row(**values: Any) -> CellRow:
    """Return a row, of which only some values matter."""
    rest: dict[str, Any] = {
        "cell": "a__clean__seed0",
        "experiment": "mini",
        "number": 1,
        "method": "a",
        "kind": "cmfl",
        "condition": "clean",
        "axes": {},
        "seed": 0,
        "digest": "0x00",
        "learning_rate": 0.5,
        "rounds": 2,
        "accuracy": (0.5, 0.25),
        "loss": (1.5, None),
        "training_loss": (None, None),
        "backdoor_success": (None, None),
        "floor": 0.125,
        "final": 0.375,
        "malicious_accepted": 0.0,
        "malicious_trained": (1, 0),
        "malicious_members": (0, 1),
        "malicious_aggregated": (0, 0),
        "accepted_honest": 0.5,
        "times_aggregated": (2, 0, 1),
        "samples": (3, 4, 5),
        "malicious": (1,),
        "client_accuracy": None,
        "seconds": CellSeconds(wall=1.5, cpu=1.0),
    }
    return CellRow(**rest | values)
