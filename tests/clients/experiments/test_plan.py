"""Cells are what the TOML says, are told apart by digests, and are refused before the first run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from clients.attacks.registry import ATTACKS
from clients.attacks.samples import DATA_ATTACKS
from clients.configuration.loading import load
from clients.experiments.definition import definition_named, definition_of, names
from clients.experiments.plan import (
    ExperimentPlan,
    load_that_fits,
    plan_experiment,
    rate_of,
    values_of,
)
from ledger.protocol.errors import ConfigurationError
from ledger.protocol.parameters import parts_per_million, rounded_share
from tests.clients.experiments.made_up import cell as row
from tests.clients.experiments.minis import MINI, TEXT, defined, plan_of

OMEGA = """
[[axes]]
name = "omega"
values = [
  {label = "40", settings = ["protocol.committee_rate=0.4"]},
  {label = "30", settings = ["protocol.committee_rate=0.3"]},
]

[[axes]]
name = "alpha"
values = [
  {label = "50", settings = ["protocol.aggregation_rate=0.5"]},
]

[tuning]"""
GRID = ("\n[tuning]", OMEGA)
RATES = [*range(1, 10_002)]
_VALUES = ", ".join(f'{{label = "{label}"}}' for label in range(10))
# Ten axes of ten values: more points than there is memory for.
AXES = "\n".join(f'[[axes]]\nname = "a{number}"\nvalues = [{_VALUES}]' for number in range(10))


def with_options(text: str) -> tuple[str, str]:
    return 'kind = "federated"', f'kind = "federated"\n{text}'


def named(plan: ExperimentPlan) -> list[str]:
    return [cell.name for cell in plan.cells]


def digests(*changes: tuple[str, str]) -> list[str]:
    return [cell.digest for cell in plan_of(*changes).cells]


def test_cells_are_all_methods_under_all_conditions_seed_by_seed() -> None:
    plan = plan_of()
    points = [
        "CMFL-I__clean",
        "FedAvg-n__clean",
        "CMFL-I__back-gradient",
        "FedAvg-n__back-gradient",
    ]
    assert named(plan) == [f"{one}__seed{seed}" for seed in (200, 201) for one in points]
    assert [cell.is_recorded for cell in plan.cells] == [True, False, True, False] + [False] * 4
    first, attacked = plan.cells[0].configuration, plan.cells[2].configuration
    assert (first.seed, first.protocol.rounds, first.malice.attack) == (200, 2, None)
    assert attacked.malice.attack == "back-gradient"
    assert {cell.configuration.machine.ledger for cell in plan.cells} == {"memory"}


def test_only_tuned_methods_are_tried_on_the_seeds_of_tuning() -> None:
    assert [trial.name for trial in plan_of().trials] == [
        "tuning__CMFL-I__clean__seed100__rate0.5",
        "tuning__CMFL-I__clean__seed100__rate1",
    ]
    assert not plan_of(is_quick=True).trials


def test_a_grid_has_a_cell_at_every_point() -> None:
    plan = plan_of(GRID)
    assert len(plan.cells) == 16
    cell = plan.cells[1]
    assert cell.name == "CMFL-I__clean__omega-30__alpha-50__seed200"
    assert cell.axes == {"omega": "30", "alpha": "50"}
    assert cell.configuration.protocol.committee_rate == 0.3
    assert {trial.cell.axes["omega"] for trial in plan.trials} == {"40"}


def test_pairs_are_left_out_or_alone_run() -> None:
    fewer = plan_of(("seeds = [200, 201]", 'seeds = [200]\nexclude = [["CMFL-I", "clean"]]'))
    assert named(fewer) == [
        "FedAvg-n__clean__seed200",
        "CMFL-I__back-gradient__seed200",
        "FedAvg-n__back-gradient__seed200",
    ]
    only = plan_of(("seeds = [200, 201]", 'seeds = [200]\nonly = [["*", "clean"]]'))
    assert named(only) == ["CMFL-I__clean__seed200", "FedAvg-n__clean__seed200"]


def test_quick_runs_its_own_part_with_its_own_settings() -> None:
    plan = plan_of(is_quick=True)
    assert named(plan) == ["CMFL-I__clean__seed200", "FedAvg-n__clean__seed200"]
    assert {cell.rounds for cell in plan.cells} == {1}


def test_further_seeds_continue_after_the_last_and_skip_tuning_seeds() -> None:
    change = ("seeds = [200, 201]", "seeds = [98, 99]")
    seeds = [cell.seed for cell in plan_of(change, seeds=4).cells[::4]]
    assert seeds == [98, 99, 101, 102]
    assert [cell.seed for cell in plan_of(change, seeds=1).cells] == [98] * 4


@pytest.mark.parametrize(("audited", "seeds"), [(0, set()), (2, {200, 201}), (9, {200, 201})])
def test_the_first_seeds_are_audited(audited: int, seeds: set[int]) -> None:
    plan = plan_of(("seeds = [200, 201]", f"seeds = [200, 201]\naudited = {audited}"))
    recorded = [cell for cell in plan.cells if cell.is_recorded]
    assert {cell.seed for cell in recorded} == seeds
    assert {cell.method.kind for cell in recorded} <= {"cmfl"}
    assert [cell.digest for cell in plan.cells] == digests()


def test_a_method_takes_only_the_rules_of_a_preset() -> None:
    plan = plan_of(('name = "CMFL-I"', 'name = "robust"\nrules = "robust"'))
    protocol, robust = plan.cells[0].configuration.protocol, load("robust").protocol
    assert (protocol.strategy, protocol.distance) == (robust.strategy, robust.distance)
    assert protocol.clients == 12


@pytest.mark.parametrize(
    "change",
    [
        ("protocol.rounds=2", "protocol.rounds=3"),
        ("protocol.rounds=2", "training.learning_rate=0.25"),
        ("protocol.rounds=2", "evaluation.every=2"),
        ('kind = "federated"', 'kind = "federated"\naggregator = "Median"'),
        ('kind = "federated"', 'kind = "federated"\nparticipants = "active"'),
        ("malicious_rate=0.1", "malicious_rate=0.2"),
        ("rates = [0.5, 1.0]", "rates = [0.5]"),
    ],
)
def test_what_changes_a_result_changes_a_digest(change: tuple[str, str]) -> None:
    assert digests(change) != digests()


@pytest.mark.parametrize(
    "change",
    [
        ('title = "Mini"', 'title = "Other"'),
        ("protocol.rounds=2", "machine.workers=2"),
        ("protocol.rounds=2", "protocol.strategy=1"),
        ('name = "clean"\n\n[[', 'name = "as it is"\n\n[['),
    ],
)
def test_names_workers_and_defaults_change_no_digest(change: tuple[str, str]) -> None:
    text = TEXT.replace('conditions = ["clean"]', "")
    base = [cell.digest for cell in plan_experiment("mini", defined(text=text)).cells]
    if "rounds" in change[0]:
        change = (change[0], f'protocol.rounds=2", "{change[1]}')
    changed = plan_experiment("mini", defined(change, text=text))
    assert [cell.digest for cell in changed.cells] == base


def test_a_row_is_identified_regardless_of_seed_and_axis_order() -> None:
    plan = plan_of(GRID)
    cell = plan.cells[0]
    known = row("CMFL-I", 777, (0.5,), axes={"alpha": "50", "omega": "40"})
    assert plan.row_digest(known) == cell.digest_with(777) != cell.digest
    assert plan.row_digest(row("gone", 0, (0.5,))) is None


def test_a_cell_is_found_by_its_name_and_no_other() -> None:
    plan = plan_of()
    assert plan.cell("CMFL-I__clean__seed201") is plan.cells[4]
    with pytest.raises(ConfigurationError, match=r"mini has no cell 'CMFL'; it has 8, such as"):
        plan.cell("CMFL")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("rounds=2", "rounds=x"), "cell CMFL-I, clean: protocol.rounds: Input should be a"),
        (
            with_options("aggregator = 'Krum'\noptions = {f = 2}"),
            "Krum with f = 2 of n = 6 updates",
        ),
        (
            with_options("aggregator = 'TrMean'\noptions = {f = {share = 0.5}}"),
            "TrMean with f = 3 of",
        ),
        (('kind = "federated"', 'kind = "federated"\npre = [{f = 1}]'), "each aggregator needs a"),
        (('kind = "federated"', 'kind = "gossip"\noptions = {replicas = 10}'), "replicas = 10:"),
        (('kind = "federated"', 'kind = "theorem"\noptions = {mu = 0.0}'), "options.mu"),
        (('name = "FedAvg (n)"', 'name = "CMFL I"'), "two cells named 'CMFL-I__clean__seed"),
        (("rounds=2", "data.path={data}/absent.npz"), "mini reads absent.npz: say with --data"),
        (("rates = [0.5, 1.0]", "rates = [0.5, 0.5000001]"), "two trials named 'tuning__CMFL"),
        (
            ("rates = [0.5, 1.0]\nseeds = [100]", f"rates = {RATES}\nseeds = [100]"),
            "mini tries over 20000 learning rates",
        ),
        (("[tuning]", f"{AXES}\n[tuning]"), "mini has over 20000 cells"),
    ],
)
def test_a_cell_that_cannot_exist_is_refused_before_anything_runs(change: Any, said: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        plan_of(change)
    assert said in str(refused.value)
    assert str(refused.value).startswith("experiment mini")


def test_a_folder_without_the_file_is_named(tmp_path: Path) -> None:
    change = ("rounds=2", "data.path={data}/absent.npz")
    with pytest.raises(ConfigurationError, match=f"there is no {tmp_path}/absent.npz"):
        plan_of(change, data=tmp_path)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        # 59 active: C = 30, and n = 29 cannot fill it.
        (("clients=297", "active_rate=0.2", "committee_rate=0.5"), "active_rate = 0.202 fits"),
        (("clients=60", "active_rate=0.05"), "protocol.committee_rate = 0.4: the committee has C"),
        (("clients=3000", "active_rate=0.2"), "bound of 160; protocol.active_rate = 0.1337 fits"),
    ],
)
def test_impossible_sizes_are_refused_with_a_fitting_rate(settings: Any, said: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        load_that_fits("digits", tuple(f"protocol.{setting}" for setting in settings))
    assert said in str(refused.value)
    rate = str(refused.value).rpartition(" = ")[2].removesuffix(" fits")
    again = (*settings, f"active_rate={rate}")
    fitting = load_that_fits("digits", tuple(f"protocol.{setting}" for setting in again))
    assert fitting.protocol.active_rate == float(rate)


def test_no_rate_is_named_where_none_would_help() -> None:
    with pytest.raises(ConfigurationError, match=r"needs at least 3 \(K = 4, 2 active.*\)$"):
        load_that_fits("digits", ("protocol.clients=4", "protocol.committee_rate=0.2"))


@pytest.mark.parametrize(
    ("active", "clients", "rate"),
    [(1, 2, 0.5), (2, 3, 0.7), (297, 297, 1.0), (12_287, 12_288, 0.9999)],
)
def test_a_rate_is_the_shortest_decimal_for_its_count(
    active: int, clients: int, rate: float
) -> None:
    assert rate_of(active, clients) == rate
    assert rounded_share(parts_per_million("rate", float(rate)), clients) == active


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("seeds = [200, 201]", "seeds = [100]"), "tuned on seed 100, which is reported too"),
        (("seeds = [200, 201]", "seeds = [200, 200]"), "seed 200 is repeated"),
        (('"FedAvg (n)"', '"CMFL-I"'), "method 'CMFL-I' is repeated"),
        (('conditions = ["clean"]', 'conditions = ["calm"]'), "unknown condition of quick 'calm'"),
        (("seeds = [100]", 'seeds = [100]\naxes = {a = "1"}'), "unknown axis of tuning 'a'"),
        (("number = 1", 'number = 1\nexclude = [["CMFL", "*"]]'), "unknown method 'CMFL'; known"),
        (("number = 1", "number = 1\nwhat = 1"), "what: there is no such setting (given: 1)"),
        (("number = 1", "number = ["), "not TOML"),
        (("tuned = false", 'rules = "robust"'), "is of kind federated, which takes no rules"),
        (('name = "CMFL-I"', 'name = "CMFL-I"\naggregator = "Krum"'), "cmfl, which takes no aggr"),
        (("number = 1", 'figure = "grid"'), "figure 'grid' needs 2 axes; there are 0 (none)"),
        (("number = 1", 'figure = ["heat", "heat"]'), "figure 'heat' is repeated"),
    ],
)
def test_a_definition_that_contradicts_itself_is_refused(change: Any, said: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        defined(change)
    assert said in str(refused.value)


def test_an_experiment_is_found_by_its_name_or_its_path(tmp_path: Path) -> None:
    assert definition_named(str(MINI)) == defined()
    listed = names()
    assert listed
    assert definition_named(listed[0]).number == 1
    with pytest.raises(ConfigurationError, match="unknown experiment 'nothing'; known are normal"):
        definition_named("nothing")
    with pytest.raises(ConfigurationError, match=r"absent.toml cannot be read: No such file"):
        definition_named(str(tmp_path / "absent.toml"))


REAL = Path(__file__).parents[4] / "shared" / "data"
QUICK_CELLS = 6  # so many runs at most, so that `run all --quick` stays a matter of minutes


def test_there_is_an_experiment_of_every_number() -> None:
    assert {definition_named(name).number for name in names()} == {1, 2, 3, 4, 5, 6, 7}


@pytest.mark.parametrize("name", names())
def test_every_cell_of_an_experiment_can_exist(name: str) -> None:
    definition = definition_named(name)
    if definition.files and not REAL.is_dir():
        pytest.skip("shared/data is not beside us")
    plan = plan_experiment(name, definition, data=REAL)
    quick = plan_experiment(name, definition, data=REAL, is_quick=True)
    assert plan.cells
    assert 0 < len(quick.cells) <= QUICK_CELLS
    assert not quick.trials


def test_an_experiment_extends_another_and_overrides() -> None:
    base = definition_named("robustness-worst-tuned")
    own = definition_of(
        """
        extends = "robustness-worst-tuned"
        title = "Mine"
        methods = ["CMFL-I", { name = "Median", kind = "federated", aggregator = "Median" }]
        conditions = ["noise", "none"]
        quick = {}
        tuning = false
        """,
        "mine",
    )
    assert (own.title, own.preset, own.seeds) == ("Mine", base.preset, base.seeds)
    assert [method.name for method in own.methods] == ["CMFL-I", "Median"]
    known = {condition.name: condition for condition in base.conditions}
    assert own.conditions == [known["noise"], known["none"]]
    assert base.tuning is not None
    assert own.tuning is None


@pytest.mark.parametrize(
    ("change", "value"),
    [
        ('extends = "nothing"', "'nothing'"),
        ('extends = "normal"\nmethods = ["none"]', "methods.0"),
        ('extends = "normal"\nmethods = 5', "methods"),
    ],
)
def test_what_is_not_in_the_other_experiment_is_refused(change: str, value: str) -> None:
    with pytest.raises(ConfigurationError, match=value):
        definition_of(change, "mine")


def test_any_definition_names_a_method_of_the_common_list_and_overrides_it() -> None:
    text = 'title = "Mine"\npreset = "digits"\nseeds = [1]\nmethods = '
    own = definition_of(text + '["FedAvg", "FLTrust", {name = "Krum"}]', "mine")
    assert [(method.name, method.kind) for method in own.methods] == [
        *(("FedAvg", "federated"), ("FLTrust", "federated"), ("Krum", "cmfl"))
    ]
    assert own.methods[0].participants == "active"
    # In a definition that extends another, the other's methods come first.
    text = 'extends = "robustness"\nquick = {}\nmethods = '
    assert definition_of(text + '["Krum"]', "other").methods[0].options == {"f": {"share": 0.2}}
    with pytest.raises(ConfigurationError, match="unknown experiment 'methods'"):
        definition_named("methods")


def test_strategy_three_is_played_against_the_whole_catalogue() -> None:
    plan = plan_experiment("robustness-worst", definition_named("robustness-worst"))
    attacked = [cell for cell in plan.cells if cell.configuration.malice.attack is not None]
    attacks = {cell.configuration.malice.attack for cell in attacked}
    assert attacks == {*ATTACKS, *DATA_ATTACKS}
    assert {cell.configuration.malice.malicious_rate for cell in attacked} == {0.3}
    assert {cell.seed for cell in plan.cells if cell.is_recorded} == {300, 301}


def test_no_seed_of_earlier_choices_is_reported() -> None:
    # The direction rule was chosen on seeds from 0, rates are on 100 and 101.
    assert all(min(definition_named(name).seeds) >= 200 for name in names())


def test_python_values_stand_among_settings_and_none_takes_one_back() -> None:
    settings = (
        "protocol.rounds=3",
        ("protocol.rounds", 4),
        ("training", {"learning_rate": 0.25, "batch_size": 8}),
        ("malice.attack", "alie"),
        ("malice.attack", None),
        ("data.path", "mine.csv"),
    )
    values = values_of("smoke", settings)
    assert values["protocol"]["rounds"] == 4
    assert (values["training"]["learning_rate"], values["training"]["batch_size"]) == (0.25, 8)
    assert "attack" not in values["malice"]
    assert values["data"]["name"] == "file", "a path replaces the bundled data"
    assert values["training"]["local_steps"] == values_of("smoke", ())["training"]["local_steps"]
