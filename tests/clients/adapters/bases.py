"""Small random bases in folders, as transformers writes them, and rows of tokens.

What the adapters need is imported where it is used: every process that collects tests would take
longer for it than for all else of them.
"""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch

from clients.datasets.federated_data import (
    NO_TARGET,
    NO_TOKEN,
    PER_TOKEN,
    DataForm,
    FederatedData,
    Samples,
    Task,
)

VOCABULARY, POSITIONS, WIDTH = 50, 12, 16
LENGTH = 6
ROUNDS = 2
TARGETS = {"gpt2": "c_attn", "bert": "query,value", "llama": "q_proj"}


def write_base(folder: Path, kind: str = "gpt2", seed: int = 0, **changes: Any) -> Path:
    import transformers

    transformers.utils.logging.disable_progress_bar()
    ends = {"bos_token_id": None, "eos_token_id": None}
    wide = {
        "hidden_size": WIDTH,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 32,
        "max_position_embeddings": POSITIONS,
    }
    narrow = {"n_positions": POSITIONS, "n_embd": WIDTH, "n_layer": 2, "n_head": 2}
    made: dict[str, tuple[Any, Any, dict[str, Any]]] = {
        "gpt2": (transformers.GPT2LMHeadModel, transformers.GPT2Config, narrow | ends),
        "bert": (transformers.BertForMaskedLM, transformers.BertConfig, wide),
        "roberta": (transformers.RobertaForMaskedLM, transformers.RobertaConfig, wide),
        "llama": (transformers.LlamaForCausalLM, transformers.LlamaConfig, wide | ends),
    }
    model, config, sizes = made[kind]
    with torch.random.fork_rng(devices=[]):
        torch.random.manual_seed(seed)
        model(config(**{"vocab_size": VOCABULARY, **sizes, **changes})).save_pretrained(folder)
    return folder


def opened_in_peft(base: Any, adapters: Path) -> Any:
    import peft

    with warnings.catch_warnings(action="ignore"):  # peft asks transformers by an old name
        return peft.PeftModel.from_pretrained(base, adapters).eval()


def form_of(task: Task, length: int = LENGTH, vocabulary: int = VOCABULARY) -> DataForm:
    classes = {"classify": 3, "token-classify": 3, "regress": 2}.get(task, vocabulary)
    return DataForm((length,), classes, "int64", vocabulary, task=task)


def made_data(form: DataForm, count: int = 8) -> FederatedData:
    rng = np.random.default_rng(0)
    x = rng.integers(0, form.vocabulary or 1, (count, *form.input_shape))
    x[::2, -2:] = NO_TOKEN
    y: Any = rng.integers(0, form.classes, count)
    if form.task in PER_TOKEN:
        y = np.where(x == NO_TOKEN, NO_TARGET, rng.integers(0, form.classes, x.shape))
    elif form.task == "regress":
        y = rng.normal(size=(count, form.classes)).astype(np.float32)
    samples = Samples(x, y)
    return FederatedData("made", form, (samples, samples), samples)


def write_rows(path: Path, clients: int, rows: int = 6, length: int = LENGTH) -> Path:
    rng = np.random.default_rng(1)
    lines = []
    for row in range(clients * rows):
        tokens = [int(rng.integers(1, VOCABULARY))]
        while len(tokens) < length - row % 2:
            tokens.append(2 * tokens[-1] % VOCABULARY)
        lines.append(json.dumps({"tokens": tokens, "client": f"c{row % clients:02}"}))
    path.write_text("\n".join(lines))
    return path


def command(folder: Path, *settings: str, home: str = "home") -> list[object]:
    chosen = [
        f"protocol.rounds={ROUNDS}",
        f"data.path={folder / 'rows.jsonl'}",
        "data.options.task=causal-lm",
        f"data.options.vocabulary={VOCABULARY}",
        "model.name=hf",
        f"model.options.path={folder / 'base'}",
        "model.options.rank=2",
        "training.batch_size=4",
        *settings,
    ]
    flags = [part for setting in chosen for part in ("--set", setting)]
    return ["run", "--preset", "smoke", "--home", folder / home, *flags]
