"""Attackers beside honest clients who train adapters, and beside those who train softmax.

    python -m benchmarks.adapter_attacks [--seeds 100 101] [--rounds 20]
    python -m benchmarks.adapter_attacks --payloads --seeds 100 101 102

Strategy III. 30 of 100 clients attack. Of each model and attack: which share of the attackers'
and of the honest trainers' updates entered the model, and the loss at the end. The base is a
random GPT-2 of two layers. With `--payloads` adapters alone, without an attack and under those of
`--attacks`: the loss with payloads of form float32, and what q8 changes.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.adapters import SEEN, make_base, write_rows
from clients.attacks import registry
from clients.configuration.loading import load
from clients.runs.open_run import open_memory_run

if TYPE_CHECKING:
    from collections.abc import Iterable

ATTACKS = (None, "back-gradient", "adaptive")
CLIENTS, ACTIVE = 40, 0.5


def main() -> None:
    """Play a run of each model, attack and seed, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seeds", type=int, nargs="+", default=[100, 101])
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--payloads", action="store_true")
    parser.add_argument("--attacks", nargs="*", choices=registry.ATTACKS, default=registry.ATTACKS)
    arguments = parser.parse_args()
    if arguments.payloads:
        compare_payloads(arguments.attacks, arguments.seeds, arguments.rounds)
        return
    print("| model | attack | attackers accepted | honest accepted | loss |")
    print("| --- | --- | --- | --- | --- |")
    with tempfile.TemporaryDirectory() as folder:
        models = settings_of_models(Path(folder))
        for model, settings in models.items():
            for attack in ATTACKS:
                rows = [
                    outcome(Path(folder), settings, attack, seed, arguments.rounds)
                    for seed in arguments.seeds
                ]
                attackers, honest, loss = np.mean(rows, axis=0)
                share = "" if attack is None else f"{attackers:.2f}"
                print(f"| {model} | {attack or 'none'} | {share} | {honest:.2f} | {loss:.3f} |")


def compare_payloads(attacks: Iterable[str], seeds: list[int], rounds: int) -> None:
    """Print the loss of adapters with each form of payloads, and the standard error of the change.

    The forms have other run documents, and so other draws of clients under one seed.
    """
    print("| attack | loss, float32 | q8 less float32 |")
    print("| --- | --- | --- |")
    with tempfile.TemporaryDirectory() as folder:
        settings = next(iter(settings_of_models(Path(folder)).values()))
        for attack in (None, *attacks):
            losses = np.array(
                [
                    [
                        outcome(Path(folder), [*settings, *form], attack, seed, rounds)[2]
                        for form in ([], ["protocol.payload=q8"])
                    ]
                    for seed in seeds
                ]
            )
            changes = losses[:, 1] - losses[:, 0]
            error = changes.std(ddof=1) / len(seeds) ** 0.5
            change = f"{changes.mean():+.3f} ± {error:.3f}"
            print(f"| {attack or 'none'} | {losses[:, 0].mean():.3f} | {change} |", flush=True)


def settings_of_models(folder: Path) -> dict[str, list[str]]:
    """Return the settings of both models; base and rows are written to a folder."""
    base, rows = folder / "base", folder / "rows.jsonl"
    make_base(base, layers=2, width=64, vocabulary=SEEN)
    write_rows(rows, CLIENTS)
    return {
        "hf, rank 8, causal-lm": [
            "data.name=file",
            f"data.path={rows}",
            "data.options.task=causal-lm",
            f"data.options.vocabulary={SEEN}",
            "model.name=hf",
            f"model.options.path={base}",
            "model.options.targets=c_attn,c_fc,c_proj",
            "training.learning_rate=0.5",
            "training.batch_size=8",
        ],
        "softmax, digits": [],
    }


def outcome(
    folder: Path, settings: list[str], attack: str | None, seed: int, rounds: int
) -> tuple[float, float, float]:
    """Return the accepted shares of attackers and of honest trainers, and the last loss."""
    chosen = [
        "training.learning_rate=0.5",
        *settings,
        f"protocol.clients={CLIENTS}",
        f"protocol.active_rate={ACTIVE}",
        f"protocol.rounds={rounds}",
        f"seed={seed}",
        f"evaluation.every={rounds}",
        "machine.ledger=memory",
    ]
    if attack is not None:
        chosen += [f"malice.attack={attack}", "malice.malicious_rate=0.3"]
    configuration = load("robust", settings=tuple(chosen))
    with (
        tempfile.TemporaryDirectory(dir=folder) as home,
        open_memory_run(Path(home), "run", configuration) as run,
    ):
        played = run.go_on(lambda _: None)
    attackers = sum(row.malicious_trained for row in played)
    honest = sum(len(row.trained) - row.malicious_trained for row in played)
    accepted = sum(row.malicious_accepted for row in played)
    others = sum(len(row.accepted) - row.malicious_accepted for row in played)
    loss = played[-1].loss
    return accepted / max(1, attackers), others / honest, np.nan if loss is None else loss


if __name__ == "__main__":
    main()
