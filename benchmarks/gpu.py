"""`make gpu`: tests, whole runs and measurements on this machine's GPU, written as one document.

`python -m benchmarks.gpu` needs a CUDA build of torch and a card, and no network. Its steps are in
`STEPS`. A step does not begin if too little of ten minutes is left; the document names it. The
figures go to docs/measured/gpu.json. Exit code 1: a step failed or was left out. 2: no such device.
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
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

import cmfl
from benchmarks.harness import MEASURED, ROOT, Row, machine, timed
from benchmarks.peers import our_rounds
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
CPU_CLIENTS = 4  # clients that also train on the processor, to compare with
TEXT_LENGTH, TEXTS, TEST_TEXTS = 32, 24, 32
"""Tokens of a text, texts of each client, and texts of the test."""
TOKENS_SEEN = 200  # distinct tokens in the texts: few, so that a few steps learn them


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
    """Sizes of all steps, a run on images with its rounds."""

    tests: Sequence[str]
    digits: Mapping[str, int]
    replayed: int
    femnist: tuple[Work, int]
    adapters: AdapterRun
    works: Mapping[str, Work]
    repeats: int  # measured turns, after one that is not measured
    paper_round: tuple[Work, int]


FULL = GpuPlan(
    tests=("-m", "cuda", "tests/clients"),
    digits={},
    replayed=100,
    femnist=(replace(WORKS["W1L"], clients=20), 8),
    adapters=AdapterRun(layers=12, width=768, vocabulary=20_000, clients=20, rounds=5),
    works={name: WORKS[name] for name in ("W1L", "W1S", "W2")},
    repeats=3,
    # As many clients are active in a round of the preset paper-femnist.
    paper_round=(Work("paper", 355, 1, 32, 0.001, "alexnet", {}), 3),
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
    """A step found something wrong, which its only argument, a row, describes."""


def card(_plan: GpuPlan, _folder: Path, device: str, _left: float) -> Row:
    """Return what computes: the doctor's row, and the environment class of its updates."""
    row: Row = {
        "doctor": dict(machine_checks(Path(), None, loads_torch=True))["torch"](),
        "environment": environment_here("lockstep", device).device,
    }
    if device_named(device).type == "cuda":
        row["memory, GiB"] = torch.cuda.get_device_properties(device).total_memory / 2**30
    return row


def run_tests(plan: GpuPlan, folder: Path, _device: str, left: float) -> Row:
    """Run tests in a separate process; each has to pass, and none may be left out."""
    report = folder / "report.xml"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    command += [f"--junitxml={report}", *plan.tests]
    ended = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=left, check=False
    )
    row: Row = {"tests": 0}
    if report.exists():
        suite = next(ET.parse(report).getroot().iter("testsuite"))
        names = ("tests", "failures", "errors", "skipped")
        row = {name: int(suite.get(name, 0)) for name in names}
        row["passed"] = row["tests"] - row["failures"] - row["errors"] - row["skipped"]
        row["seconds"] = float(suite.get("time", 0))
    if row["tests"] != row.get("passed") or not row["tests"]:
        raise StepFailedError({**row, "output": ended.stdout[-4000:] + ended.stderr[-1000:]})
    return row


def digits_run(plan: GpuPlan, folder: Path, device: str, _left: float) -> Row:
    """Play the preset digits, audit it, and repeat some of its training."""
    return _played(plan, folder / "home", "digits", plan.digits, device)


def femnist_run(plan: GpuPlan, folder: Path, device: str, _left: float) -> Row:
    """Play a run on images in the form of FEMNIST, audit it, and repeat some of its training."""
    settings = _image_run(*plan.femnist, folder, device)
    return _played(plan, folder / "home", settings, {}, device)


def _image_run(work: Work, rounds: int, folder: Path, device: str) -> Row:
    """Write made images; return the settings of a run on them."""
    images = folder / "femnist.npz"
    our_rounds.write_images(*made_samples(work, work.clients), images)
    settings = our_rounds.image_settings(work, images, work.clients, rounds)
    settings["protocol"] |= {"committee_rate": 0.4, "aggregation_rate": 0.4}
    return {**settings, "machine": {"device": device}}


def adapters_run(plan: GpuPlan, folder: Path, device: str, _left: float) -> Row:
    """Play a run of a transformer with adapters, audit it, and repeat some of its training."""
    run, base, rows = plan.adapters, folder / "base", folder / "rows.jsonl"
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
    }
    named = (f"model.options.path={base}",)
    row = _played(plan, folder / "home", "digits", settings, device, named)
    return {"parameters of the base": parameters, **row}


def _played(
    plan: GpuPlan,
    home: Path,
    preset: Any,
    settings: Mapping[str, Any],
    device: str,
    named: Sequence[str] = (),
) -> Row:
    """Play a run, audit it and repeat updates that are drawn, given files by their settings."""
    sizes: dict[str, Any] = {"device": device, "sample": plan.replayed, "settings": named}
    settings = {"machine.device": device, **settings}
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


def training(plan: GpuPlan, folder: Path, device: str, _left: float) -> list[Row]:
    """Return what each client's training costs, every update formed and hashed."""
    rows = []
    for name, work in plan.works.items():
        data = our_rounds.data_of(make_workload(work))
        model = model_named(work.model, data.form, work.options)
        rows.append(_trained(name, model, data, our_rounds.training_of(work), plan.repeats, device))
    run = plan.adapters
    run.write_base(folder)
    tokens = run.vocabulary
    form = DataForm(
        (TEXT_LENGTH,), tokens, input_dtype="int64", vocabulary=tokens, task="causal-lm"
    )
    rng = np.random.default_rng(0)
    texts = [rng.integers(0, tokens, (TEXTS, TEXT_LENGTH)) for _ in range(run.clients)]
    train = tuple(frozen_samples(x, next_tokens("made", x)) for x in texts)
    model = model_named("hf", form, {"path": str(folder), "targets": "c_attn"})
    settings = LocalTraining(learning_rate=0.5, batch_size=4, local_steps=2)
    data = FederatedData("made", form, train, train[0])
    return [*rows, _trained("LoRA", model, data, settings, plan.repeats, device)]


def large_round(plan: GpuPlan, folder: Path, device: str, _left: float) -> Row:
    """Return what a round at the size of paper-femnist costs, or its largest part that fits."""
    whole, rounds = plan.paper_round
    free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    size = model_named(whole.model, DataForm((1, 28, 28), whole.classes), whole.options).dimension
    # Updates of four bytes a number may take 40% of the free memory.
    most = int(0.4 * free) // (4 * size)
    work, stopwatch = replace(whole, clients=max(10, min(whole.clients, most))), Stopwatch()
    ends: list[tuple[float, float]] = []

    def on_round(row: RoundMetrics) -> None:
        assert row.decided, f"round {row.round} was abandoned: there is nothing to time"
        ends.append((time.perf_counter(), stopwatch.spent[TRAINING]))

    settings = _image_run(work, rounds, folder, device)
    settings["machine"] |= {"ledger": "memory"}
    with open_memory_run(folder, "gpu", checked(settings), watched=stopwatch.watched) as opened:
        opened.go_on(on_round)
    spent = np.median(np.diff(np.array(ends), axis=0), axis=0)
    return {
        "clients": work.clients,
        "of": whole.clients,
        "d": size,
        "round s": float(spent[0]),
        "training s": float(spent[1]),
    }


def _trained(
    name: str, model: Model, data: FederatedData, settings: LocalTraining, repeats: int, device: str
) -> Row:
    start = model.initial(np.random.default_rng(1))
    jobs = our_rounds.jobs_of(len(data.train))
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


STEPS: dict[str, tuple[Callable[[GpuPlan, Path, str, float], Any], float]] = {
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
            begun = time.perf_counter()
            try:
                with tempfile.TemporaryDirectory() as folder:
                    document[name] = step(plan, Path(folder), options.device, left)
            except StepFailedError as error:
                document["failed"][name] = error.args[0]
            except Exception as error:  # noqa: BLE001 - the first run on a card may fail in any way
                traceback.print_exc()
                document["failed"][name] = f"{type(error).__name__}: {error}"[:2000]
            found = json.dumps(document.get(name, document["failed"].get(name)))
            print(f"{name}: {time.perf_counter() - begun:.1f} s: {found}", flush=True)
    document["seconds"] = time.perf_counter() - began
    write_named(options.out, f"{json.dumps(document, indent=1)}\n".encode())
    failed = ", ".join(document["failed"]) or "nothing"
    print(f"{options.out}: {document['seconds']:.0f} s, failed: {failed}")
    return 1 if document["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
