"""One small round of every data set with the model that paper or authors trained on it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from clients.configuration.loading import load
from clients.runs.open_run import open_memory_run

REAL = Path(__file__).parents[3] / "shared" / "data"

# Three members and three trainers, one step each: the least that the contract takes. One of the
# six poisons its samples, so that each data set's stored rows meet a trigger.
LEAST = (
    "protocol.clients=6",
    "protocol.active_rate=1.0",
    "protocol.committee_rate=0.5",
    "protocol.rounds=1",
    "training.local_steps=1",
    "training.batch_size=4",
    "evaluation.samples=8",
    "malice.attack=backdoor",
    "malice.malicious_rate=0.17",
)


@dataclass(frozen=True)
class Pair:
    """A data set's file and options, and a model that is scaled down."""

    data: str
    file: str | None
    model: str
    path: str
    settings: tuple[str, ...] = ()

    def all_settings(self) -> tuple[str, ...]:
        named = (f"data.name={self.data}", f"model.name={self.model}")
        found = () if self.file is None else (f'data.path="{REAL / self.file}"',)
        return (*LEAST, *named, *found, *self.settings)


PAIRS = (
    Pair("digits", None, "softmax", "lockstep"),
    Pair("digits-by-writer", "digits_by_writer.npz", "cnn", "lockstep"),
    Pair("femnist", "femnist_mini.npz", "leaf_cnn", "lockstep", ("model.options.hidden=32",)),
    Pair(
        "shakespeare",
        "shakespeare.npz",
        "shakespeare_lstm",
        "plain",
        ("model.options.hidden=8", "data.options.split=position"),
    ),
    Pair(
        "sent140",
        "sent140.parquet",
        "sent140_lstm",
        "plain",
        ("model.options.hidden=8", f'data.options.glove="{REAL / "glove_twitter_25d_12k.npz"}"'),
    ),
)


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: f"{pair.data}-{pair.model}")
def test_a_round_is_decided_and_measured(pair: Pair, tmp_path: Path) -> None:
    if pair.file is not None and not (REAL / pair.file).exists():
        pytest.skip("shared/data is not beside us")
    configuration = load("smoke", settings=pair.all_settings())
    with open_memory_run(tmp_path, "run", configuration) as run:
        (row,) = run.go_on(lambda _: None)
        before = run.population.initial.tobytes()
        stored = run.folder.read_model()
        assert run.configuration.training.path == pair.path
    assert row.decided
    assert row.accuracy is not None
    assert row.backdoor_success is not None
    assert stored is not None
    assert stored.vector.tobytes() != before
