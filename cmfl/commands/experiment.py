"""`cmfl experiment`: run, draw, report and audit experiments."""

from __future__ import annotations

import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

from clients.experiments.definition import definition_named, name_of, names
from clients.experiments.figures import draw
from clients.experiments.report import report as make_report
from clients.experiments.rows import ExperimentRows, read_experiments
from cmfl.commands import FAILED, INCOMPLETE, WRONG, InterruptedCommand, code_of, console
from cmfl.commands.application import Commands
from ledger.audit.report import AuditOutcome
from ledger.audit.report_text import readable
from ledger.io.extras import require_extra
from ledger.io.processes import TaskPool, task_pool
from ledger.protocol.errors import ConfigurationError

if TYPE_CHECKING:
    from clients.experiments.plan import ExperimentPlan
    from clients.experiments.run import ExperimentProgress, RowStore

ALL = "all"

experiment_app = Commands()

Name = Annotated[str, Argument(help="Experiment, or path of a TOML file. See experiment list.")]
NameOrAll = Annotated[
    str, Argument(help="Experiment, path of a TOML file, or all. See experiment list.")
]
Out = Annotated[Path, Option("--out", help="Folder of the rows: NAME.jsonl, and the folder NAME.")]
Data = Annotated[
    Path | None, Option("--data", help="Folder of the data files that experiments read.")
]
Quick = Annotated[
    bool, Option("--quick", help="Use the small version of the experiment, with rows in quick/.")
]
Seeds = Annotated[
    int | None, Option("--seeds", min=1, max=1000, help="Number of seeds. Default: as defined.")
]
DEFAULT_OUT = Path("experiments")


@experiment_app.command("list")
def list_(
    name: Annotated[str | None, Argument(help="Experiment whose cells are listed.")] = None,
    out: Out = DEFAULT_OUT,
    data: Data = None,
    quick: Quick = False,
    seeds: Seeds = None,
    json: console.AsJson = False,
    csv: console.AsCsv = False,
) -> None:
    """List the experiments, or the cells of one with their results."""
    if name is None or name == ALL:
        rows: list[dict[str, Any]] = [
            {
                "experiment": each,
                "number": definition.number,
                "title": definition.title,
                "methods": len(definition.methods),
                "conditions": len(definition.conditions),
                "seeds": len(definition.seeds),
                "files": " ".join(definition.files),
            }
            for each, definition in ((each, definition_named(each)) for each in names())
        ]
        console.print_rows("Experiments", rows, as_json=json, as_csv=csv)
        return
    plan, store = _planned(name, seeds, data, out, is_quick=quick)
    rows_by_cell, cells = {row.cell: row for row in store.rows().cells}, []
    for cell in plan.cells:
        row = rows_by_cell.get(cell.name)
        cells.append(
            {
                "cell": cell.name,
                "final": None if row is None else row.final,
                "head": None if row is None or row.ledger is None else row.ledger.head,
                "current": None if row is None else plan.row_digest(row) == row.digest,
            }
        )
    there = sum(cell["current"] is True for cell in cells)
    title = f"{plan.definition.title}: {there} of {len(cells)} cells have their row"
    console.print_rows(title, cells, as_json=json, as_csv=csv)
    others = sum(plan.row_digest(row) != row.digest for row in rows_by_cell.values())
    if others and not (csv or json):
        console.print_line(
            f"{others} rows in {store.path} belong to another version of this experiment or to "
            f"removed cells; experiment run does not add such rows"
        )


@experiment_app.command("run")
def run(
    name: NameOrAll,
    seeds: Seeds = None,
    jobs: Annotated[int, Option(min=1, max=256, help="Number of cells that run in parallel.")] = 2,
    quick: Quick = False,
    out: Out = DEFAULT_OUT,
    data: Data = None,
    json: console.AsJson = False,
) -> None:
    """Run the cells that have no row yet.

    If the command is interrupted, call it again: it repeats only the cells that were running. The
    first seed of each CMFL cell has its own chain and is audited there.

    Exit codes: 0, every cell has its row and every audit passed. 1, an audit failed. 2, a cell
    could not be run. 3, an audit was incomplete.
    """
    from clients.experiments.run import require_data

    runnable = _runnable(data, is_quick=quick) if name == ALL else [name]
    planned = [_planned(experiment, seeds, data, out, is_quick=quick) for experiment in runnable]
    for plan, store in planned:
        # All are looked at before the first is run.
        require_data(plan, store.rows_of(plan))
    results = []
    try:
        with task_pool(jobs) as processes:
            for number, (plan, store) in enumerate(planned, start=1):
                place = f"{number} of {len(planned)}: {plan.experiment}"
                results.append(_run(plan, store, processes, place, quiet=json))
    except KeyboardInterrupt as error:
        options = {"jobs": jobs, "out": out, "seeds": seeds, "data": data, "quick": quick}
        again = console.command_line("experiment", "run", name, **options)
        raise InterruptedCommand(
            f"interrupted, and all rows are saved; to continue, run {again}"
        ) from error
    if json:
        console.print_json(results)
    codes = {code_of(verdict) for result in results for verdict in result["verdicts"]}
    codes |= {WRONG for result in results if result["failures"]}
    raise typer.Exit(next((code for code in (FAILED, WRONG, INCOMPLETE) if code in codes), 0))


@experiment_app.command("plot")
def plot(
    name: NameOrAll = ALL,
    out: Out = DEFAULT_OUT,
    to: Annotated[Path, "Folder of the figures (SVG and PNG)."] = Path("figures"),
    quick: Quick = False,
) -> None:
    """Draw the figures of all experiments that have rows, or of one.

    The key `figure` of a definition names the kinds of figures. The default follows from its axes.
    Only seeds are averaged.
    """
    require_extra("plots", "figures need")
    paths = draw(_rows(name, out, is_quick=quick), to)
    console.print_line(f"{len(paths)} files in {to}")


@experiment_app.command("report")
def report(
    name: NameOrAll = ALL,
    out: Out = DEFAULT_OUT,
    to: Annotated[
        Path | None, "Markdown file, which replaces an existing one. Default: print it."
    ] = None,
    quick: Quick = False,
) -> None:
    """Write the tables and audited points of all experiments, or of one.

    The report is one Markdown file.
    """
    text = make_report(_rows(name, out, is_quick=quick))
    if to is None:
        console.print_lines(text.splitlines())
    else:
        console.write_result(to, text.encode(), "--to")


@experiment_app.command("audit")
def audit(
    name: Name,
    cell: Annotated[str, Argument(help="Cell that ran on a chain. See experiment list.")],
    out: Out = DEFAULT_OUT,
    data: Data = None,
    quick: Quick = False,
    home: Annotated[Path | None, "New folder to keep, for cmfl rounds, audit and serve."] = None,
    json: console.AsJson = False,
) -> None:
    """Repeat a cell's run on a fresh chain, compare head and numbers with its row, and audit it.

    Exit codes: 0, the result is the same and every check passed. 1, something differs, or the
    record contradicts itself. 3, there is no contradiction, but something could not be checked.
    """
    from clients.experiments.run import repeat_cell

    plan, store = _planned(name, None, data, out, is_quick=quick)
    if home is not None and home.exists():
        raise ConfigurationError(f"--home {home}: exists; name a new folder")
    with tempfile.TemporaryDirectory() as folder, console.progress() as bar:
        task = bar.add_task("rounds", total=plan.cell(cell).rounds)
        place = Path(folder) / "home" if home is None else home
        found = repeat_cell(plan, store, cell, place, lambda: bar.advance(task))
    repeated = found.row.cell
    document = {"differing": found.differing, "report": found.report.as_dict()}
    lines = [f"{repeated}: {line}" for line in found.differing]
    verdict = f"{repeated} is reproduced: the head and all numbers are the same"
    if lines:
        verdict = "DIFFERS: another machine, torch build or version gives different bytes"
    console.print_result(
        {"cell": repeated, "outcome": str(found.outcome), **document},
        [*readable(found.report), "", *lines, verdict],
        as_json=json,
    )
    raise typer.Exit(code_of(found.outcome))


def _planned(
    name: str, seeds: int | None, data: Path | None, out: Path, *, is_quick: bool
) -> tuple[ExperimentPlan, RowStore]:
    from clients.experiments.plan import plan_experiment
    from clients.experiments.run import RowStore

    definition = definition_named(name)
    plan = plan_experiment(name_of(name), definition, seeds=seeds, is_quick=is_quick, data=data)
    if plan.experiment != name_of(name):
        console.complain(
            f"{name_of(name)} runs as {plan.experiment}: scikit-learn's digits replace "
            f"{definition.files[0]}, because --data names no folder"
        )
    return plan, RowStore(_folder(out, is_quick=plan.is_quick), plan.experiment)


def _folder(out: Path, *, is_quick: bool) -> Path:
    return out / "quick" if is_quick else out


def _runnable(data: Path | None, *, is_quick: bool) -> list[str]:
    from clients.experiments.plan import playable

    runnable = []
    for name in names():
        try:
            playable(name, definition_named(name), data, is_quick=is_quick)
            runnable.append(name)
        except ConfigurationError as error:
            console.complain(f"skipped: {error}")
    return runnable


def _run(
    plan: ExperimentPlan, store: RowStore, processes: TaskPool, place: str, *, quiet: bool
) -> dict[str, Any]:
    from clients.experiments.run import run_experiment as run_all

    with console.progress_of_rounds() as bar:
        task = bar.add_task(f"{place}, rounds", total=None, said="")

        def show(now: ExperimentProgress) -> None:
            bar.update(task, total=now.rounds, completed=now.done, said=now.job)

        done = run_all(plan, store, processes, show)
    for failure in done.failures:
        console.complain(f"{failure.job}: {failure.reason}")
    verdicts = [row.ledger.verdict for row in store.rows().cells if row.ledger is not None]
    passed = sum(verdict == AuditOutcome.PASSED for verdict in verdicts)
    if not quiet:
        console.print_line(
            f"{plan.experiment}: {len(done.rows)} new rows in {store.path}; {passed} of "
            f"{len(verdicts)} runs on a chain pass their audit"
        )
    return {
        "experiment": plan.experiment,
        "rows": str(store.path),
        "new": [row.cell for row in done.rows],
        "failures": [asdict(failure) for failure in done.failures],
        "verdicts": verdicts,
    }


def _rows(name: str, out: Path, *, is_quick: bool) -> dict[str, ExperimentRows]:
    return read_experiments(_folder(out, is_quick=is_quick), None if name == ALL else name)
