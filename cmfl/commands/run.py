"""`cmfl run`, `cmfl settings` and `cmfl track`: simulate, list settings, log."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

from clients.configuration.tested_regime import regime_warnings
from cmfl import tracking
from cmfl.auditing import AuditRequest
from cmfl.commands import WRONG, InterruptedCommand, console, options
from cmfl.commands.configuration_options import ConfigurationOptions
from cmfl.commands.deploy import resume_command
from cmfl.commands.sender import SenderOptions, command_on, missing_variables, print_next
from cmfl.simulating import PlayedRun, play
from cmfl.where import HOME, RUN, Target, opened_ledger
from ledger.chain.ports import NotServedError, TransactionTimeoutError
from ledger.chain.round_ledger import ends_after
from ledger.claims import is_below_floor, whole_rows
from ledger.io.home import Home, RunPaths, read_text
from ledger.io.parsing import MAX_TOML_BYTES, parse_toml
from ledger.protocol.errors import ChainError, ConfigurationError
from ledger.protocol.ledger_state import RoundDecided

if TYPE_CHECKING:
    from clients.configuration.schema import Configuration, TrackSection
    from clients.runs.metrics import RoundMetrics
    from clients.runs.open_run import OpenedRun


def run(
    home: options.HomeFolder = HOME,
    name: options.RunToMake = RUN,
    *,
    configured: ConfigurationOptions,
    rounds: Annotated[int | None, "Short for --set protocol.rounds=N."] = None,
    workers: Annotated[int | None, "Number of training processes; does not change results."] = None,
    resume: Annotated[bool, "Resume an interrupted run."] = False,
    accept_rollback: Annotated[
        bool, "With --resume, continue on a chain that has lost recorded rounds."
    ] = False,
    node: SenderOptions,
    json: console.AsJson = False,
) -> None:
    """Run simulated rounds, or resume an interrupted run.

    With --resume, a run's own code is executed only if you name it again, as in --set
    model.name=FILE.py:CLASS. For every setting, attack and fault, see cmfl settings.
    """
    if accept_rollback and not resume:
        raise ConfigurationError("--accept-rollback needs --resume")
    more = {"protocol.rounds": rounds, "machine.workers": workers}
    settings = [f"{key}={value}" for key, value in more.items() if value is not None]
    configuration = _configuration(home, name, configured, settings, resume=resume)
    where = node.chain_of(home, name)
    is_memory = configuration.machine.ledger == "memory"
    if is_memory and where.rpc_url is not None:
        raise ConfigurationError("--rpc-url has no effect with machine.ledger = memory")
    if accept_rollback and where.rpc_url is None and not is_memory:
        # Before the chain is opened for writing, which forgets what was acknowledged.
        where.require_contract()
    try:
        played = play(
            *(where, configuration, lambda opened: _watch(opened, quiet=json), console.complain),
            create=not resume,
            open_node=node.chain,
            accept_rollback=accept_rollback,
        )
    except (NotServedError, TransactionTimeoutError) as error:
        continuing = _continuing(where, name, node)
        if where.rpc_url is None or not continuing:
            raise
        raise ChainError(f"{error}{continuing}") from error
    except KeyboardInterrupt as error:
        continuing = "; a memory run cannot be resumed"
        if not is_memory:
            continuing = _continuing(where, name, node)
        raise InterruptedCommand(f"interrupted{continuing}") from error
    _report(where, played, configuration.data.options.get("task"), as_json=json)
    # Last of all: a run that is refused says so in one line, and long output hides none.
    if configuration.malice.attack is not None:
        for warning in regime_warnings(configuration):
            page = "docs/explanation/robustness.md"
            console.complain(f"warning: outside the tested settings: {warning}; see {page}")


def _configuration(
    home: Path, name: str, configured: ConfigurationOptions, more: list[str], *, resume: bool
) -> Configuration:
    from clients.configuration.loading import load
    from clients.runs.run_folder import recorded_configuration, require_new

    settings = (*configured.settings, *more)
    if resume:
        if configured.has_source:
            raise ConfigurationError("--resume uses the run's configuration; give no other")
        return recorded_configuration(home, name, settings)
    configuration = load(configured.preset, configured.config, settings)
    require_new(home, name)
    return configuration


def _continuing(where: Target, name: str, sender: SenderOptions) -> str:
    if not Home(where.home).run(name).configuration.exists():
        return ""
    command = resume_command(where, name, sender)
    needed = "; ".join(missing_variables(command))
    return f"; continue with: {command}{f' ({needed})' if needed else ''}"


def _report(where: Target, played: PlayedRun, task: str | None, *, as_json: bool) -> None:
    from clients.models.model import perplexity

    name, last = played.name, played.rows[-1] if played.rows else None
    if as_json:
        result = {
            "run": name,
            "address": played.address,
            "round": played.round,
            "rounds_now": len(played.rows),
            "head": played.head,
            "last": last.as_dict() if last else None,
        }
        result |= {"early_stop": played.stop.sentence} if played.stop else {}
        console.print_json(result | ({"tracked": played.tracked} if played.tracked else {}))
        return
    if played.stop is not None:
        console.print_line(played.stop.sentence)
    elif last is None:
        console.print_line(f"{name} had already ended with round {played.round}")
    place = "memory ledger" if played.address is None else f"contract {played.address}"
    console.print_line(f"{place}, head 0x{played.head.hex()}")
    if played.address is None:
        console.print_line("this run is not recorded; it cannot be audited or resumed")
    if last is not None:
        if last.accuracy is not None:
            console.print_line(f"accuracy {last.accuracy:.3f}, floor {last.floor:.3f}")
        elif last.loss is not None:
            console.print_line(f"mean squared error {last.loss:.4g}")
        if (value := perplexity(task, last.loss)) is not None:
            console.print_line(f"perplexity {value:.4g}")
        if is_below_floor(last.accuracy, last.floor):
            console.print_line(
                f"WARNING: {name} ends with accuracy {last.accuracy:.3f}, below the "
                f"{last.floor:.3f} of always predicting the most frequent class; the model is "
                "useless",
                bold=True,
            )
    console.print_line(f"results are in {Home(where.home).run(name).path}")
    console.print_lines(f"tracked by {tracker}: {at}" for tracker, at in played.tracked.items())
    home = where.home
    print_next("show them with", command_on(where, "runs", "show", name, home=home))
    if played.address is not None:
        print_next("audit it with", command_on(where, "audit", run=name, home=home))


def _watch(opened: OpenedRun, *, quiet: bool) -> list[RoundMetrics]:
    if opened.without_row:
        rounds = ", ".join(map(str, opened.without_row))
        console.complain(f"warning: metrics.jsonl lacks rounds {rounds}: their models are missing")
    if quiet:
        return opened.go_on(lambda _: None)
    if console.chosen() is not console.Verbosity.QUIET:
        console.print_lines(opened.population.clean.about)
    total = opened.configuration.protocol.rounds
    with console.progress_of_rounds() as bar:
        finished = opened.simulation.chain is None
        done = total if finished else opened.ledger.state().round - 1
        name = f"{opened.folder.paths.path.name}, rounds"
        task = bar.add_task(name, total=total, completed=done, said="")

        def show(row: RoundMetrics) -> None:
            accepted = f"{len(row.accepted)} accepted, {row.malicious_accepted} of them malicious"
            said = accepted if row.decided else "abandoned"
            if row.accuracy is not None:
                said = f"accuracy {row.accuracy:.3f}, {said}"
            bar.update(task, completed=row.round, said=said)

        return opened.go_on(show)


def settings(
    what: Annotated[
        str | None,
        "Section to show, such as protocol, malice, presets, data, attacks, faults or rules. "
        "Default: every setting.",
        Argument(metavar="[SECTION|presets|data|attacks|faults|rules]"),
    ] = None,
    json: console.AsJson = False,
    csv: console.AsCsv = False,
) -> None:
    """Show settings with their defaults, allowed and current values.

    Change a setting with --set section.key=value, or in a TOML file.
    """
    from clients.configuration import settings_reference as reference

    lists: dict[str, Callable[[], Sequence[Any]]] = {
        "presets": reference.presets,
        "data": lambda: [*_of_section("data"), *reference.data_settings()],
        "attacks": reference.attacks,
        "faults": reference.faults,
        "rules": reference.rules,
    }

    def _of_section(section: str | None) -> list[Any]:
        every = reference.settings()
        places = {row["name"]: row["name"].rpartition(".")[0] for row in every}
        matching = [row for row in every if section in {None, row["name"], places[row["name"]]}]
        if not matching:
            names = ", ".join(dict.fromkeys((*filter(None, places.values()), *lists)))
            raise ConfigurationError(f"settings {section}: unknown section; must be one of {names}")
        return matching

    rows = [*lists.get(what or "", lambda: _of_section(what))()]
    if csv or json:
        console.print_rows("", rows, as_json=json, as_csv=csv)
    else:
        for row in rows:
            _print(row)


def _print(row: dict[str, Any]) -> None:
    if "may_be" in row:
        default = row["default"]
        shown = f"default {str(default).lower() if isinstance(default, bool) else default}"
        shown = "not set" if default is None or default == {} else shown
        shown = "must be given" if row["is_needed"] else shown
        console.print_line(f"{row['name']}  ({shown})", bold=True)
        lines = [row["sentence"], row["may_be"]]
    elif "sends" in row:
        console.print_line(
            f"{row['name']}  (on {'updates' if row['on'] == 'update' else row['on']})"
        )
        lines = [row["sends"], row["source"]]
        if row["factor"] is not None:
            lines.append(
                f"malice.factor: {row['least']:g} to {row['most']:g}, default {row['factor']:g}"
            )
    else:
        console.print_line(" ".join(filter(None, (row.get("setting"), row["name"]))), bold=True)
        lines = [row["sentence"]]
    console.print_lines(f"    {line}" for line in lines)


def track(
    home: options.HomeFolder = HOME,
    run: options.RunName = None,
    setting: Annotated[
        list[str] | None, "track.key=value; overrides the run's own trackers.", Option("--set")
    ] = None,
    rpc_url: options.RpcUrl = None,
    chain_id: options.ChainId = None,
    rules: options.Rules = None,
    json: console.AsJson = False,
) -> None:
    """Log a recorded run to MLflow, TensorBoard or W&B.

    The command also logs an audit's verdict. The run's settings select the trackers. You can add
    --set track.mlflow=FOLDER, track.tensorboard=FOLDER or track.wandb=FOLDER. If you repeat the
    command, it adds only new rounds. The exit code is 2 if a tracker fails.
    """
    from cmfl.commands.audit import audited_with_progress

    where = Target(home, run, rpc_url=rpc_url, chain_id=chain_id)
    # A run on the memory ledger has no manifest and no chain to audit, and must be named.
    paths = None if run is None else Home(home).run(run)
    if paths is None or paths.manifest.exists() or not paths.configuration.exists():
        paths = where.run_paths()
    section = _section(paths, tuple(setting or ()))
    tracking.require_apart(section, home)
    session = tracking.TrackingSession(section, console.complain)
    rows = [tracking.tracked_row(values) for _, values in whole_rows(paths)]
    rows = rows or _rows_of_chain(where)
    session.open(tracking.described_run(home, paths.name, section), rows)
    model = paths.model if section.model and paths.model.exists() else None
    verdict = tracking.NOT_AUDITED
    if section.audit and paths.manifest.exists():
        request = AuditRequest(jobs=1, rules=tuple(rules or ()))
        verdict = tracking.in_words(lambda: audited_with_progress(where, request))
    tags = {"audit": verdict}
    if rows:
        tags["head"] = rows[-1].head
    session.close(tracking.prefixed(tags), model)
    console.print_result(
        {"run": paths.name, "rounds": len(rows), "tracked": session.places},
        [
            f"{len(rows)} rounds of {paths.name} are tracked by {tracker}: {place}"
            for tracker, place in session.places.items()
        ],
        as_json=json,
    )
    if session.warnings:
        raise typer.Exit(WRONG)


def _section(paths: RunPaths, settings: tuple[str, ...]) -> TrackSection:
    from clients.configuration.parsing import tracked_by

    recorded = parse_toml(read_text(paths.configuration, MAX_TOML_BYTES)).get("track", {})
    for each in settings:
        if not each.startswith("track."):
            raise ConfigurationError(f"--set {each}: only track.KEY=VALUE has an effect here")
    section = tracked_by({"track": recorded}, settings)
    if not section.used:
        raise ConfigurationError(
            "no tracker is configured; use --set track.mlflow=FOLDER, "
            "track.tensorboard=FOLDER or track.wandb=FOLDER"
        )
    return section


def _rows_of_chain(where: Target) -> list[tracking.TrackedRow]:
    """Return what the chain has of each round, for a run that was not played in this home."""
    with opened_ledger(where) as ledger:
        ends = ends_after(ledger, 0)
    return [
        tracking.tracked_row(
            {
                "round": end.round,
                "head": f"0x{end.head.hex()}",
                "decided": isinstance(end, RoundDecided),
                "accepted": end.accepted if isinstance(end, RoundDecided) else (),
                "views": end.views if isinstance(end, RoundDecided) else None,
            }
        )
        for end in ends
    ]
