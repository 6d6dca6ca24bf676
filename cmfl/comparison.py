"""Comparisons: methods under attacks, over seeds and the values of settings."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from datetime import timedelta
from operator import index
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, Unpack

from cmfl.arguments import LIST, TABLE, TEXT, checked, reference, require
from cmfl.display import Table, draw_comparison, tracking, write
from cmfl.keywords import RunKeywords
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
    from clients.experiments.rows import CellRow
    from clients.experiments.run import ExperimentProgress, JobFailed

Part = str | Path | Mapping[str, object] | Callable[..., object]
"""A method or an attack: a name, a table, or a function; a method also the path of a preset."""
USUAL_SHARE = 0.2
_TOLERANT = {"f": {"share": USUAL_SHARE}}
METHODS: dict[str, dict[str, Any]] = {
    "fedavg": {"kind": "federated", "aggregator": "FedAvg"},
    "median": {"kind": "federated", "aggregator": "Median"},
    "trimmed-mean": {"kind": "federated", "aggregator": "TrMean", "options": _TOLERANT},
    "krum": {"kind": "federated", "aggregator": "Krum", "options": _TOLERANT},
    "multi-krum": {"kind": "federated", "aggregator": "MultiKrum", "options": _TOLERANT},
    "geometric-median": {"kind": "federated", "aggregator": "GeometricMedian"},
    "centered-clipping": {
        "kind": "federated",
        "aggregator": "CenteredClipping",
        "options": {"tau": 0.3, "L": 3},
    },
    "fltrust": {"kind": "federated", "aggregator": "FLTrust", "options": {"root": 100}},
    "dnc": {
        "kind": "federated",
        "aggregator": "DnC",
        "options": {**_TOLERANT, "b": 500, "T": 3},
    },
    "cmfl-1": {"rules": "digits", "settings": [("protocol.strategy", 1)]},
    "cmfl-2": {"rules": "digits", "settings": [("protocol.strategy", 2)]},
    "cmfl-3": {"rules": "digits", "settings": [("protocol.strategy", 3)]},
    "robust": {"rules": "robust"},
}
"""Methods by name. An option `{"share": x}` counts x of a round's updates."""


def method_table(method: Part, folder: Path, share: float | None) -> dict[str, Any]:
    """Return a method, as `compare` takes it, that tolerates a share of the updates, as a table."""
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
        if share is not None and "f" in table.get("options", {}):
            table["options"] = {**table["options"], "f": {"share": float(share)}}
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
    if not isinstance(method.get("name"), str):
        raise ConfigurationError(f"methods: {dict(method)!r:.80} has no name")
    keys = {"name", "kind", "rules", "aggregator", "options", "pre", "participants", "tuned"}
    table: dict[str, Any] = {}
    settings: dict[str, object] = {}
    for key, value in method.items():
        if key == "settings":
            require(TABLE, settings=value)
            settings |= full_names(dict(value))  # type: ignore[call-overload]
        elif key == "rules":
            table[key] = preset_text("rules", value, folder)
        elif key in keys:
            table[key] = reference(key, value, folder) if callable(value) else plain_value(value)
        else:
            settings |= full_names({key: value})
    if "aggregator" in table:
        table.setdefault("kind", "federated")
    return {**table, "settings": _settings(settings, folder)}


def condition_table(
    attack: Part | None, folder: Path, malice: Mapping[str, object]
) -> dict[str, Any]:
    """Return an attack, as `compare` takes it, as a condition with settings of `malice`."""
    if attack is None or attack == "none":
        return {"name": "no attack"}
    own: Mapping[str, object] = attack if isinstance(attack, Mapping) else {"attack": attack}
    if own.get("attack") is None:
        raise ConfigurationError(f"attacks: {dict(own)!r:.80} names no attack")
    text = reference("attacks", own["attack"], folder)
    if own.get("name") is not None:
        require(TEXT, name=own["name"])
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
_OF_A_ROUND = ("accuracy", "loss", "malicious_trained", "malicious_aggregated", "backdoor_success")
"""Columns of the tables of runs and rounds."""


class Comparison:
    """The results of `compare` and `sweep`: a cell of each run, and the runs that failed."""

    def __init__(
        self,
        cells: Sequence[CellRow],
        failures: Sequence[JobFailed] = (),
        values: Mapping[str, Mapping[str, object]] | None = None,
    ) -> None:
        self.cells = tuple(cells)
        self.failures = tuple(failures)
        self._values = values or {}

    @property
    def rows(self) -> Table:
        """A row for each run.

        The columns are method, attack, each axis, and seed. `final` is the mean accuracy of the
        last five measured rounds, and `floor` the accuracy of always answering the most frequent
        class. `malicious_accepted` is the attackers' share of the aggregated updates, and
        `accepted_honest` the accepted share of the honest ones. Then come learning_rate, rounds and
        seconds, and for a run on a chain head and audit.
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
        """Return the final accuracy over seeds: mean, error (None for one seed), and count."""
        from clients.experiments.series import finals_of, grouped, mean_and_error

        rows = []
        for cells in grouped(self.cells, lambda c: repr((c.method, c.condition, c.axes))).values():
            finals = finals_of(cells)
            row, final, error = self._place(cells[0]), None, None
            if finals:
                estimate = mean_and_error(finals)
                final, error = estimate.mean, estimate.error
            del row["seed"]
            rows.append({**row, "final": final, "error": error, "seeds": len(finals)})
        return Table(rows)

    def to_pandas(self) -> pd.DataFrame:
        """Return `rows` as a pandas frame; `curves.to_pandas()` has the rounds."""
        return self.rows.to_pandas()

    def plot(self, to: str | Path | None = None) -> list[Axes]:
        """Draw accuracy over rounds, or the final one along an axis; return a panel for each.

        Bands are one standard error. `to` names a file for the figure, `study.png` or `study.svg`.
        """
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
    **keywords: Unpack[RunKeywords],
) -> Comparison:
    """Play every method under every attack, with every seed, and return the results.

    All methods get the same data, attackers and first model for a seed.

    Args:
        methods: names (`cmfl.comparison.METHODS`: "fedavg", "krum", "cmfl-1", "robust" and others),
            or paths of presets for CMFL's own rules. An aggregator of your own is a function from
            updates of shape (n, d) to a vector of shape (d,), or `file.py:function`. A table names
            options: `{"name": "mine", "strategy": 3, "distance": my_rule}`, or `{"name": "krum-5",
            "aggregator": "Krum", "options": {"f": 5}}`.
        attacks: None for no attack, names, functions, `file.py:function`, or tables: `{"attack":
            "alie", "factor": 2.0, "name": "alie-2"}`. 30% of the clients attack, unless
            `malicious_rate` is set.
        seeds: seeds of the runs.
        preset: the settings that all start from, as for `run`, without its attack.
        model: model, as for `run`.
        data: data, as for `run`.
        over: values of settings by name; each combination is played:
            `{"malicious_rate": [0.0, 0.1, 0.3]}`.
        recorded: True to play the first seed of each CMFL run on a chain, and to audit it.
        out: folder that keeps rows as they come, so that you can resume a comparison.
        jobs: runs at once, in processes; over 1 a script needs `if __name__ == "__main__":`.
        progress: None or True for a bar, or a line for each run on standard error where there is
            no terminal; False for nothing.
        settings: further settings by full name.
        **keywords: settings of all runs, as for `run`.

    Raises:
        ConfigurationError: an argument is wrong, or no run could be played.
    """
    if jobs < 1:
        raise ConfigurationError(f"jobs = {jobs}: must be at least 1")
    given = full_names({**(settings or {}), **keywords})
    for name in ("attack", "seed"):
        if full_name(name) in given:
            raise ConfigurationError(f"{name}: a comparison needs a list, {name}s=[...]")
    malice = {name: value for name, value in given.items() if name.startswith("malice.")}
    malice.setdefault("malice.malicious_rate", USUAL_RATE)
    common = {name: value for name, value in given.items() if name not in malice}
    conditions = [*attacks]
    rate = malice["malice.malicious_rate"]
    is_attacked = any(each is not None and str(each) != "none" for each in conditions)
    share = max(rate, USUAL_SHARE) if isinstance(rate, float) and is_attacked else None
    with ExitStack() as stack:
        folder = Path(out) if out is not None else stack.enter_context(temporary_folder())
        base = preset_text("preset", preset, folder)
        axes, labels = _axes(over or {}, folder)
        document = {
            "title": "A comparison",
            "audited": int(recorded),
            "preset": base,
            "seeds": [index(seed) for seed in seeds],
            "methods": [method_table(method, folder, share) for method in methods],
            "conditions": [condition_table(attack, folder, malice) for attack in conditions],
            "axes": axes,
            "settings": [
                *_in_place_of(base, Parts(model, data), folder),
                *_settings(common, folder),
            ],
        }
        return _played(document, folder, jobs, labels, progress)


class SweepOptions(RunKeywords, total=False):
    """What `sweep` takes besides, as for `compare`."""

    model: str | type | Callable[..., object] | None
    data: Data | str | Path | Callable[..., object] | None
    recorded: bool
    out: str | Path | None
    jobs: int
    progress: bool | None
    settings: Mapping[str, object] | None


@checked
def sweep(
    preset: str | Path | Mapping[str, object] = "digits",
    *,
    over: Mapping[str, Sequence[object]],
    seeds: Iterable[int] = range(3),
    attack: Part | None = None,
    **options: Unpack[SweepOptions],
) -> Comparison:
    """Play one configuration with all combinations of settings' values, and every seed.

    `over` has values by setting: `{"strategy": [1, 2, 3]}`. Other arguments are as for `compare`.
    """
    return compare(
        [{"name": "cmfl"}], attacks=[attack], seeds=seeds, preset=preset, over=over, **options
    )


def _axes(
    over: Mapping[str, Sequence[object]], folder: Path
) -> tuple[list[dict[str, Any]], dict[str, dict[str, object]]]:
    axes, labels = [], {}
    for key, values in over.items():
        name = full_name(key)
        if name == "seed":
            raise ConfigurationError("over: seed is not a setting to compare; give seeds=")
        require(LIST, **{f"over[{key!r}]": values})
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
    of_attack = ("attack", "malicious_rate", "factor", "on", "only")
    settings = [(f"malice.{key}", None) for key in of_attack if key in before.get("malice", {})]
    after: dict[str, Any] = {}
    put_parts(after, parts, folder)
    for section, table in after.items():
        if section in {"model", "data"} and "name" in table:
            settings += [(f"{section}.{key}", None) for key in before.get(section, {})]
        settings += [(f"{section}.{key}", value) for key, value in table.items()]
    return settings


def _played(
    document: dict[str, Any],
    folder: Path,
    jobs: int,
    labels: Mapping[str, Mapping[str, object]],
    progress: bool | None,
) -> Comparison:
    from pydantic import ValidationError

    from clients.datasets.federated_data import first_error
    from clients.experiments.definition import Definition, require_consistent
    from clients.experiments.plan import plan_experiment
    from clients.experiments.run import RowStore, require_data, run_experiment
    from ledger.io.processes import task_pool

    try:
        definition = Definition.model_validate(document)
    except ValidationError as error:
        raise ConfigurationError(f"comparison: {first_error(error)}") from error
    require_consistent(definition, NAME)
    plan, store = plan_experiment(NAME, definition), RowStore(folder, NAME)
    require_data(plan, store.rows_of(plan))
    began, label = monotonic(), f"{NAME}, cells"
    with task_pool(jobs) as processes, tracking(label, shown=progress, line_for_each=True) as show:

        def on_progress(now: ExperimentProgress) -> None:
            ended = len(now.rows) + len(now.failures)
            seconds = (monotonic() - began) * (now.rounds - now.done) / max(now.done, 1)
            left = f", {timedelta(seconds=round(seconds))} left" if ended < now.jobs else ""
            show(ended, now.jobs, f"{now.job}{left}")

        done = run_experiment(plan, store, processes, on_progress)
    by_name = {row.cell: row for row in store.rows().cells}
    cells = [by_name[cell.name] for cell in plan.cells if cell.name in by_name]
    if not cells:
        raise ConfigurationError(f"no run could be completed: {done.failures[0].reason}")
    return Comparison(cells, done.failures, labels)
