"""The report on experiments, from their rows alone: `cmfl experiment report`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from clients.experiments import series
from clients.experiments.definition import names
from clients.experiments.rows import CellRow, ExperimentRows, sorted_rows
from clients.experiments.series import by_method, grouped, scenario_name
from ledger.claims import last_known

if TYPE_CHECKING:
    Measure = Callable[[CellRow], float | None]


DASH = "–"  # noqa: RUF001 - a dash
"""The entry of a table where there is no cell."""
OVERVIEW = ("number", "experiment", "cells", "tuning runs", "audits passed", "CPU minutes")
CALM = "no attackers"


def captured_share(cell: CellRow) -> float | None:
    """Return the largest share of a round's committee that attackers held; None without one."""
    held, members = cell.malicious_members, cell.extra.get("committee")
    return max(held) / float(members) if held and members else None


MEASURES: tuple[tuple[str, Measure], ...] = (
    ("final accuracy", lambda cell: cell.final),
    ("share of the aggregated updates that attackers sent", lambda cell: cell.malicious_accepted),
    ("share of the honest trainers that were aggregated", lambda cell: cell.accepted_honest),
    ("largest share of a committee that attackers held", captured_share),
    ("success of the backdoor at the end", lambda cell: last_known(cell.backdoor_success)),
)
"""The measures that have a table, if cells have different values."""


def report(rows: Mapping[str, ExperimentRows]) -> str:
    """Return the report as Markdown."""
    rows = sorted_rows(rows)
    lines = [
        "# Results of the experiments",
        "",
        "`cmfl experiment report` makes this page from rows. ± is one standard error over seeds.",
        "",
        *overview(rows),
        "",
        "## Learning rates",
        "",
        *learning_rates(rows),
        "",
    ]
    for name, experiment in rows.items():
        lines += [f"## {title_of(name, experiment)}", "", *section(name, experiment)]
    return "\n".join(lines).rstrip() + "\n"


def overview(rows: Mapping[str, ExperimentRows]) -> list[str]:
    """Return the table of all experiments: cells, tuning runs, audits and CPU time."""
    return markdown(OVERVIEW, [overview_row(name, of) for name, of in rows.items()])


def overview_row(name: str, of: ExperimentRows) -> list[str]:
    """Return the columns `OVERVIEW` of one experiment with rows."""
    cpu_seconds = sum(row.seconds.cpu for row in (*of.cells, *of.trials))
    audits = [cell.ledger.verdict for cell in of.cells if cell.ledger is not None]
    passed = f"{sum(verdict == 'passed' for verdict in audits)} of {len(audits)}"
    number = DASH if of.cells[0].number is None else str(of.cells[0].number)
    counts = [str(len(of.cells)), str(len(of.trials)), passed if audits else "none"]
    return [number, name, *counts, f"{cpu_seconds / 60:.1f}"]


def learning_rates(
    rows: Mapping[str, ExperimentRows], papers_rate: Callable[[str], str] | None = None
) -> list[str]:
    """Return the table of the chosen learning rates."""
    table = []
    for name, experiment in rows.items():
        for choice in experiment.choices:
            finals = ", ".join(f"{factor}: {mean:.3f}" for factor, mean in choice.finals.items())
            cells = (cell for cell in experiment.cells if cell.method == choice.method)
            used = ", ".join(dict.fromkeys(f"{cell.learning_rate:g}" for cell in cells)) or DASH
            tried, end = [float(factor) for factor in choice.finals], ""
            if len(tried) > 1 and choice.factor in {min(tried), max(tried)}:
                end = f" ({'smallest' if choice.factor == min(tried) else 'largest'} tried)"
            factor, seeds = f"{choice.factor:g}{end}", str(len(choice.seeds))
            table.append([name, choice.method, factor, used, seeds, finals])
    if not table:
        return ["No rate was chosen."]
    head = ["experiment", "method", "factor", "rate", "seeds", "accuracy by factor"]
    if papers_rate is not None:
        head.append("paper's rate")
        table = [[*line, papers_rate(line[0])] for line in table]
    return markdown(head, table)


def figure_links(rows: Iterable[str], figures: Sequence[str]) -> dict[str, list[str]]:
    """Return the links to figures by the experiment whose name they have."""
    links: dict[str, list[str]] = {}
    for link in figures:
        stem = f"{PurePosixPath(link).stem}-"
        owners = [owner for owner in {*rows, *names()} if stem.startswith(f"{owner}-")]
        links.setdefault(max(owners, key=len, default=""), []).append(link)
    return links


def section(name: str, experiment: ExperimentRows, figures: Sequence[str] = ()) -> list[str]:
    """Return an experiment's settings, tables, figures and audited runs as lines of Markdown."""
    cells = experiment.cells
    seeds = ", ".join(map(str, sorted({cell.seed for cell in cells})))
    floors = [cell.floor for cell in cells if cell.floor is not None]
    settings = [
        ["seeds", seeds],
        ["rounds", format_range((cell.rounds for cell in cells), "g")],
        ["accuracy of the most frequent class", format_range(floors, ".3f") if floors else DASH],
        ["attackers", attack_text(cells)],
        ["learning rate", rate_text(cells)],
    ]
    lines = [*markdown(["setting", "value"], settings), "", *tables(cells)]
    for link in figures:
        lines += [f"![{PurePosixPath(link).stem}]({link})", ""]
    points = [
        [f"`{cell.cell}`", f"`{cell.ledger.address}`", f"`{cell.ledger.head}`", cell.ledger.verdict]
        for cell in cells
        if cell.ledger is not None
    ]
    if points:
        lines += [
            f"These runs are on a chain. `cmfl experiment audit {name} CELL` repeats one:",
            "",
        ]
        lines += [*markdown(["cell", "address", "head", "audit"], points), ""]
    return lines


def title_of(name: str, experiment: ExperimentRows) -> str:
    """Return the heading of an experiment: its number in the paper, its title and its name."""
    number = experiment.cells[0].number
    title = "" if experiment.definition is None else f"{experiment.definition.title}: "
    return f"{'' if number is None else f'{number}. '}{title}`{name}`"


def tables(cells: Sequence[CellRow]) -> list[str]:
    """Return the tables of one experiment as lines of Markdown."""
    lines: list[str] = []
    for title, measure in MEASURES:
        values = {value for cell in cells if (value := measure(cell)) is not None}
        if len(values) > 1 or (values and title == MEASURES[0][0]):
            lines += [f"{title[0].upper()}{title[1:]}:", "", *_table(cells, measure), ""]
    return lines


def markdown(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Return a table as lines of Markdown."""
    escaped = [[text.replace("|", "\\|") for text in row] for row in (head, *rows)]
    lines = [f"| {' | '.join(row)} |" for row in escaped]
    return [lines[0], f"| {' | '.join('---' for _ in head)} |", *lines[1:]]


def _table(cells: Sequence[CellRow], measure: Measure) -> list[str]:
    places: dict[tuple[str, str], list[CellRow]] = {}
    for cell in cells:
        places.setdefault((cell.method, scenario_name(cell)), []).append(cell)
    seeds = max(map(len, places.values()))
    told: dict[str, dict[str, str]] = {method: {} for method in by_method(cells)}
    for (method, line), own in places.items():
        values = [value for cell in own if (value := measure(cell)) is not None]
        if values:
            fewer = f" ({len(values)} of {seeds} seeds)" if len(values) < seeds else ""
            told[method][line] = f"{format_estimate(values)}{fewer}"
    filled = {line for entries in told.values() for line in entries}
    lines = [line for line in grouped(cells, scenario_name) if line in filled]
    least = 2 if len(lines) > series.FEW_SCENARIOS else 1
    columns = [method for method, entries in told.items() if len(entries) >= least]
    rows = [[line, *(told[method].get(line, DASH) for method in columns)] for line in lines]
    below = [
        f"* {method}, {line}: {entry}"
        for method, entries in told.items()
        if method not in columns
        for line, entry in entries.items()
    ]
    empty = [method for method, entries in told.items() if not entries]
    below += [f"* no value: {', '.join(empty)}"] if empty else []
    return [*markdown(["", *columns], rows), *(["", *below] if below else [])]


def format_estimate(values: Sequence[float]) -> str:
    """Return mean ± standard error, or the one value there is."""
    estimate = series.mean_and_error(values)
    return f"{estimate.mean:.3f}" + ("" if estimate.error is None else f" ± {estimate.error:.3f}")


def format_range(values: Iterable[float], shown: str) -> str:
    """Return one value, or the least and the largest, in a format."""
    ordered = sorted(values)
    return " to ".join(dict.fromkeys(f"{end:{shown}}" for end in (ordered[0], ordered[-1])))


def attack_text(cells: Iterable[CellRow]) -> str:
    """Return the attacks of each condition, by the attackers that the rows name."""
    conditions = grouped(cells, lambda cell: cell.condition)
    texts = {condition: _attack_of(own) for condition, own in conditions.items()}
    if len(set(texts.values())) == 1 and CALM in texts.values():
        return "No client attacks."
    if len(texts) <= 4:
        named = (
            text if text.startswith(f"{condition} by") else f"{condition}: {text}"
            for condition, text in texts.items()
        )
        return f"{'; '.join(named)}."
    calm = [condition for condition, text in texts.items() if text == CALM]
    attacked = [cell for name, own in conditions.items() if name not in calm for cell in own]
    everywhere = f"in all {len(texts)} conditions" + (f" except {', '.join(calm)}" if calm else "")
    return f"{_percent(attacked)} of the clients attack {everywhere}."


def rate_text(cells: Iterable[CellRow]) -> str:
    """Return the learning rates, by method where methods differ."""
    methods: dict[str, list[str]] = {}
    for method, own in by_method(cells).items():
        rates = dict.fromkeys(f"{cell.learning_rate:g}" for cell in own)
        methods.setdefault(" and ".join(rates), []).append(method)
    if len(methods) == 1:
        return f"Learning rate {next(iter(methods))}."
    listed = "; ".join(f"{rates} of {', '.join(names)}" for rates, names in methods.items())
    return f"Learning rate {listed}."


def _attack_of(cells: Sequence[CellRow]) -> str:
    attacked = [cell for cell in cells if cell.malicious]
    if not attacked:
        return CALM
    attacks = dict.fromkeys(cell.attack for cell in attacked if cell.attack is not None)
    return f"{' or '.join(attacks)} by {_percent(cells)} of the clients"


def _percent(cells: Iterable[CellRow]) -> str:
    shares = (round(100 * len(cell.malicious) / len(cell.samples)) for cell in cells)
    return f"{format_range(shares, 'd')}%"
