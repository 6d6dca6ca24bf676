"""The sizes and made data of `python -m benchmarks.gpu`: full for a card, tiny for tests."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from clients.datasets.federated_data import DataForm, FederatedData, frozen_samples
from clients.local_sgd import LocalTraining
from clients.models.model import Option

SIDE, CLASSES = 28, 62
IMAGES = DataForm((1, SIDE, SIDE), CLASSES)
CHARACTERS = DataForm((80,), 80, input_dtype="int64", vocabulary=80)
TEXT_LENGTH, TEXTS, TEST_TEXTS = 32, 24, 32
"""Tokens of a text, texts of each client, and texts of the test."""
TOKENS_SEEN = 200
"""Distinct tokens in the texts: few, so that a few steps learn them."""
PAPER_CLIENTS = 355
"""Active clients in a round of the preset paper-femnist, 142 of them members."""


@dataclass(frozen=True, slots=True)
class TrainingWork:
    """A model and how each of some clients trains it."""

    model: str
    options: Mapping[str, Option]
    form: DataForm
    samples: int
    settings: LocalTraining
    clients: int

    def made_data(self) -> FederatedData:
        """Return random samples, equal in each call."""
        rng, form, train = np.random.default_rng(0), self.form, []
        for _ in range(self.clients):
            shape = (self.samples, *form.input_shape)
            x: np.ndarray[Any, Any]
            if form.vocabulary is None:
                x = rng.random(shape, dtype=np.float32)
            else:
                x = rng.integers(0, form.vocabulary, shape)
            train.append(frozen_samples(x, rng.integers(0, form.classes, self.samples)))
        return FederatedData("made", form, tuple(train), train[0])


@dataclass(frozen=True, slots=True)
class ImageRun:
    """A run on made images in the form of FEMNIST; all clients are active in each round.

    A client trains for one epoch of its samples.
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
    """A run of GPT-2's shape with random weights and adapters."""

    layers: int
    width: int
    vocabulary: int
    clients: int
    rounds: int

    def write_base(self, folder: Path) -> int:
        """Write the base with random weights; return its number of parameters."""
        import torch  # noqa: PLC0415 - slow to import
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
        tests: arguments of pytest.
        digits: settings of the run of the preset digits, by their last names.
        replayed: updates of a run that are drawn and repeated.
        repeats: measured turns, after one that is not measured.
        paper_round: the run of large rounds, with as many clients as fit into memory.
    """

    tests: tuple[str, ...]
    digits: Mapping[str, int]
    replayed: int
    femnist: ImageRun
    adapters: AdapterRun
    works: Mapping[str, TrainingWork]
    repeats: int
    paper_round: ImageRun


def _steps(steps: int, batch: int, rate: float) -> LocalTraining:
    return LocalTraining(learning_rate=rate, batch_size=batch, local_steps=steps)


FULL = GpuPlan(
    tests=("-m", "cuda", "tests/clients"),
    digits={},
    replayed=100,
    femnist=ImageRun(20, 100, 10, 0.05, "leaf_cnn", {"hidden": 2048}, 8),
    adapters=AdapterRun(layers=12, width=768, vocabulary=20_000, clients=20, rounds=5),
    works={
        "W1L": TrainingWork(
            "leaf_cnn", {"hidden": 2048}, IMAGES, 100, _steps(10, 10, 0.05), clients=100
        ),
        "W1S": TrainingWork(
            "leaf_cnn", {"hidden": 512}, IMAGES, 100, _steps(10, 10, 0.05), clients=100
        ),
        "W2": TrainingWork(
            "shakespeare_lstm", {"hidden": 100}, CHARACTERS, 200, _steps(20, 10, 0.5), clients=14
        ),
    },
    repeats=3,
    paper_round=ImageRun(PAPER_CLIENTS, 32, 32, 0.001, "alexnet", {}, 3),
)

TINY = GpuPlan(
    tests=("tests/test_early_stop.py",),
    digits={"rounds": 1, "clients": 20},
    replayed=5,
    femnist=ImageRun(10, 5, 2, 0.05, "softmax", {}, 1),
    adapters=AdapterRun(layers=1, width=64, vocabulary=200, clients=10, rounds=1),
    works={
        "W2": TrainingWork(
            "shakespeare_lstm", {"hidden": 4}, CHARACTERS, 4, _steps(1, 2, 0.5), clients=2
        ),
        "digits": TrainingWork(
            "softmax", {}, DataForm((1, 8, 8), 10), 24, _steps(5, 16, 0.5), clients=4
        ),
    },
    repeats=1,
    paper_round=ImageRun(10, 4, 4, 0.05, "softmax", {}, 2),
)
"""Does it all work? On the CPU, in seconds."""
