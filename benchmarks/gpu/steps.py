"""The steps of `python -m benchmarks.gpu`: card, tests, whole runs, then measurements."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ET
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

import cmfl
from benchmarks.gpu.plans import TEXT_LENGTH, TEXTS, AdapterRun, GpuPlan
from benchmarks.peers.our_rounds import (
    data_of,
    image_settings,
    jobs_of,
    training_of,
    write_images,
)
from benchmarks.workloads import Work, made_samples, make_workload
from clients.configuration.loading import checked
from clients.datasets.federated_data import DataForm, FederatedData, frozen_samples, next_tokens
from clients.devices import device_named
from clients.experiments.kinds import TRAINING, Stopwatch
from clients.models.model import Model
from clients.models.registry import model_named
from clients.runs.metrics import RoundMetrics
from clients.runs.open_run import open_memory_run
from clients.training.engine_factory import environment_here, open_engine
from clients.training.lockstep.plan import plan as planned
from clients.training.plain_trainer import LocalTraining
from clients.training.port import TrainingJob
from cmfl.commands.doctor import machine_checks

ROOT = Path(__file__).parents[2]
Row = dict[str, Any]

CPU_CLIENTS = 4
"""Clients that also train on the processor, to compare with."""

_MEMORY_SHARE = 0.4
"""Of the free memory, for the updates of a round."""


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
    """Run tests in a process of their own; each has to pass, and none may be left out."""
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
        settings = _image_run(*plan.femnist, Path(folder), device)
        return _played(plan, Path(folder) / "home", settings, {}, device)


def _image_run(work: Work, rounds: int, folder: Path, device: str) -> Row:
    """Write made images; return the settings of a run on them."""
    images = folder / "femnist.npz"
    write_images(*made_samples(work, work.clients), images)
    settings = image_settings(work, images, work.clients, rounds)
    settings["protocol"] |= {"committee_rate": 0.4, "aggregation_rate": 0.4}
    return {**settings, "machine": {"device": device}}


def adapters_run(plan: GpuPlan, device: str, _left: float) -> Row:
    """Play a run of a transformer with adapters, audit it, and repeat some of its training."""
    run = plan.adapters
    with tempfile.TemporaryDirectory() as folder:
        base, rows = Path(folder) / "base", Path(folder) / "rows.jsonl"
        parameters = run.write_base(base)
        run.write_texts(rows)
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
    """Play a run, audit it and repeat updates that are drawn, given files by their settings."""
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


def training(plan: GpuPlan, device: str, _left: float) -> list[Row]:
    """Return what each client's training costs, every update formed and hashed."""
    rows = []
    for name, work in plan.works.items():
        data = data_of(make_workload(work))
        model = model_named(work.model, data.form, work.options)
        rows.append(_trained(name, model, data, training_of(work), plan.repeats, device))
    with tempfile.TemporaryDirectory() as folder:
        rows.append(_adapters_trained(plan.adapters, Path(folder), plan.repeats, device))
    return rows


def large_round(plan: GpuPlan, device: str, _left: float) -> Row:
    """Return what a round at the size of paper-femnist costs, or its largest part that fits."""
    whole, rounds = plan.paper_round
    work, stopwatch = fitting(whole, free_bytes()), Stopwatch()
    ends: list[tuple[float, float]] = []

    def on_round(row: RoundMetrics) -> None:
        assert row.decided, f"round {row.round} was abandoned: there is nothing to time"
        ends.append((time.perf_counter(), stopwatch.spent[TRAINING]))

    with tempfile.TemporaryDirectory() as folder:
        settings = _image_run(work, rounds, Path(folder), device)
        settings["machine"] |= {"ledger": "memory"}
        home = Path(folder) / "home"
        home.mkdir()
        with open_memory_run(home, "gpu", checked(settings), watched=stopwatch.watched) as opened:
            dimension = opened.population.model.dimension
            opened.go_on(on_round)
    spent = np.median(np.diff(np.array(ends), axis=0), axis=0)
    return {
        "clients": work.clients,
        "of": whole.clients,
        "d": dimension,
        "round s": float(spent[0]),
        "training s": float(spent[1]),
    }


def fitting(work: Work, free: int) -> Work:
    """Return a work with as many clients as have room for their updates in free bytes."""
    model = model_named(work.model, DataForm((1, 28, 28), work.classes), work.options)
    most = int(_MEMORY_SHARE * free) // (4 * model.dimension)
    return replace(work, clients=max(10, min(work.clients, most)))


def free_bytes() -> int:
    """Return the memory of this machine that nobody uses."""
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _adapters_trained(run: AdapterRun, base: Path, repeats: int, device: str) -> Row:
    """Return what the training of a transformer's adapters costs."""
    run.write_base(base)
    tokens = run.vocabulary
    form = DataForm(
        (TEXT_LENGTH,), tokens, input_dtype="int64", vocabulary=tokens, task="causal-lm"
    )
    rng = np.random.default_rng(0)
    texts = [rng.integers(0, tokens, (TEXTS, TEXT_LENGTH)) for _ in range(run.clients)]
    train = tuple(frozen_samples(x, next_tokens("made", x)) for x in texts)
    model = model_named("hf", form, {"path": str(base), "targets": "c_attn"})
    settings = LocalTraining(learning_rate=0.5, batch_size=4, local_steps=2)
    data = FederatedData("made", form, train, train[0])
    return _trained("LoRA", model, data, settings, repeats, device)


def _trained(
    name: str,
    model: Model,
    data: FederatedData,
    settings: LocalTraining,
    repeats: int,
    device: str,
) -> Row:
    start = model.initial(np.random.default_rng(1))
    jobs = jobs_of(len(data.train))
    path = planned(model, data, settings, device).path

    def measured(
        device: str, jobs: list[TrainingJob]
    ) -> tuple[list[float], list[NDArray[np.float32]]]:
        machine: dict[str, Any] = {"device": device, "workers": 1, "path": path}
        with open_engine(model, data, settings, sets={}, rows=len(jobs), **machine) as engine:
            times = [_seconds_of(lambda: engine.train(start, jobs)) for _ in range(repeats + 1)]
            some = engine.train(start, jobs)[:CPU_CLIENTS]
            return times, [update.vector.copy() for update in some]

    is_card = device_named(device).type == "cuda"
    if is_card:
        torch.cuda.reset_peak_memory_stats(device)
    there, updates = measured(device, jobs)
    memory = torch.cuda.max_memory_reserved(device) if is_card else None
    here, expected = measured("cpu", jobs[:CPU_CLIENTS])
    return {
        "work": name,
        "path": path,
        "clients": len(jobs),
        "d": model.dimension,
        "first call s": there[0],
        "ms a client": 1e3 * median(there[1:]) / len(jobs),
        "processor ms a client": 1e3 * median(here[1:]) / min(CPU_CLIENTS, len(jobs)),
        "card memory, MiB": None if memory is None else memory / 2**20,
        "median relative difference": median(
            float(np.linalg.norm(update - other) / np.linalg.norm(other))
            for update, other in zip(updates, expected, strict=True)
        ),
    }


def _seconds_of(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began
