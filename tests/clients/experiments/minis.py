"""Small experiments for tests, as TOML and as rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from clients.experiments.definition import Definition, definition_of
from clients.experiments.plan import ExperimentPlan, plan_experiment

MINI = Path(__file__).with_name("mini.toml")
TEXT = MINI.read_text("utf-8")


def defined(*changes: tuple[str, str], text: str = TEXT) -> Definition:
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    return definition_of(text, "mini")


def plan_of(*changes: tuple[str, str], **options: Any) -> ExperimentPlan:
    return plan_experiment("mini", defined(*changes), **options)
