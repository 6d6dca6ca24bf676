"""What `python -m benchmarks.gpu` does, at full size for a card and at a tiny one for tests."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.training import WORKS

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from benchmarks.training import TrainingWork
    from clients.models.model import Option

SIDE, CLASSES = 28, 62
PAPER_CLIENTS = 355
"""Active clients in a round of the preset paper-femnist, 142 of them members."""


@dataclass(frozen=True, slots=True)
class ImageRun:
    """A run on made images in the form of FEMNIST; all clients are active in each round.

    Attributes:
        clients: their number.
        samples: of each; an epoch of them is its training.
        batch: samples of a step.
        learning_rate: of SGD.
        model: its name.
        options: its settings.
        rounds: of the run.
    """

    clients: int
    samples: int
    batch: int
    learning_rate: float
    model: str
    options: Mapping[str, Option]
    rounds: int

    def settings(self, data: Path, device: str) -> dict[str, Any]:
        """Return the run's settings, given the file of its images."""
        return {
            "protocol": {
                "clients": self.clients,
                "active_rate": 1.0,
                "committee_rate": 0.4,
                "aggregation_rate": 0.4,
                "rounds": self.rounds,
            },
            "data": {"name": "femnist", "path": str(data)},
            "model": {"name": self.model, "options": dict(self.options)},
            "training": {
                "learning_rate": self.learning_rate,
                "batch_size": self.batch,
                "local_epochs": 1,
            },
            "evaluation": {"every": self.rounds},
            "machine": {"device": device},
        }

    def write_images(self, path: Path) -> None:
        """Write the images of all clients, and one more of each for the test."""
        rng = np.random.default_rng(0)
        each = self.samples + 1
        prototypes = rng.integers(0, 256, (CLASSES, SIDE, SIDE), dtype=np.uint8)
        label = rng.integers(0, CLASSES, self.clients * each, dtype=np.uint8)
        noise = rng.integers(0, 128, (len(label), SIDE, SIDE), dtype=np.uint8)
        np.savez(
            path,
            image=prototypes[label] // 2 + noise,
            label=label,
            writer=np.arange(self.clients, dtype=np.int16).repeat(each),
            is_test=(np.arange(len(label)) % each == self.samples).astype(np.uint8),
            source_file=np.zeros(len(label), dtype=np.uint8),
        )


@dataclass(frozen=True, slots=True)
class AdapterRun:
    """A run of GPT-2's shape with random weights and adapters; see `benchmarks.adapters`.

    Attributes:
        layers: of the base.
        width: of its layers.
        vocabulary: its tokens.
        clients: their number.
        rounds: of the run.
    """

    layers: int
    width: int
    vocabulary: int
    clients: int
    rounds: int


@dataclass(frozen=True, slots=True)
class GpuPlan:
    """Sizes of all steps.

    Attributes:
        tests: arguments of pytest.
        digits: settings of the run of the preset digits, by their last names.
        replayed: updates of a run that are drawn and repeated.
        femnist: the run on made images.
        adapters: the run of a transformer with adapters.
        works: training workloads.
        repeats: measured turns, after one that is not.
        scoring: members, trainers and d.
        paper_round: the run of large rounds, with as many of its clients as fit into memory.
    """

    tests: tuple[str, ...]
    digits: Mapping[str, int]
    replayed: int
    femnist: ImageRun
    adapters: AdapterRun
    works: Mapping[str, TrainingWork]
    repeats: int
    scoring: tuple[int, int, int]
    paper_round: ImageRun


FULL = GpuPlan(
    tests=("-m", "cuda", "tests/clients"),
    digits={},
    replayed=100,
    femnist=ImageRun(20, 100, 10, 0.05, "leaf_cnn", {"hidden": 2048}, 8),
    adapters=AdapterRun(layers=12, width=768, vocabulary=20_000, clients=20, rounds=5),
    works={
        "W1L": replace(WORKS["W1L"], clients=100),
        "W1S": replace(WORKS["W1S"], clients=100),
        "W2": replace(WORKS["W2"], clients=14),
    },
    repeats=3,
    scoring=(43, 65, 6_600_000),
    paper_round=ImageRun(PAPER_CLIENTS, 32, 32, 0.001, "alexnet", {}, 3),
)

TINY = GpuPlan(
    tests=("tests/test_early_stop.py",),
    digits={"rounds": 1, "clients": 20},
    replayed=5,
    femnist=ImageRun(10, 5, 2, 0.05, "softmax", {}, 1),
    adapters=AdapterRun(layers=1, width=64, vocabulary=200, clients=10, rounds=1),
    works={
        "W2": replace(
            WORKS["W2"],
            clients=2,
            options={"hidden": 4},
            samples=4,
            settings=replace(WORKS["W2"].settings, local_steps=1, batch_size=2),
        ),
        "digits": replace(WORKS["digits"], clients=4),
    },
    repeats=1,
    scoring=(2, 3, 1_000),
    paper_round=ImageRun(10, 4, 4, 0.05, "softmax", {}, 2),
)
"""Does it all work? On the CPU, in seconds."""
