"""The steps of `python -m benchmarks.gpu` that pass or fail: card, tests, whole runs."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

import cmfl
from benchmarks.adapters import make_base, write_rows
from clients.devices import device_named
from clients.training.environment import environment_here
from cmfl.commands.checks.machine import machine_checks

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.gpu.plans import GpuPlan

ROOT = Path(__file__).parents[2]
Row = dict[str, Any]


class StepFailedError(Exception):
    """A step found something wrong; its row says what."""

    def __init__(self, row: Row) -> None:
        super().__init__(f"not as it has to be: {row}")
        self.row = row


def card(_plan: GpuPlan, device: str, _left: float) -> Row:
    """Return what computes: the doctor's row, and the environment class of its updates."""
    row: Row = {
        "doctor": dict(machine_checks(Path(), None))["torch"](),
        "environment": environment_here("lockstep", device).device,
    }
    if device_named(device).type == "cuda":
        row["memory, GiB"] = torch.cuda.get_device_properties(device).total_memory / 2**30
    return row


def run_tests(plan: GpuPlan, _device: str, left: float) -> Row:
    """Run tests in a process of their own; each has to pass, and none may be left out.

    Raises:
        StepFailedError: one did not pass, or there is none.
    """
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
        ended = subprocess.run(
            [*command, f"--junitxml={report}", *plan.tests],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=left,
            check=False,
        )
        row = counts(report) if report.exists() else {"tests": 0}
    if row["tests"] != row.get("passed") or not row["tests"]:
        raise StepFailedError({**row, "output": ended.stdout[-4000:] + ended.stderr[-1000:]})
    return row


def digits_run(plan: GpuPlan, device: str, _left: float) -> Row:
    """Play the preset digits, audit it, and repeat some of its training."""
    with tempfile.TemporaryDirectory() as folder:
        settings = {"machine.device": device, **plan.digits}
        return _played(plan, Path(folder) / "home", "digits", settings, device)


def femnist_run(plan: GpuPlan, device: str, _left: float) -> Row:
    """Play a run on images in the form of FEMNIST, audit it, and repeat some of its training."""
    with tempfile.TemporaryDirectory() as folder:
        images = Path(folder) / "femnist.npz"
        plan.femnist.write_images(images)
        settings = plan.femnist.settings(images, device)
        return _played(plan, Path(folder) / "home", settings, {}, device)


def adapters_run(plan: GpuPlan, device: str, _left: float) -> Row:
    """Play a run of a transformer with adapters, audit it, and repeat some of its training."""
    run = plan.adapters
    with tempfile.TemporaryDirectory() as folder:
        base, rows = Path(folder) / "base", Path(folder) / "rows.jsonl"
        parameters = make_base(base, run.layers, run.width, run.vocabulary)
        write_rows(rows, run.clients)
        settings = {
            "protocol.clients": run.clients,
            "protocol.active_rate": 1.0,
            "protocol.rounds": run.rounds,
            "data.name": "file",
            "data.path": str(rows),
            "data.options.task": "causal-lm",
            "data.options.vocabulary": run.vocabulary,
            "model.name": "hf",
            "model.options.path": str(base),
            "model.options.targets": "c_attn",
            "training.local_steps": 2,
            "training.batch_size": 4,
            "machine.device": device,
        }
        named = (f"model.options.path={base}",)
        row = _played(plan, Path(folder) / "home", "digits", settings, device, named)
    return {"parameters of the base": parameters, **row}


def counts(report: Path) -> Row:
    """Return the numbers of tests in a report of pytest."""
    suite = next(ET.parse(report).getroot().iter("testsuite"))
    number = {name: int(suite.get(name, 0)) for name in ("tests", "failures", "errors", "skipped")}
    passed = number["tests"] - number["failures"] - number["errors"] - number["skipped"]
    return {**number, "passed": passed, "seconds": float(suite.get("time", 0))}


def _played(
    plan: GpuPlan, home: Path, preset: Any, settings: Row, device: str, named: Sequence[str] = ()
) -> Row:
    """Play a run, audit it and repeat updates that are drawn, given files by their settings.

    Raises:
        StepFailedError: a round was abandoned, the audit did not pass, or an update is another.
    """
    began = time.perf_counter()
    run = cmfl.run(preset, home=home, settings=settings, progress=False)
    played = time.perf_counter() - began
    audit = cmfl.audit(run, progress=False)
    began = time.perf_counter()
    replay = cmfl.verify_training(
        run, device=device, sample=plan.replayed, settings=named, progress=False
    )
    last = run.rounds[-1]
    row = {
        "rounds": len(run.rounds),
        "seconds": played,
        "accuracy": last.accuracy,
        "head": last.head,
        "audit": str(audit.verdict),
        "replay": replay.counts,
        "replay seconds": time.perf_counter() - began,
    }
    decided = all(round_.status == "decided" for round_ in run.rounds)
    if not (decided and audit.passed and replay.passed):
        raise StepFailedError(row)
    return row
