"""The work that the contenders of `benchmarks.rounds` do: models, fixed data, steps, in files.

A workload is a folder: every client's samples in the order of its SGD, and the start parameters.
This module does not import the product, so that the environments of the peers need only torch.

A contender is a separate process, which writes `result.json` and `aggregate.npy` into its folder.
Its first round is a warm-up without timing, and shows that all contenders do the same work.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

_IMAGE = (1, 28, 28)
_CHARACTERS = 80


def plain_leaf_cnn(hidden: int, classes: int = 62) -> nn.Module:
    """Return LEAF's network for FEMNIST: two 5 x 5 convolutions with pooling, two linear layers."""
    convolutions = (
        layer
        for channels in ((1, 32), (32, 64))
        for layer in (nn.Conv2d(*channels, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2))
    )
    linear = (nn.Linear(64 * 7 * 7, hidden), nn.ReLU(), nn.Linear(hidden, classes))
    return nn.Sequential(*convolutions, nn.Flatten(), *linear)


class PlainShakespeareLstm(nn.Module):
    """LEAF's network for Shakespeare: one trained bias for each gate, and a frozen one."""

    def __init__(self, hidden: int = 100, characters: int = _CHARACTERS) -> None:
        super().__init__()
        self.embedding = nn.Embedding(characters, 8)
        self.lstm = nn.LSTM(8, hidden, num_layers=2, batch_first=True)
        self.output = nn.Linear(hidden, characters)
        for layer in range(self.lstm.num_layers):
            constant: nn.Parameter = getattr(self.lstm, f"bias_hh_l{layer}")
            constant.requires_grad = False
            nn.init.zeros_(constant)
            nn.init.ones_(constant[hidden : 2 * hidden])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return class scores of the character after each text, shape (n, characters)."""
        states, _ = self.lstm(self.embedding(x))
        logits: torch.Tensor = self.output(states[:, -1])
        return logits


@dataclass(frozen=True, slots=True)
class Work:
    """A workload without its data."""

    name: str
    clients: int
    steps: int
    batch: int
    learning_rate: float
    model: str
    options: dict[str, int]

    @property
    def samples(self) -> int:
        """Training samples of a client: each is used once in a round."""
        return self.steps * self.batch

    @property
    def tokens(self) -> bool:
        return self.model == "shakespeare_lstm"

    @property
    def classes(self) -> int:
        return _CHARACTERS if self.tokens else 62


WORKS = {
    work.name: work
    for work in (
        Work("W1L", 100, 10, 10, 0.05, "leaf_cnn", {"hidden": 2048}),
        Work("W1S", 100, 10, 10, 0.05, "leaf_cnn", {"hidden": 512}),
        Work("W2", 14, 20, 10, 0.5, "shakespeare_lstm", {"hidden": 100}),
        Work("W3", 100, 10, 10, 0.05, "softmax", {}),
    )
}


def module_of(work: Work) -> nn.Module:
    """Return the plain module of a workload, with torch's own random parameters."""
    if work.model == "leaf_cnn":
        return plain_leaf_cnn(**work.options)
    if work.model == "shakespeare_lstm":
        return PlainShakespeareLstm(**work.options)
    return nn.Sequential(nn.Flatten(), nn.Linear(28 * 28, work.classes))


@dataclass(frozen=True, slots=True, eq=False)
class PeerWorkload:
    """A workload: x and y by client in the order of the steps, and start parameters, shape (d,)."""

    work: Work
    x: NDArray[Any]
    y: NDArray[np.int64]
    start: NDArray[np.float32]

    def tensors(self, client: int) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.from_numpy(self.x[client]), torch.from_numpy(self.y[client])


def make_workload(work: Work, clients: int | None = None) -> PeerWorkload:
    """Return a workload, or one of fewer clients, with made-up data: the same on every machine."""
    torch.manual_seed(0)
    start = flat(module_of(work))
    return PeerWorkload(work, *made_samples(work, clients or work.clients), start)


def made_samples(work: Work, count: int) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Return inputs and labels, shapes (clients, samples, ...) and (clients, samples)."""
    rng = np.random.default_rng(list(work.name.encode()))
    y = rng.integers(work.classes, size=(count, work.samples))
    if work.tokens:
        x = rng.integers(_CHARACTERS, size=(count, work.samples, 80))
        x[..., -1] = y  # what comes next can be told from the last character
        return x, y
    prototypes = rng.random((work.classes, *_IMAGE), dtype=np.float32)
    noise = rng.random((count, work.samples, *_IMAGE), dtype=np.float32)
    return (prototypes[y] + noise) / 2, y


def write_workload(workload: PeerWorkload, folder: Path) -> None:
    """Write a workload into a folder that is there."""
    np.save(folder / "x.npy", workload.x)
    np.save(folder / "y.npy", workload.y)
    np.save(folder / "start.npy", workload.start)
    (folder / "work.json").write_text(json.dumps(asdict(workload.work)), "utf-8")


def read_workload(folder: Path) -> PeerWorkload:
    """Return the workload that a folder holds, all of it in memory."""
    work = Work(**json.loads((folder / "work.json").read_text("utf-8")))
    x, y, start = (np.load(folder / f"{name}.npy") for name in ("x", "y", "start"))
    return PeerWorkload(work, x, y, start)


def trained_parameters(module: nn.Module) -> list[nn.Parameter]:
    """Return the parameters that are trained, in the order of the vector."""
    return [parameter for parameter in module.parameters() if parameter.requires_grad]


def flat(module: nn.Module) -> NDArray[np.float32]:
    """Return the trained parameters as one new vector."""
    vector = nn.utils.parameters_to_vector(trained_parameters(module)).detach()
    return np.array(vector.numpy())


def load_flat(module: nn.Module, vector: torch.Tensor) -> None:
    """Copy a vector into the trained parameters."""
    nn.utils.vector_to_parameters(vector.clone(), trained_parameters(module))


def run_sgd(module: nn.Module, workload: PeerWorkload, client: int) -> None:
    """Take all steps of one client's SGD, as any user of torch writes them."""
    work = workload.work
    x, y = workload.tensors(client)
    optimizer = torch.optim.SGD(module.parameters(), lr=work.learning_rate)
    for first in range(0, work.samples, work.batch):
        batch = slice(first, first + work.batch)
        optimizer.zero_grad()
        nn.functional.cross_entropy(module(x[batch]), y[batch]).backward()
        optimizer.step()


def contender_arguments() -> argparse.Namespace:
    """Return a contender's arguments: the folders `work` and `out`, and `rounds` to time."""
    parser = argparse.ArgumentParser()
    parser.add_argument("work", type=Path, help="the folder of the workload")
    parser.add_argument("out", type=Path, help="where the result goes")
    parser.add_argument("--rounds", type=int, default=3, help="rounds after the warm-up")
    parser.add_argument("--members", type=int, default=0, help="of the committee; 0 for none")
    parser.add_argument("--variant", default="", help="which of a contender's ways")
    return parser.parse_args()


def tree_cpu_seconds(root: int) -> float:
    """Return the CPU seconds of a process and all below it, ended children included."""
    parents, spent, ticks = {}, {}, os.sysconf("SC_CLK_TCK")
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                stat = (folder / "stat").read_text("utf-8", "replace")
            except OSError:  # it ended meanwhile; its parent has its time
                continue
            fields = stat.rpartition(")")[2].split()
            parents[int(folder.name)] = int(fields[1])
            spent[int(folder.name)] = sum(map(int, fields[11:15])) / ticks

    def is_below(pid: int) -> bool:
        while pid not in {0, root}:
            pid = parents.get(pid, 0)
        return pid == root

    return sum(seconds for pid, seconds in spent.items() if is_below(pid))


@dataclass(slots=True)
class RoundClock:
    """Wall and CPU seconds of rounds, the first of which is the warm-up."""

    root: int = field(default_factory=os.getpid)
    rounds: list[dict[str, float]] = field(default_factory=list)
    _wall: float = 0.0
    _cpu: float = 0.0

    def start(self) -> None:
        self._cpu = tree_cpu_seconds(self.root)
        self._wall = time.perf_counter()

    def stop(self, **parts: float) -> None:
        wall = time.perf_counter() - self._wall
        cpu = tree_cpu_seconds(self.root) - self._cpu
        self.rounds.append({"wall": wall, "cpu": cpu, **parts})


def hand_in(
    out: Path, clock: RoundClock, aggregate: NDArray[Any], packages: Sequence[str], **facts: Any
) -> None:
    """Write a contender's result: its clock, its first aggregate and the packages' versions."""
    if len(clock.rounds) < 2:
        raise ValueError("no round was timed after the warm-up")
    np.save(out / "aggregate.npy", aggregate)
    result = {
        "warm_up": clock.rounds[0],
        "rounds": clock.rounds[1:],
        "aggregate_norm": float(np.linalg.norm(aggregate.astype(np.float64))),
        "versions": {"python": platform.python_version(), **{p: version(p) for p in packages}},
        **facts,
    }
    (out / "result.json").write_text(json.dumps(result, indent=1) + "\n", "utf-8")
