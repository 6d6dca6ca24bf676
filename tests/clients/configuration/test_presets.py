"""What the paper and its authors ran, as presets: their sizes without data, one round with them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from clients.configuration.loading import load
from clients.configuration.parsing import PRESETS
from clients.datasets.federated_data import DataForm
from clients.models.registry import model_named
from clients.runs.open_run import open_memory_run
from clients.runs.population import populate
from cmfl.commands.checks.training import training_checks
from ledger.protocol.errors import ConfigurationError

if TYPE_CHECKING:
    from clients.configuration.schema import Configuration

REAL = Path(__file__).parents[4] / "shared" / "data"

FILES = {
    "femnist": "femnist_mini.npz",
    "sent140": "sent140.parquet",
    "shakespeare": "shakespeare.npz",
}
PUBLISHED = [name for name in PRESETS if name.startswith(("paper-", "authors-"))]

# Three members and three trainers, one step of four samples: the least that the contract takes.
LEAST = (
    "protocol.clients=6",
    "protocol.active_rate=1.0",
    "protocol.committee_rate=0.5",
    "protocol.rounds=1",
    "training.batch_size=4",
    "evaluation.samples=8",
    "machine.device=cpu",
)
SMALL = {
    "femnist": ("model.options.hidden=16",),
    "sent140": ("model.options.hidden=4", "model.options.width=25"),
    "shakespeare": ("model.options.hidden=4", "training.local_epochs=", "training.local_steps=1"),
}


def sizes(configuration: Configuration) -> tuple[int, int, int, int]:
    """Return K, C, n and m."""
    found = configuration.parameters(dimension=1)
    return found.clients, found.members, found.trainers, found.accepted


def scaled_down(preset: str) -> tuple[str, ...]:
    name = load(preset).data.name
    data = [f'data.path="{REAL / FILES[name]}"']
    if name == "sent140":
        data.append(f'data.options.glove="{REAL / "glove_twitter_25d_12k.npz"}"')
    if not (REAL / FILES[name]).exists():
        pytest.skip("shared/data is not beside us")
    return (*LEAST, *SMALL[name], *data)


@pytest.mark.parametrize(
    ("preset", "settings", "expected"),
    [
        # 355 active: .4 of them is 142; .4 of 213 is 85.2.
        ("paper-femnist", (), (3550, 142, 213, 85)),
        # 77.2 active, so 77: .4 of them is 30.8; .4 of 46 is 18.4.
        ("paper-sent140", (), (772, 31, 46, 18)),
        # 14.3 active, so 14: .4 of them is 5.6; .4 of 8 is 3.2.
        ("paper-shakespeare", (), (143, 6, 8, 3)),
        ("authors-sent140", (), (1075, 43, 65, 43)),
        # 108.08 active: the same sizes on the accounts that were published.
        (
            "authors-sent140",
            ("protocol.clients=772", "protocol.active_rate=0.14"),
            (772, 43, 65, 43),
        ),
        ("authors-shakespeare", (), (143, 6, 9, 5)),
    ],
)
def test_the_sizes_are_those_of_paper_and_authors(
    preset: str, settings: tuple[str, ...], expected: tuple[int, ...]
) -> None:
    assert sizes(load(preset, settings=settings)) == expected


@pytest.mark.parametrize("preset", [name for name in PUBLISHED if name.startswith("paper-")])
def test_the_paper_has_one_step_squared_distances_and_no_attack(preset: str) -> None:
    configuration = load(preset)
    protocol, training = configuration.protocol, configuration.training
    assert (protocol.strategy, protocol.distance) == (1, "squared")
    rates = (protocol.active_rate, protocol.committee_rate, protocol.aggregation_rate)
    assert rates == (0.1, 0.4, 0.4)
    assert (training.local_steps, training.local_epochs, training.batch_size) == (1, None, 32)
    assert configuration.malice.attack is None


@pytest.mark.parametrize(
    ("preset", "attackers"), [("authors-sent140", 107), ("authors-shakespeare", 14)]
)
def test_the_authors_have_epochs_squared_distances_and_attacked_weights(
    preset: str, attackers: int
) -> None:
    configuration = load(preset)
    protocol, training, malice = (
        configuration.protocol,
        configuration.training,
        configuration.malice,
    )
    assert (protocol.strategy, protocol.distance) == (1, "squared")
    assert (training.local_steps, training.local_epochs, training.batch_size) == (None, 1, 32)
    assert (malice.attack, malice.factor, malice.on) == ("gradient-scaling", 0.0, "weights")
    assert int(malice.malicious_rate * protocol.clients + 0.5) == attackers


@pytest.mark.parametrize("preset", PUBLISHED)
def test_without_data_the_file_that_is_missing_is_named(preset: str) -> None:
    name = load(preset).data.name
    with pytest.raises(ConfigurationError, match=f"data set '{name}' needs the path of its files"):
        populate(load(preset))


def test_doctor_says_how_its_clients_would_train() -> None:
    found = dict(training_checks("authors-shakespeare", None, scaled_down("authors-shakespeare")))
    assert list(found) == ["training", "committee", "attacks"]
    assert found["training"]().startswith("plain path")


def test_doctor_says_who_holds_a_drawn_committee_and_what_is_untested() -> None:
    found = dict(training_checks("digits", None, ()))
    assert "30 %: 9.3 % and 26 %" in found["committee"]()
    assert found["attacks"]().startswith("within the regime")
    found = dict(training_checks("digits", None, ("training.local_steps=1",)))
    assert found["attacks"]().startswith("WARNING: outside the regime")


@pytest.mark.parametrize("preset", PUBLISHED)
def test_a_round_of_it_is_decided_and_measured(preset: str, tmp_path: Path) -> None:
    configuration = load(preset, settings=scaled_down(preset))
    with open_memory_run(tmp_path, "run", configuration) as run:
        (row,) = run.go_on(lambda _: None)
    assert row.decided
    assert row.accuracy is not None


def test_word_vectors_of_another_width_are_refused() -> None:
    form = DataForm((25,), 2, "int64", 3, np.zeros((3, 25), dtype=np.float32))
    model = load("paper-sent140").model
    with pytest.raises(ConfigurationError, match=r"width = 300: the word vectors .* have 25"):
        model_named(model.name, form, model.options)
