"""The sizes of `python -m benchmarks.gpu`: full for a card, tiny for tests."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from benchmarks.workloads import WORKS, Work

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
