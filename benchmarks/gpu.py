"""`make gpu`: tests, whole runs and measurements on this machine's GPU, written as one document.

`python -m benchmarks.gpu` needs a CUDA build of torch and a card, and nothing from the network. It
names the card, runs the CUDA tests, plays, audits and repeats a run of digits, one on images in
the form of FEMNIST and one of a transformer with adapters, and measures training and a round at the
size of paper-femnist. A step for which too little of ten minutes is left does not
begin, and is named. The figures go to docs/measured/gpu.json. Exit code 1: a step failed or was
left out. 2: there is no such device.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import traceback
import xml.etree.ElementTree as ET
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

import cmfl
from benchmarks.harness import MEASURED, ROOT, Row, machine, timed
from benchmarks.peers.our_rounds import (
    data_of,
    image_settings,
    jobs_of,
    training_of,
    write_images,
)
from benchmarks.workloads import WORKS, Work, made_samples, make_workload
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
from clients.training.port import LocalTraining, TrainingJob
from cmfl.commands.doctor import machine_checks
from ledger.io.home import write_named
from ledger.protocol.errors import ConfigurationError

RESULT = MEASURED / "gpu.json"
BUDGET_SECONDS = 570.0
CPU_CLIENTS = 4
"""Clients that also train on the processor, to compare with."""
_MEMORY_SHARE = 0.4
"""Of the free memory, for the updates of a round."""

TEXT_LENGTH, TEXTS, TEST_TEXTS = 32, 24, 32
"""Tokens of a text, texts of each client, and texts of the test."""
TOKENS_SEEN = 200
"""Distinct tokens in the texts: few, so that a few steps learn them."""
PAPER_CLIENTS = 355
"""Active clients in a round of the preset paper-femnist, 142 of them members."""


@dataclass(frozen=True, slots=True)
class AdapterRun:
    """A run of GPT-2's shape with random weights and adapters."""

    layers: int
    width: int
    vocabulary: int
    clients: int
    rounds: int

    def write_base(self, folder: Path) -> int:
        """Write the base with random weights; return its number of parameters."""
        from transformers import GPT2Config, GPT2LMHeadModel  # noqa: PLC0415

        torch.manual_seed(0)
        config = GPT2Config(
            vocab_size=self.vocabulary,
            n_positions=1024,
            n_embd=self.width,
            n_layer=self.layers,
            n_head=self.width // 64,
            bos_token_id=None,
            eos_token_id=None,
        )
        model = GPT2LMHeadModel(config)
        model.save_pretrained(folder)
        return sum(parameter.numel() for parameter in model.parameters())

    def write_texts(self, path: Path) -> None:
        """Write texts in which four of five tokens follow from the token before."""
        rng = np.random.default_rng(0)
        with path.open("w", encoding="utf-8") as file:
            for row in range(self.clients * TEXTS + TEST_TEXTS):
                tokens = [int(rng.integers(TOKENS_SEEN))]
                for _ in range(TEXT_LENGTH - 1):
                    follows = (3 * tokens[-1] + 1) % TOKENS_SEEN
                    tokens.append(follows if rng.random() < 0.8 else int(rng.integers(TOKENS_SEEN)))
                is_test = row >= self.clients * TEXTS
                client = f"c{row % self.clients:03}"
                sample = {"tokens": tokens, "client": client, "is_test": is_test}
                file.write(f"{json.dumps(sample)}\n")


@dataclass(frozen=True, slots=True)
class GpuPlan:
    """Sizes of all steps.

    Attributes:
        digits: settings of the run of the preset digits, by their last names.
        repeats: measured turns, after one that is not measured.
        paper_round: the run of large rounds, with as many clients as fit into memory.
    """

    tests: Sequence[str]
    digits: Mapping[str, int]
    replayed: int
    femnist: tuple[Work, int]
    adapters: AdapterRun
    works: Mapping[str, Work]
    repeats: int
    paper_round: tuple[Work, int]


FULL = GpuPlan(
    tests=("-m", "cuda", "tests/clients"),
    digits={},
    replayed=100,
    femnist=(replace(WORKS["W1L"], clients=20), 8),
    adapters=AdapterRun(layers=12, width=768, vocabulary=20_000, clients=20, rounds=5),
    works={name: WORKS[name] for name in ("W1L", "W1S", "W2")},
    repeats=3,
    paper_round=(Work("paper", PAPER_CLIENTS, 1, 32, 0.001, "alexnet", {}), 3),
)

TINY = GpuPlan(
    tests=("tests/test_early_stop.py",),
    digits={"rounds": 1, "clients": 20},
    replayed=5,
    femnist=(Work("femnist", 10, 2, 2, 0.05, "softmax", {}), 1),
    adapters=AdapterRun(layers=1, width=64, vocabulary=200, clients=10, rounds=1),
    works={
        "W2": replace(WORKS["W2"], clients=2, steps=1, batch=2, options={"hidden": 4}),
        "W3": replace(WORKS["W3"], clients=4, steps=5),
    },
    repeats=1,
    paper_round=(Work("paper", 10, 1, 4, 0.05, "softmax", {}), 2),
)
"""Does it all work? On the CPU, in seconds."""


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
    sizes: dict[str, Any] = {"device": device, "sample": plan.replayed, "settings": named}
    run, played = timed(lambda: cmfl.run(preset, home=home, settings=settings, progress=False))
    audit = cmfl.audit(run, progress=False)
    replay, replayed = timed(lambda: cmfl.verify_training(run, progress=False, **sizes))
    last = run.rounds[-1]
    row = {
        "rounds": len(run.rounds),
        "seconds": played.wall,
        "accuracy": last.accuracy,
        "head": last.head,
        "audit": str(audit.verdict),
        "replay": replay.counts,
        "replay seconds": replayed.wall,
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
    free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    work, stopwatch = fitting(whole, free), Stopwatch()
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
            times = [timed(lambda: engine.train(start, jobs))[1].wall for _ in range(repeats + 1)]
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


STEPS: dict[str, tuple[Callable[[GpuPlan, str, float], Any], float]] = {
    "card": (card, 5),
    "tests": (run_tests, 30),
    "digits": (digits_run, 20),
    "femnist": (femnist_run, 30),
    "adapters": (adapters_run, 40),
    "training": (training, 60),
    "round": (large_round, 90),
}
"""Each step, and the seconds that have to be left for it to begin."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Do all steps, write the document and return the exit code."""
    parser = argparse.ArgumentParser(
        prog="gpu", description=(__doc__ or "").partition("\n")[0].partition(": ")[2]
    )
    parser.add_argument("--device", default="cuda", help="cuda, cuda:N, or cpu to try the command")
    parser.add_argument("--tiny", action="store_true", help="small sizes: does it all work?")
    parser.add_argument("--out", type=Path, default=RESULT, help="the document")
    options = parser.parse_args(arguments)
    try:
        device_named(options.device)
    except ConfigurationError as error:
        print(f"gpu: {error}", file=sys.stderr)
        return 2
    plan = TINY if options.tiny else FULL
    began = time.perf_counter()
    document: dict[str, Any] = {"machine": machine(), "device": options.device, "failed": {}}
    for name, (step, needs) in STEPS.items():
        left = BUDGET_SECONDS - (time.perf_counter() - began)
        if left < needs:
            sentence = f"left out: {left:.0f} s were left, and it takes {needs:.0f}"
            document["failed"][name] = sentence
        else:
            print(f"{name} ...", flush=True)
            _do(document, name, partial(step, plan, options.device, left))
    document["seconds"] = time.perf_counter() - began
    write_named(options.out, f"{json.dumps(document, indent=1)}\n".encode())
    failed = ", ".join(document["failed"]) or "nothing"
    print(f"{options.out}: {document['seconds']:.0f} s, failed: {failed}")
    return 1 if document["failed"] else 0


def _do(document: dict[str, Any], name: str, step: Callable[[], Any]) -> None:
    """Do a step; write its rows, or why there are none, into the document."""
    began = time.perf_counter()
    try:
        document[name] = step()
    except StepFailedError as error:
        document["failed"][name] = error.row
    except Exception as error:  # noqa: BLE001 - the first run on a card may fail in any way
        traceback.print_exc()
        document["failed"][name] = f"{type(error).__name__}: {error}"[:2000]
    found = document.get(name, document["failed"].get(name))
    print(f"{name}: {time.perf_counter() - began:.1f} s: {json.dumps(found)}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
