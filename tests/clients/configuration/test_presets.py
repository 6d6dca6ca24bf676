"""What paper and authors ran, as presets; chances of a committee; what is outside the tested."""

from __future__ import annotations

from fractions import Fraction
from math import comb
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clients.configuration.loading import load
from clients.configuration.parsing import PRESETS
from clients.configuration.schema import Configuration
from clients.configuration.tested_regime import (
    blocking_members,
    chance_of_at_least,
    regime_warnings,
    risk_sentence,
)
from clients.datasets.federated_data import DataForm
from clients.models.registry import model_named
from clients.runs.open_run import open_memory_run
from clients.runs.population import populate
from ledger.protocol.errors import ConfigurationError
from ledger.protocol.parameters import replies_needed
from ledger.protocol.types import Quorum

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
def test_the_authors_have_epochs_and_attacked_weights(preset: str, attackers: int) -> None:
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


def test_two_of_three_members_drawn_from_five_with_two_malicious() -> None:
    # Of the 10 committees 3 have both malicious clients, each with one of the 3 honest ones.
    assert chance_of_at_least(2, members=3, malicious=2, clients=5) == Fraction(3, 10)
    assert chance_of_at_least(1, members=3, malicious=2, clients=5) == Fraction(9, 10)
    assert chance_of_at_least(3, members=3, malicious=2, clients=5) == 0


def test_a_share_is_of_as_many_clients_as_a_run_draws() -> None:
    # 30 % of 12 are 3.6, and so 4; at least 2 of 4 members of them: 201 of 495 committees.
    settings = ("protocol.clients=12", "protocol.active_rate=1", "protocol.committee_rate=0.34")
    parameters = load("digits", settings=settings).parameters(dimension=1)
    assert parameters.members == 4
    half, blocking = 201 / 495, 1 - comb(8, 4) / 495
    assert f"30 %: {100 * half:.0f} % and {100 * blocking:.0f} %" in risk_sentence(parameters)


@pytest.mark.parametrize("quorum", Quorum)
@pytest.mark.parametrize("members", range(3, 44))
def test_so_many_silent_members_block_and_one_less_does_not(members: int, quorum: Quorum) -> None:
    needed = 1 + replies_needed(members, quorum)  # the primary, and its replies
    blocking = blocking_members(members, quorum)
    assert members - blocking < needed <= members - blocking + 1


@given(st.data())
def test_chances_of_all_counts_sum_to_one(data: st.DataObject) -> None:
    clients = data.draw(st.integers(1, 40))
    members, malicious = (data.draw(st.integers(0, clients)) for _ in range(2))
    chances = [chance_of_at_least(n, members, malicious, clients) for n in range(members + 2)]
    assert chances[0] == 1
    assert chances[-1] == 0
    assert chances == sorted(chances, reverse=True)
    expected = sum(chances[1:])  # of a count, the sum of its tail: C times the malicious share
    assert expected == Fraction(members * malicious, clients)


def test_more_malicious_clients_than_there_are_clients_are_refused() -> None:
    with pytest.raises(ValueError, match="4 malicious, of 3 clients"):
        chance_of_at_least(1, members=2, malicious=4, clients=3)
    with pytest.raises(ValueError, match="4 members"):
        chance_of_at_least(1, members=4, malicious=1, clients=3)


ATTACK = ("malice.attack=ipm",)


@pytest.mark.parametrize("preset", ["digits", "robust", "digits-by-writer"])
def test_what_was_tested_is_not_warned_of(preset: str) -> None:
    settings = (*ATTACK, "malice.malicious_rate=0.3", "data.path=x")
    assert regime_warnings(load(preset, settings=settings[: 3 if "writer" in preset else 2])) == []


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ((*ATTACK, "malice.malicious_rate=0.31"), "malice.malicious_rate = 0.31: beyond 0.3"),
        (("training.local_steps=1",), "training.local_steps = 1: "),
        (("data.partition.name=dirichlet", "data.partition.alpha=0.1"), "alpha = 0.1: below 0.3"),
        (("data.partition.alpha=0.1",), "alpha = 0.1: below 0.3"),
        (("protocol.active_rate=0.3",), "a committee of 7: "),
        (("model.name=mlp",), "model.name = mlp: the rules held with softmax; "),
    ],
)
def test_each_bound_is_warned_of_alone(settings: tuple[str, ...], named: str) -> None:
    (warning,) = regime_warnings(load("digits", settings=settings))
    assert named in warning


@pytest.mark.parametrize(
    "settings",
    [
        # Another division has no concentration of classes, and epochs are no single step.
        ("data.partition.name=quantity", "data.partition.alpha=0.1"),
        ("training.local_epochs=1", "training.local_steps="),
    ],
)
def test_no_bound_is_warned_of(settings: tuple[str, ...]) -> None:
    assert regime_warnings(load("digits", settings=settings)) == []
