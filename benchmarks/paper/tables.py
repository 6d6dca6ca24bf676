"""Tables of README and docs from rows: the worst attacks, the limits, and the paper as a whole.

`python -m benchmarks.paper report` writes them into docs/measured/science.json, from which
`benchmarks.figures` fills the pages.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from statistics import median

from benchmarks.paper.claims import final, never_aggregated
from benchmarks.paper.verdict import Claim, Measure, Results, Scenario
from clients.experiments.definition import Setting, definition_named, names
from clients.experiments.figures import correlation
from clients.experiments.plan import values_of
from clients.experiments.report import (
    DASH,
    OVERVIEW,
    captured_share,
    format_estimate,
    markdown,
    overview_row,
)
from clients.experiments.rows import CellRow, ExperimentRows
from clients.experiments.series import by_method, grouped, mean_and_error, paired
from ledger.protocol.parameters import replies_needed
from ledger.protocol.types import Quorum

NONE, FEDAVG = "none", "FedAvg"
PRESET, UNCALIBRATED = "CMFL-III-calibrated", "CMFL-III"
"""The preset `robust`, and the same without calibrated training."""
DIGITS = "robustness-worst"
BETTER = " *"
"""Marks a value that a baseline exceeds."""
CLEAN_STEPS = (FEDAVG, "FedAvg-trainers", UNCALIBRATED, PRESET)
CLEAN_PARTS = ("of it: members do not train", "of it: rule", "of it: calibration")
"""Methods from FedAvg to the preset, and what each step costs without attackers."""
LIMITS = (
    *("attackers", "setting", "worst attack", "accuracy under it", "not calibrated", "no attack"),
    *("FedAvg, no attack", "the same at its best rate", "least run", "captured runs"),
    "best other method, its worst attack",
)


def certifying(members: int, quorum: Quorum = Quorum.PAPER) -> int:
    """Return how many members can certify any model: a primary and its replies."""
    return replies_needed(members, quorum) + 1


@dataclass(frozen=True, slots=True)
class MethodRuns:
    """The runs of a method in one setting, with and without attackers."""

    cells: Sequence[CellRow]

    def finals(self, condition: str) -> dict[int, float]:
        """Return the final accuracy of each seed under an attack, or without one."""
        of = (cell for cell in self.cells if cell.condition == condition)
        return {cell.seed: cell.final for cell in of if cell.final is not None}

    @property
    def worst(self) -> str:
        """The attack with the least mean accuracy."""
        attacks = dict.fromkeys(cell.condition for cell in self.cells if cell.condition != NONE)
        return min(attacks, key=lambda attack: _mean(self.finals(attack)))

    @property
    def least(self) -> float:
        """The least accuracy of any attacked run."""
        return min(cell.final for cell in self.cells if cell.malicious and cell.final is not None)

    @property
    def captured(self) -> str:
        """How many attacked runs had a committee whose attackers could certify any model."""
        attacked = [cell for cell in self.cells if cell.malicious and cell.malicious_members]
        needed = [certifying(cell.extra["committee"]) for cell in attacked]
        hits = [max(cell.malicious_members or ()) for cell in attacked]
        count = sum(held >= least for held, least in zip(hits, needed, strict=True))
        return f"{count} of {len(attacked)}"


@dataclass(frozen=True)
class AttackSetting:
    """All methods in one setting: a share of attackers, data, model, sizes."""

    name: str
    cells: Sequence[CellRow]

    @cached_property
    def runs(self) -> dict[str, MethodRuns]:
        """The runs by method."""
        return {method: MethodRuns(cells) for method, cells in by_method(self.cells).items()}

    @property
    def attackers(self) -> str:
        """The share of attackers among the clients."""
        attacked = next(cell for cell in self.cells if cell.malicious)
        return f"{round(100 * len(attacked.malicious) / len(attacked.samples))}%"

    def best_baseline(self, *, is_attacked: bool) -> tuple[float, str]:
        """Return the best mean of a method without strategy III, under its own worst attack."""
        found = []
        for method, runs in self.runs.items():
            condition = runs.worst if is_attacked else NONE
            if not method.startswith(UNCALIBRATED) and runs.finals(condition):
                found.append((_mean(runs.finals(condition)), method))
        return max(found)


def _mean(finals: Mapping[int, float]) -> float:
    return mean_and_error(list(finals.values())).mean


def _told(finals: Mapping[int, float]) -> str:
    return format_estimate(list(finals.values())) if finals else DASH


def _difference(own: Mapping[int, float], theirs: Mapping[int, float]) -> str:
    estimate = paired(own, theirs)
    if estimate is None:
        return DASH
    return f"{estimate.mean:+.3f}" + ("" if estimate.error is None else f" ± {estimate.error:.3f}")


def settings_of(rows: Mapping[str, ExperimentRows]) -> list[AttackSetting]:
    """Return each setting of the worst attacks that has attacked rows of the preset."""
    calm = [cell for cell in rows[DIGITS].cells if cell.condition == NONE]
    found = []
    for name in (
        "fewer",
        "",
        "40",
        "parts",
        "committees",
        "mlp",
        "by-writer",
        "by-writer-cnn",
        "lstm",
    ):
        experiment = rows.get(f"{DIGITS}-{name}" if name else DIGITS)
        if experiment is None:
            continue
        for label, cells in grouped(experiment.cells, _labels).items():
            attacks_only = all(cell.condition != NONE for cell in cells)
            title = "digits" if name in {"fewer", "", "40"} else label or name.replace("-", " ")
            setting = AttackSetting(title, [*cells, *(calm if attacks_only else ())])
            if PRESET in setting.runs:
                found.append(setting)
    return found


def _labels(cell: CellRow) -> str:
    return ", ".join(f"{axis} {label}" for axis, label in cell.axes.items())


def worst_table(setting: AttackSetting) -> list[str]:
    """Return what each method keeps under its worst attack."""
    calm, lines = setting.runs[FEDAVG].finals(NONE), []
    for method, runs in setting.runs.items():
        shares = [share for cell in runs.cells if (share := captured_share(cell)) is not None]
        rates = dict.fromkeys(f"{cell.learning_rate:g}" for cell in runs.cells)
        under = runs.finals(runs.worst)
        told = [method, ", ".join(rates), _told(runs.finals(NONE)), runs.worst, _told(under)]
        told += [_difference(under, calm), f"{runs.least:.3f}"]
        lines.append([*told, f"{max(shares):.2f}" if shares else "no committee"])
    head = ("method", "rate", "no attack", "worst attack", "accuracy under it")
    more = ("less FedAvg without attack", "least run", "largest share of a committee")
    return markdown((*head, *more), lines)


def limits_table(rows: Mapping[str, ExperimentRows]) -> list[str]:
    """Return the preset's limits by setting; `BETTER` marks what a baseline exceeds."""
    tuned = rows.get(f"{DIGITS}-tuned")
    best = MethodRuns([c for c in tuned.cells if c.method == FEDAVG]).finals(NONE) if tuned else {}
    lines = []
    for setting in settings_of(rows):
        runs, baseline = setting.runs[PRESET], setting.best_baseline(is_attacked=True)
        calm, under = runs.finals(NONE), runs.finals(runs.worst)
        marks = [
            BETTER if bound[0] > _mean(finals) else ""
            for finals, bound in (
                (under, baseline),
                (calm, setting.best_baseline(is_attacked=False)),
            )
        ]
        plain = setting.runs.get(UNCALIBRATED)
        lines.append(
            [
                *(setting.attackers, setting.name, runs.worst, _told(under) + marks[0]),
                _told(plain.finals(plain.worst)) if plain else DASH,
                *(_told(calm) + marks[1], _told(setting.runs[FEDAVG].finals(NONE))),
                _told(best) if setting.name == "digits" else DASH,
                *(f"{runs.least:.3f}", runs.captured, f"{baseline[1]}, {baseline[0]:.3f}"),
            ]
        )
    return markdown(LIMITS, lines)


def targets_table(rows: Mapping[str, ExperimentRows]) -> list[str]:
    """Return the bounds that were set before the runs, and what was found."""
    setting = next(of for of in settings_of(rows) if of.cells[0].experiment == DIGITS)
    runs, calm = setting.runs[PRESET], setting.runs[FEDAVG].finals(NONE)
    attacks = dict.fromkeys(cell.condition for cell in runs.cells if cell.malicious)
    losses = {attack: -_paired_mean(runs.finals(attack), calm) for attack in attacks}
    clean, over = -_paired_mean(runs.finals(NONE), calm), [a for a in losses if losses[a] > 0.03]
    worst = max(losses, key=lambda attack: losses[attack])
    lines = [
        (
            "loss under the worst attack",
            "0.030 (aim: 0.020)",
            f"{losses[worst]:.3f}, {worst}",
            losses[worst] <= 0.03,
        ),
        ("attacks with a larger loss", "0", ", ".join(over) or "0", not over),
        ("least run", "0.86", f"{runs.least:.3f}", runs.least >= 0.86),
        ("loss without attackers", "0.007", f"{clean:.3f}", clean <= 0.007),
    ]
    told = [[what, bound, found, "yes" if met else "no"] for what, bound, found, met in lines]
    steps = [setting.runs[method].finals(NONE) for method in CLEAN_STEPS]
    for part, (before, after) in zip(CLEAN_PARTS, pairwise(steps), strict=True):
        told.append([part, "", f"{-_paired_mean(after, before):.3f}", ""])
    return markdown(("preset `robust`, digits, 30% attackers", "bound", "found", "met"), told)


def _paired_mean(own: Mapping[int, float], theirs: Mapping[int, float]) -> float:
    estimate = paired(own, theirs)
    return float("nan") if estimate is None else estimate.mean


def costs_table(rows: Mapping[str, ExperimentRows]) -> list[str]:
    """Return the processor time of a run under each attack, in runs without one, as medians."""
    methods = (FEDAVG, "NNM-TrMean", "CMFL-I", PRESET)
    seconds = {
        (cell.method, cell.condition, cell.seed): cell.seconds.cpu
        for cell in rows[DIGITS].cells
        if cell.ledger is None
    }
    seeds = sorted({seed for method, _, seed in seconds if method == PRESET})
    lines = []
    for attack in (
        "min-max",
        "adaptive",
        "target",
        "worst-back",
        "worst-drift",
        "worst-full",
        "tail",
    ):
        ratios = [
            [
                seconds[method, attack, seed] / seconds[method, NONE, seed]
                for seed in seeds
                if (method, attack, seed) in seconds and (method, NONE, seed) in seconds
            ]
            for method in methods
        ]
        lines.append([attack, *(f"{median(of):.1f}" if of else DASH for of in ratios)])
    return markdown(("runs without an attack", *methods), lines)


PAPER_FIGURES = (
    ("2, 3", "paper-femnist", "normal normal-paper-values normal-cnn normal-femnist"),
    ("2, 3", "paper-sent140", "normal-sent140 normal-sent140-rate"),
    ("2", "paper-shakespeare", "normal-shakespeare"),
    ("4", "paper-femnist", "robustness robustness-cnn robustness-femnist"),
    ("5", "paper-sent140", "robustness-sent140 authors-sent140"),
    ("6", "paper-shakespeare", "robustness-shakespeare authors-shakespeare"),
    ("7", "paper-femnist", "grids-alpha grids-omega grids-epsilon"),
    ("8, 9", "paper-femnist", "efficiency efficiency-writers"),
    ("8, 9", "paper-sent140", "efficiency-sent140"),
    ("10", "paper-femnist", "committee committee-members"),
)
"""Figures of the paper, the preset with the paper's sizes, and our experiments."""


def paper_table(rows: Mapping[str, ExperimentRows], claims: Iterable[Claim]) -> list[str]:
    """Return the paper's figures, our commands, their cost and sizes, and how findings agree."""
    results, lines = Results(rows), []
    findings = [finding for claim in claims for finding in claim.findings(results)]
    for figure, paper, experiments in PAPER_FIGURES:
        for name in experiments.split():
            definition, of = definition_named(name), rows.get(name)
            command = f"`cmfl experiment run {name}{' --data DIR' if definition.files else ''}`"
            sizes = _sizes(definition.preset, definition.settings), _sizes(paper)
            minutes, agree = "no rows yet", DASH
            if of is not None:
                seconds = sum(row.seconds.cpu for row in (*of.cells, *of.trials))
                minutes, places = f"{seconds / 60:.1f}", (f"{name}:", f"{name},")
                own = [each.holds for each in findings if each.where.startswith(places)]
                if own:
                    agree = f"{own.count(True)} of {len(own)}, {own.count(None)} not decided"
            lines.append([figure, command, minutes, *sizes, agree])
    heads = ("figure", "command", "CPU minutes", "here", "in the paper", "same finding")
    return markdown(heads, lines)


def _sizes(preset: str, settings: Sequence[Setting] = ()) -> str:
    values = values_of(preset, settings)
    protocol, model = values["protocol"], values["model"]
    options = ", ".join(f"{name} {value}" for name, value in model.get("options", {}).items())
    return (
        f"{protocol['clients']:,} clients, {model['name']}{options and f' ({options})'}, "
        f"{protocol['rounds']:,} rounds"
    )


def experiments_table(rows: Mapping[str, ExperimentRows]) -> list[str]:
    """Return all experiments with links to their pages; some may have no rows yet."""
    lines = []
    for name in names():
        if of := rows.get(name):
            number, _, *counts = overview_row(name, of)
            lines.append([number, f"[`{name}`]({name}.md)", *counts])
        else:
            number = str(definition_named(name).number or DASH)
            lines.append([number, f"`{name}`", "no rows yet", "", "", ""])
    return markdown(OVERVIEW, lines)


METHODS = (FEDAVG, "Median", "TrMean", "Krum", "MultiKrum", "CMFL-I", "CMFL-II")
SHOWN = (FEDAVG, "CMFL-I", "CMFL-II")
MEASURES: dict[str, Measure] = {"never aggregated": never_aggregated, "correlation": correlation}


def official_tables(rows: Mapping[str, ExperimentRows]) -> dict[str, list[str]]:
    """Return the authors' published figures beside ours: accuracy, attackers and clients."""
    document = json.loads((Path(__file__).parent / "official.json").read_bytes())
    results, accuracy, attackers, clients = Results(rows), [], [], []

    def ours(place: Scenario, methods: Sequence[str], measure: Measure) -> list[str]:
        # Their FedAvg without an attack trains as many clients as CMFL aggregates.
        calm = ("FedAvg-aggregated", "FedAvg-trainers")
        names = [
            calm if m == FEDAVG and place.condition in {NONE, "epoch"} else (m,) for m in methods
        ]
        found = [[results.values(place, name, measure) for name in of] for of in names]
        return [next((_told(values) for values in of if values), DASH) for of in found]

    for entry in document["accuracy"]:
        values = [DASH if value is None else f"{value:.4f}" for value in entry["methods"]]
        accuracy.append([entry["setting"], "official", *values, f"{entry['floor']:.4f}"])
        for place in (Scenario(*each) for each in entry["ours"]):
            told = ours(place, METHODS, final)
            if cells := [
                c for m in results.methods(place) for c in results.cells(place, m).values()
            ]:
                accuracy.append(["", f"ours: {place}", *told, f"{cells[0].floor or 0:.4f}"])
    for entry in document["attackers"]:
        attackers.append(
            [entry["condition"], "official", *(f"{v:.2f}" for v in entry["trained, I, II"])]
        )
        for experiment in ("robustness-sent140", "authors-sent140"):
            place = Scenario(experiment, entry["condition"])
            told = ours(place, ("CMFL-I",), _a_round("malicious_trained"))
            told += ours(place, SHOWN[1:], _a_round("malicious_aggregated"))
            if told[0] != DASH:
                attackers.append(["", f"ours: {experiment}", *told])
    for entry in document["clients"]:
        clients.append([entry["figure"], "official", *(f"{v:.3f}" for v in entry["FedAvg, I, II"])])
        place = Scenario(*entry["ours"])
        told = ours(place, SHOWN, MEASURES[entry["measure"]])
        if told != [DASH] * len(SHOWN):
            clients.append(["", f"ours: {place}", *told])
    return {
        "official.accuracy": markdown(("setting", "whose", *METHODS, "floor"), accuracy),
        "official.attackers": markdown(
            ("attack", "whose", "trained", "aggregated, I", "II"), attackers
        ),
        "official.clients": markdown(("figure", "whose", *SHOWN), clients),
    }


def _a_round(counts: str) -> Measure:
    """Return the measure of a count's mean over rounds."""
    return lambda cell: sum(getattr(cell, counts)) / max(1, cell.rounds)


def science_tables(
    rows: Mapping[str, ExperimentRows], claims: Iterable[Claim]
) -> dict[str, list[str]]:
    """Return each table of README and docs that follows from rows, by the name of its figure."""
    missing = ["| no rows yet |", "| --- |"]
    from_worst = ("worst.30%", "worst.40%", "tuned", "limits", "targets", "costs")
    tables = {
        "science.experiments": experiments_table(rows),
        "paper.figures": paper_table(rows, claims),
        **official_tables(rows),
        **{f"science.{name}": missing for name in from_worst},
    }
    if DIGITS in rows:
        tables["science.limits"] = limits_table(rows)
        tables["science.targets"] = targets_table(rows)
        tables["science.costs"] = costs_table(rows)
        for setting in settings_of(rows):
            if setting.cells[0].experiment in {DIGITS, f"{DIGITS}-40"}:
                tables[f"science.worst.{setting.attackers}"] = worst_table(setting)
    if tuned := rows.get(f"{DIGITS}-tuned"):
        tables["science.tuned"] = worst_table(AttackSetting("tuned", tuned.cells))
    return tables
