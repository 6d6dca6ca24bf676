"""Comparisons: methods under attacks, over seeds and the values of settings."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from operator import index
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cmfl.arguments import LIST, TABLE, TEXT, checked, reference, require, require_or_none
from cmfl.display import Table, tracking
from cmfl.simulating import (
    USUAL_RATE,
    Parts,
    full_name,
    full_names,
    plain_value,
    preset_text,
    put_parts,
    temporary_folder,
)
from ledger.protocol.errors import ConfigurationError

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

    from clients.datasets.own_data import Data
    from clients.experiments.plan import ExperimentPlan
    from clients.experiments.rows import CellRow

Part = str | Path | Mapping[str, object] | Callable[..., object]
"""A method or an attack: a name, a table, or a function; a method also the path of a preset."""

NO_ATTACK = "no attack"
USUAL_SHARE = 0.2

_SHARE = {"share": USUAL_SHARE}
METHODS: dict[str, dict[str, Any]] = {
    "fedavg": {"kind": "federated", "aggregator": "FedAvg"},
    "median": {"kind": "federated", "aggregator": "Median"},
    "trimmed-mean": {"kind": "federated", "aggregator": "TrMean", "options": {"f": _SHARE}},
    "krum": {"kind": "federated", "aggregator": "Krum", "options": {"f": _SHARE}},
    "multi-krum": {"kind": "federated", "aggregator": "MultiKrum", "options": {"f": _SHARE}},
    "geometric-median": {"kind": "federated", "aggregator": "GeometricMedian"},
    "centered-clipping": {
        "kind": "federated",
        "aggregator": "CenteredClipping",
        "options": {"tau": 0.3, "L": 3},
    },
    "cmfl-1": {"rules": "digits", "settings": [("protocol.strategy", 1)]},
    "cmfl-2": {"rules": "digits", "settings": [("protocol.strategy", 2)]},
    "cmfl-3": {"rules": "digits", "settings": [("protocol.strategy", 3)]},
    "robust": {"rules": "robust"},
}
"""Methods by name. An option `{"share": x}` counts x of a round's updates."""

_OF_A_METHOD = frozenset({"kind", "rules", "aggregator", "options", "pre", "participants", "tuned"})


def method_table(method: Part, folder: Path, share: float | None) -> dict[str, Any]:
    """Return a method as a table of an experiment.

    Args:
        method: a name of `METHODS`; a preset, or the path of one's TOML, for CMFL by its rules; a
            table with a `name`, keys of an experiment's method and settings by name; or an
            aggregator of your own: `(updates) -> vector`, `file.py:name`, or one of a package.
        share: of the updates that a robust aggregator tolerates, where its options leave it open.
    """
    from clients.aggregators import GROUP
    from clients.configuration.parsing import PRESETS, TOML
    from ledger.io.user_code import named_code

    if isinstance(method, Mapping):
        return _own_method(method, folder)
    if not isinstance(method, str | Path):
        text = reference("methods", method, folder)
        return {"name": _name_of(method), "kind": "federated", "aggregator": text}
    name = str(method)
    if name in METHODS:
        table = {"name": name, **METHODS[name]}
        options = table.get("options", {})
        if share is not None and options.get("f") is _SHARE:
            table["options"] = {**options, "f": {"share": float(share)}}
        return table
    if name in PRESETS:
        return {"name": name, "rules": name}
    if name.endswith(TOML):
        return {"name": Path(name).stem, "rules": name}
    if named_code("methods", GROUP, name) is None:
        raise ConfigurationError(
            f"unknown method {name!r}; known are {', '.join(METHODS)}, presets and paths that end "
            f"in {TOML}, tables with a name and settings, and aggregators of your own"
        )
    return {"name": _name_of(name), "kind": "federated", "aggregator": name}


def _own_method(method: Mapping[str, object], folder: Path) -> dict[str, Any]:
    """Return the table of a method that the caller describes."""
    if not isinstance(method.get("name"), str):
        raise ConfigurationError(f"methods: {dict(method)!r:.80} has no name")
    table: dict[str, Any] = {}
    settings: dict[str, object] = {}
    for key, value in method.items():
        if key == "settings":
            require(TABLE, settings=value)
            settings |= full_names(dict(value))  # type: ignore[call-overload]
        elif key == "rules":
            table[key] = preset_text("rules", value, folder)
        elif key == "name" or key in _OF_A_METHOD:
            table[key] = reference(key, value, folder) if callable(value) else plain_value(value)
        else:
            settings |= full_names({key: value})
    if "aggregator" in table:
        table.setdefault("kind", "federated")
    return {**table, "settings": _settings(settings, folder)}


def condition_table(
    attack: Part | None, folder: Path, malice: Mapping[str, object]
) -> dict[str, Any]:
    """Return a condition as a table of an experiment.

    Args:
        attack: None for none; its name; a table of `attack` and other settings of `malice`; or a
            function `(own, colluders, rng) -> update`.
        malice: settings of `malice` by full name, for every attack that does not say otherwise.
    """
    if attack is None or attack == "none":
        return {"name": NO_ATTACK}
    own: Mapping[str, object] = attack if isinstance(attack, Mapping) else {"attack": attack}
    if own.get("attack") is None:
        raise ConfigurationError(f"attacks: {dict(own)!r:.80} names no attack")
    text = reference("attacks", own["attack"], folder)
    require_or_none(TEXT, name=own.get("name"))
    named = full_names({key: value for key, value in own.items() if key != "name"})
    settings = {**malice, **named, "malice.attack": text}
    name = own.get("name") or _name_of(own["attack"])
    return {"name": name, "settings": _settings(settings, folder)}


def _settings(settings: Mapping[str, object], folder: Path) -> list[tuple[str, Any]]:
    """Return settings as an experiment has them: text in place of functions and classes."""
    return [
        (name, reference(name, value, folder) if callable(value) else plain_value(value))
        for name, value in settings.items()
    ]


def _name_of(part: object) -> str:
    if isinstance(part, str):
        return part.rpartition("/")[2]
    return str(getattr(part, "__name__", type(part).__name__))


NAME = "comparison"
_OF_A_RUN = ("final", "floor", "malicious_accepted", "accepted_honest", "learning_rate", "rounds")
_OF_A_ROUND = (
    "accuracy",
    "loss",
    *("malicious_trained", "malicious_aggregated", "backdoor_success"),
)
"""Columns of the tables of runs and rounds."""

_OF_AN_ATTACK = ("attack", "malicious_rate", "factor", "on", "only")
"""Settings of `malice` that are about its attack."""


@dataclass(frozen=True, slots=True)
class FailedCell:
    """A run of a comparison that could not be played."""

    cell: str
    reason: str


class Comparison:
    """The results of `compare` and `sweep`.

    Attributes:
        cells: the result of each run, as experiments keep it.
        failures: runs that could not be played, with the reason.
    """

    def __init__(
        self,
        cells: Sequence[CellRow],
        failures: Sequence[FailedCell] = (),
        values: Mapping[str, Mapping[str, object]] | None = None,
    ) -> None:
        self.cells = tuple(cells)
        self.failures = tuple(failures)
        self._values = values or {}

    @property
    def rows(self) -> Table:
        """A row for each run.

        Columns: method, attack, a column for each axis, seed; final (mean accuracy of the last five
        measured rounds), floor (of the commonest class), malicious_accepted (attackers' share of
        the aggregated updates), accepted_honest (share of the honest updates that were accepted),
        learning_rate, rounds, seconds, head and audit (of a run on a chain).
        """
        return Table(
            {
                **self._place(cell),
                **{name: getattr(cell, name) for name in _OF_A_RUN},
                "seconds": cell.seconds.wall,
                "head": None if cell.ledger is None else cell.ledger.head,
                "audit": None if cell.ledger is None else str(cell.ledger.verdict),
            }
            for cell in self.cells
        )

    @property
    def curves(self) -> Table:
        """A row for each round of each run: its place, round, accuracy, loss and attackers."""
        return Table(
            {
                **self._place(cell),
                "round": place + 1,
                **{name: getattr(cell, name)[place] for name in _OF_A_ROUND},
            }
            for cell in self.cells
            for place in range(cell.rounds)
        )

    def summary(self) -> Table:
        """Return the final accuracy over seeds: mean, standard error, and how many seeds.

        Nothing but seeds is averaged. The error is None for a single seed.
        """
        from clients.experiments.series import finals_of, grouped, mean_and_error

        rows = []
        for cells in grouped(self.cells, lambda c: repr((c.method, c.condition, c.axes))).values():
            finals = finals_of(cells)
            estimate = mean_and_error(finals) if finals else None
            row = self._place(cells[0]) | {
                "final": None if estimate is None else estimate.mean,
                "error": None if estimate is None else estimate.error,
                "seeds": len(finals),
            }
            del row["seed"]
            rows.append(row)
        return Table(rows)

    def to_pandas(self) -> pd.DataFrame:
        """Return `rows` as a pandas frame; `curves.to_pandas()` has the rounds.

        Raises:
            ConfigurationError: pandas is not installed.
        """
        return self.rows.to_pandas()

    def plot(self, to: str | Path | None = None) -> list[Axes]:
        """Draw accuracy over rounds, or the final accuracy along the axis if there is one.

        Lines are means over seeds with bands of one standard error; there is a panel for each
        attack.

        Args:
            to: a file to write the figure to, `study.png` or `study.svg`; None for none.

        Returns:
            The axes of the panels, which a notebook shows.

        Raises:
            ConfigurationError: matplotlib is not installed, or the file cannot be written.
        """
        from cmfl.display import draw_comparison, write

        drawn = draw_comparison(self.cells)
        write(drawn[0], to)
        return drawn

    def __repr__(self) -> str:
        failed = f", {len(self.failures)} failed" if self.failures else ""
        return f"<cmfl.Comparison of {len(self.cells)} runs{failed}>\n{self.summary()!r}"

    def _repr_html_(self) -> str:
        return self.summary()._repr_html_()

    def _place(self, cell: CellRow) -> dict[str, Any]:
        axes = {name: self._values.get(name, {}).get(x, x) for name, x in cell.axes.items()}
        return {"method": cell.method, "attack": cell.condition, **axes, "seed": cell.seed}


@checked
def compare(
    methods: Sequence[Part],
    *,
    attacks: Sequence[Part | None] = (None,),
    seeds: Iterable[int] = range(3),
    preset: str | Path | Mapping[str, object] = "digits",
    model: str | type | Callable[..., object] | None = None,
    data: Data | str | Path | Callable[..., object] | None = None,
    over: Mapping[str, Sequence[object]] | None = None,
    recorded: bool = True,
    out: str | Path | None = None,
    jobs: int = 1,
    progress: bool | None = None,
    settings: Mapping[str, object] | None = None,
    **keywords: object,
) -> Comparison:
    """Play every method under every attack, with every seed, and return the results.

    All methods get the same data, attackers and first model for a seed.

    Args:
        methods: names (`cmfl.comparison.METHODS`: "fedavg", "krum", "cmfl-1", "robust" and others);
            presets and paths of their TOML files, of which CMFL's rules are taken; aggregators of
            your own, functions from updates of shape (n, d) to a vector of shape (d,), or
            `file.py:function`; or tables: `{"name": "mine", "strategy": 3, "distance": my_rule}`,
            `{"name": "krum-5", "aggregator": "Krum", "options": {"f": 5}}`.
        attacks: None for no attack, names, functions, `file.py:function`, or tables: `{"attack":
            "alie", "factor": 2.0, "name": "alie-2"}`. By 30 % of the clients, unless
            `malicious_rate` says otherwise.
        seeds: of the runs.
        preset: the settings that all start from, as for `run`; of an attack that it has, nothing is
            taken.
        model: as for `run`.
        data: as for `run`.
        over: values of settings by name, each combination of which is played:
            `{"malicious_rate": [0.0, 0.1, 0.3]}`.
        recorded: whether the first seed of each CMFL run goes over a chain and is audited.
        out: folder in which rows are kept as they come, so that a comparison that was cut off goes
            on; without it they are in the result alone.
        jobs: runs at once, in processes; over 1 a script needs the usual
            `if __name__ == "__main__":`.
        progress: True for a bar or lines, False for nothing, None for a bar where somebody looks.
        settings: further settings by full name.
        **keywords: settings of all runs, as for `run`.

    Returns:
        The comparison, with `rows`, `curves`, `summary()` and `plot()`.

    Raises:
        ConfigurationError: an argument is wrong, or no run could be played.
    """
    if jobs < 1:
        raise ConfigurationError(f"jobs = {jobs}: must be at least 1")
    given = full_names({**(settings or {}), **keywords})
    if "malice.attack" in given:
        raise ConfigurationError("attack: a comparison takes a list of them, attacks=[...]")
    malice = {name: value for name, value in given.items() if name.startswith("malice.")}
    malice.setdefault("malice.malicious_rate", USUAL_RATE)
    common = {name: value for name, value in given.items() if name not in malice}
    conditions, values = [*attacks], [*seeds]
    rate = malice["malice.malicious_rate"]
    is_attacked = any(each is not None and str(each) != "none" for each in conditions)
    share = max(rate, USUAL_SHARE) if isinstance(rate, float) and is_attacked else None
    with ExitStack() as stack:
        folder = Path(out) if out is not None else stack.enter_context(temporary_folder())
        base = preset_text("preset", preset, folder)
        axes, labels = _axes(over or {}, folder)
        document = {
            "title": "A comparison",
            "preset": base,
            "seeds": [index(seed) for seed in values],
            "methods": [method_table(method, folder, share) for method in methods],
            "conditions": [condition_table(attack, folder, malice) for attack in conditions],
            "axes": axes,
            "settings": [
                *_in_place_of(base, Parts(model=model, data=data), folder),
                *_settings(common, folder),
            ],
        }
        plan = _plan(document, recorded=recorded)
        return _played(plan, folder, jobs, labels, progress)


def sweep(
    preset: str | Path | Mapping[str, object] = "digits",
    *,
    over: Mapping[str, Sequence[object]],
    seeds: Iterable[int] = range(3),
    attack: Part | None = None,
    **options: Any,
) -> Comparison:
    """Play one configuration with every combination of some settings' values, and every seed.

    Args:
        preset: the settings to start from, as for `run`, the rules among them.
        over: values by the name of the setting: `{"strategy": [1, 2, 3]}`.
        seeds: of the runs.
        attack: as one of `compare`.
        **options: further arguments of `compare`, and settings of all runs.

    Raises:
        ConfigurationError: an argument is wrong, or no run could be played.
    """
    return compare(
        [{"name": "cmfl"}], attacks=[attack], seeds=seeds, preset=preset, over=over, **options
    )


def _axes(
    over: Mapping[str, Sequence[object]], folder: Path
) -> tuple[list[dict[str, Any]], dict[str, dict[str, object]]]:
    """Return the axes of an experiment, and the value behind each label."""
    axes, labels = [], {}
    for key, values in over.items():
        name = full_name(key)
        if name == "seed":
            raise ConfigurationError("over: seed is not a setting to compare; give seeds=")
        try:
            require(LIST, **{key: values})
        except ConfigurationError as error:
            raise ConfigurationError(f"over: {error}") from error
        by_label = {
            _name_of(value) if callable(value) else str(plain_value(value)): value
            for value in values
        }
        labels[key] = {
            label: label if callable(value) else value for label, value in by_label.items()
        }
        points = [
            {"label": label, "settings": _settings({name: value}, folder)}
            for label, value in by_label.items()
        ]
        axes.append({"name": key, "values": points})
    return axes, labels


def _in_place_of(preset: str, parts: Parts, folder: Path) -> list[tuple[str, Any]]:
    """Return the settings of a model and of data, in place of the preset's and of its attack."""
    from clients.configuration.parsing import plain_values

    before = plain_values(preset)
    settings = [(f"malice.{key}", None) for key in _OF_AN_ATTACK if key in before.get("malice", {})]
    after: dict[str, Any] = {}
    put_parts(after, parts, folder)
    for section, table in after.items():
        if section in {"model", "data"} and "name" in table:
            settings += [(f"{section}.{key}", None) for key in before.get(section, {})]
        settings += [(f"{section}.{key}", value) for key, value in table.items()]
    return settings


def _plan(document: dict[str, Any], *, recorded: bool) -> ExperimentPlan:
    """Return what a comparison plays."""
    from pydantic import ValidationError

    from clients.configuration.parsing import first_error
    from clients.experiments.definition import Definition, require_consistent
    from clients.experiments.plan import plan_experiment

    try:
        definition = Definition.model_validate({**document, "audited": int(recorded)})
    except ValidationError as error:
        raise ConfigurationError(f"comparison: {first_error(error)}") from error
    require_consistent(definition, NAME)
    return plan_experiment(NAME, definition)


def _played(
    plan: ExperimentPlan,
    folder: Path,
    jobs: int,
    labels: Mapping[str, Mapping[str, object]],
    progress: bool | None,
) -> Comparison:
    from clients.experiments.run import RowStore, require_data, run_experiment
    from ledger.io.processes import task_pool

    store = RowStore(folder, NAME)
    require_data(plan, store.rows_of(plan))
    with task_pool(jobs) as processes, tracking(f"{NAME}, rounds", shown=progress) as show:
        done = run_experiment(
            plan, store, processes, lambda now: show(now.done, now.rounds, now.job)
        )
    failures = [FailedCell(failure.job, failure.reason) for failure in done.failures]
    by_name = {row.cell: row for row in store.rows().cells}
    cells = [by_name[cell.name] for cell in plan.cells if cell.name in by_name]
    if not cells:
        raise ConfigurationError(f"no run could be played: {failures[0].reason}")
    return Comparison(cells, failures, labels)
