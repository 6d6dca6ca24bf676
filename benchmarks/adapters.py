"""A transformer with adapters on the ledger: minutes, memory of each process, and the audit.

    python -m benchmarks.adapters [--layers 12] [--width 768] [--clients 20] [--rounds 5]

The base is GPT-2's shape with random weights, made here: 101 million parameters with 12 layers and
a vocabulary of 20,000. Adapters of rank 8 are on `c_attn`, 294,912 parameters. Each client has
rows of tokens that follow one another by a rule of its own dialect.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Thread
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

VOCABULARY, LENGTH, SAMPLES, TESTS = 20_000, 32, 24, 32
SEEN = 200
"""Distinct tokens of the text: few, so that some steps learn them."""


def main() -> None:
    """Make base and data, play the run, audit it, and print what it took."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    for name, usual in (("layers", 12), ("width", 768), ("clients", 20), ("rounds", 5)):
        parser.add_argument(f"--{name}", type=int, default=usual)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--set", action="append", default=[], metavar="SECTION.KEY=VALUE")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        measure(Path(folder), arguments)


def measure(folder: Path, arguments: argparse.Namespace) -> None:
    """Play and audit one run in a folder."""
    base, data, home = folder / "base", folder / "rows.jsonl", folder / "home"
    count = make_base(base, arguments.layers, arguments.width)
    write_rows(data, arguments.clients)
    print(f"base          {count / 1e6:.1f} million parameters, float32, random")
    settings = {
        "protocol.clients": arguments.clients,
        "protocol.rounds": arguments.rounds,
        "data.name": "file",
        "data.path": str(data),
        "data.options.task": "causal-lm",
        "data.options.vocabulary": VOCABULARY,
        "model.name": "hf",
        "model.options.path": str(base),
        "model.options.targets": "c_attn",
        "training.local_steps": 2,
        "training.batch_size": 4,
        "training.learning_rate": 0.5,
        "machine.workers": arguments.workers,
    }
    chosen = [f"--set={name}={value}" for name, value in settings.items()]
    chosen += [f"--set={setting}" for setting in arguments.set]
    command = ["run", "--home", str(home), "--preset", "digits", "--json", *chosen]
    effort, played = timed(command)
    last = json.loads(played)["last"]
    print(f"run           {effort}, {arguments.rounds} rounds")
    for name, peak in effort.peaks.items():
        print(f"peak memory   {peak / 2**20:.2f} GiB, {name}")
    rows = (home / "runs" / "run" / "metrics.jsonl").read_text("utf-8").splitlines()
    first = json.loads(rows[0])
    print(
        f"perplexity    {np.exp(first['loss']):.0f} after round 1, {np.exp(last['loss']):.0f} last"
    )
    blobs = sum(path.stat().st_size for path in (home / "blobs").rglob("*") if path.is_file())
    print(f"blobs         {blobs / 2**20:.1f} MiB, the base is {_size(base) / 2**20:.0f}")
    effort, verdict = timed(["audit", "--home", str(home), "--json"])
    largest = max(effort.peaks.values()) / 2**20
    print(f"audit         {effort}, {largest:.2f} GiB: {_verdict(verdict)}")


def make_base(folder: Path, layers: int, width: int, vocabulary: int = VOCABULARY) -> int:
    """Write a GPT-2 of random weights; return its number of parameters."""
    import torch  # noqa: PLC0415 - the processes that are measured load their own
    from transformers import GPT2Config, GPT2LMHeadModel  # noqa: PLC0415

    torch.manual_seed(0)
    config = GPT2Config(
        vocab_size=vocabulary,
        n_positions=1024,
        n_embd=width,
        n_layer=layers,
        n_head=width // 64,
        bos_token_id=None,
        eos_token_id=None,
    )
    model = GPT2LMHeadModel(config)
    model.save_pretrained(folder)
    return sum(parameter.numel() for parameter in model.parameters())


def write_rows(path: Path, clients: int) -> None:
    """Write rows of tokens: the next is three times the last and one, but for every fifth."""
    rng = np.random.default_rng(0)
    with path.open("w", encoding="utf-8") as file:
        for row in range(clients * SAMPLES + TESTS):
            tokens = [int(rng.integers(SEEN))]
            for _ in range(LENGTH - 1):
                follows = (3 * tokens[-1] + 1) % SEEN
                tokens.append(follows if rng.random() < 0.8 else int(rng.integers(SEEN)))
            is_test = row >= clients * SAMPLES
            sample = {"tokens": tokens, "client": f"c{row % clients:03}", "is_test": is_test}
            file.write(f"{json.dumps(sample)}\n")


@dataclass(frozen=True, slots=True)
class Effort:
    """What a command took.

    Attributes:
        wall: seconds.
        processor: seconds of all its processes together.
        peaks: resident memory in KiB by process.
    """

    wall: float
    processor: float
    peaks: dict[str, int]

    def __str__(self) -> str:
        return f"{self.processor / 60:.2f} CPU minutes, {self.wall / 60:.2f} minutes here"


def timed(command: Sequence[str]) -> tuple[Effort, str]:
    """Run a command of cmfl; return what it took, and its output."""
    start, before = time.perf_counter(), _processor_seconds()
    process = subprocess.Popen(
        [sys.executable, "-m", "cmfl", *command], stdout=subprocess.PIPE, text=True
    )
    peaks: dict[str, int] = {}
    over = Event()

    def watch() -> None:
        while not over.wait(0.2):
            for name, resident in _resident(process.pid):
                peaks[name] = max(resident, peaks.get(name, 0))

    watcher = Thread(target=watch)
    watcher.start()
    output, _ = process.communicate()
    over.set()
    watcher.join()
    if process.returncode != 0:
        raise SystemExit(f"cmfl {command[0]} ended with {process.returncode}")
    return Effort(time.perf_counter() - start, _processor_seconds() - before, peaks), output


def _processor_seconds() -> float:
    """Return what all processes that this one has waited for have computed."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _resident(root: int) -> Iterator[tuple[str, int]]:
    """Yield name and resident memory, in KiB, of a process and of its children."""
    waiting = [root]
    while waiting:
        number = waiting.pop()
        try:
            status = Path(f"/proc/{number}/status").read_text("utf-8")
            children = Path(f"/proc/{number}/task/{number}/children").read_text("utf-8")
        except OSError:
            continue  # it has ended
        waiting += map(int, children.split())
        lines = [line.split() for line in status.splitlines() if line.startswith("VmRSS")]
        for _, resident, _unit in lines:
            yield "main" if number == root else f"process {number}", int(resident)


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.iterdir())


def _verdict(output: str) -> str:
    report = json.loads(output)
    return str(report["outcome"])


if __name__ == "__main__":
    main()
