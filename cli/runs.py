"""`cmfl runs`: what the runs of a home or of a service came to, alone and side by side.

Read from the runs' own files, or told by a service: this is what they claim, and it is said so. Of
a run of a home that is shown alone, the claimed head is held against the chain's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.console import (
    AsCsv,
    AsJson,
    complain,
    print_csv,
    print_json,
    print_line,
    print_table,
    shortened,
    whole,
)
from cli.exit_codes import FAILED, WRONG
from cli.options import (
    DEFAULT_HOME,
    Api,
    ApiTokenFile,
    ChainId,
    HomeFolder,
    RpcUrl,
    runs_of_home,
)
from cli.remote import RemoteService
from cli.run_summaries import open_run_summaries
from cli.target import Target
from ledger.io.home import Home
from ledger.protocol.errors import CmflError, ConfigurationError

if TYPE_CHECKING:
    from cli.claimed_head import HeadComparison
    from cli.run_summaries import RunSummaries

app = typer.Typer(
    help="Runs of a home or a service: what they came to, side by side.", no_args_is_help=True
)

COLUMNS = (
    *("run", "ledger", "rounds", "of", "accuracy", "floor", "accepted_attackers"),
    *("head", "configuration"),
)
CLAIMED = (
    "Accuracy and accepted attackers are what the runs say of themselves: claimed, not proven. "
    "What was decided, cmfl audit proves."
)
NOT_SERVED = (
    "A service tells heads, too, and proves none of it. It knows of no run on the memory ledger, "
    "and no digest of a run's own settings file."
)
NOWHERE = dict.fromkeys(COLUMNS)
Name = Annotated[
    str, typer.Argument(metavar="RUN", help="Name of the run.", autocompletion=runs_of_home)
]
Names = Annotated[
    list[str],
    typer.Argument(metavar="RUN...", help="Two runs or more.", autocompletion=runs_of_home),
]


@app.command("list")
def list_runs(
    home: HomeFolder = DEFAULT_HOME,
    api: Api = None,
    api_token_file: ApiTokenFile = None,
    json: AsJson = False,
    csv: AsCsv = False,
) -> None:
    """List the runs of a home: rounds, accuracy and its floor, accepted attackers, head.

    The floor is the accuracy of always answering the commonest class. A run whose files cannot be
    read is named on standard error, with exit code 2, and the others are listed.
    """
    rows, faults = [], []
    with open_run_summaries(Target(home, remote=RemoteService.of(api, api_token_file))) as runs:
        for name in runs.names():
            try:
                rows.append(runs.row(name))
            except (CmflError, OSError) as error:
                rows.append(NOWHERE | {"run": name})
                faults.append(error)
        if csv:
            print_csv(COLUMNS, rows)
        elif json:
            print_json(rows)
        else:
            _print_list(runs, rows, is_remote=api is not None)
    for fault in faults:
        complain(str(fault))
    raise typer.Exit(WRONG if faults else 0)


@app.command("show")
def show(
    name: Name,
    home: HomeFolder = DEFAULT_HOME,
    rpc_url: RpcUrl = None,
    chain_id: ChainId = None,
    api: Api = None,
    api_token_file: ApiTokenFile = None,
    json: AsJson = False,
) -> None:
    """Show what one run came to, and the settings that it was begun with.

    The head that its files claim is looked up on the chain; where that has another one, it is said
    loudly, with exit code 1. What a service tells is looked up nowhere.
    """
    from cli.claimed_head import head_message

    remote = RemoteService.of(api, api_token_file)
    where = Target(home, name, rpc_url=rpc_url, chain_id=chain_id, remote=remote)
    with open_run_summaries(where) as runs:
        row, settings = runs.row(name), runs.settings(name)
        found = _head_of(where, row)
        if json:
            chain = {"outcome": found.outcome.value, "round": found.round, "head": found.head}
            print_json(row | {"chain": chain, "settings": settings})
            verdict = ""
        else:
            verdict = _verdict(runs, row)
    if not json:
        for key, value in row.items():
            print_line(f"{key.replace('_', ' '):18} {_told(value)}".rstrip())
        print_line(verdict)
        if remote is not None:
            print_line(NOT_SERVED)
        elif not found.contradicts:
            print_line(head_message(name, found))
        print_table("settings", ("setting", "value"), list(settings.items()))
    if found.contradicts:
        complain(f"WARNING: {head_message(name, found)}")
        raise typer.Exit(FAILED)


@app.command("compare")
def compare(
    names: Names,
    home: HomeFolder = DEFAULT_HOME,
    api: Api = None,
    api_token_file: ApiTokenFile = None,
    json: AsJson = False,
) -> None:
    """Put two runs or more side by side: what they came to, and the settings that differ."""
    if len(set(names)) < 2:
        raise ConfigurationError(f"runs compare {' '.join(names)}: name two different runs or more")
    with open_run_summaries(Target(home, remote=RemoteService.of(api, api_token_file))) as runs:
        rows = [runs.row(name) for name in names]
        settings = [runs.settings(name) for name in names]
    keys = sorted({key for one in settings for key in one})
    values = {key: [one.get(key) for one in settings] for key in keys}
    differing = {key: found for key, found in values.items() if len(set(found)) > 1}
    if json:
        print_json({"runs": rows, "differing": differing})
        return
    facts = [
        [column.replace("_", " "), *(_told(row[column]) for row in rows)] for column in COLUMNS
    ]
    print_table("runs", ("", *names), facts[1:])
    print_line(CLAIMED)
    if api is not None:
        print_line(NOT_SERVED)
    if differing:
        table = [[key, *map(_set_to, found)] for key, found in differing.items()]
        print_table("settings that differ", ("setting", *names), table)
    else:
        print_line("All settings are the same.")


def _head_of(where: Target, row: dict[str, Any]) -> HeadComparison:
    """Return what the chain says to the head that a run claims; a service is not asked for it."""
    from cli.claimed_head import HeadComparison, HeadOutcome, compare_head
    from ledger.claims import claimed_run

    if where.remote is not None:
        return HeadComparison(HeadOutcome.NOT_ASKED, row["rounds"], row["head"])
    return compare_head(where, claimed_run(Home(where.home).run(row["run"])))


def _print_list(runs: RunSummaries, rows: list[dict[str, Any]], *, is_remote: bool) -> None:
    columns = ("run", "ledger", "rounds", "accuracy", "floor", "accepted attackers", "head")
    shown = [
        (
            *(row["run"], row["ledger"], _of(row), _told(row["accuracy"]), _told(row["floor"])),
            *(_told(row["accepted_attackers"]), shortened(row["head"])),
        )
        for row in rows
    ]
    print_table(f"runs of {runs.place}", columns, shown)
    for row in rows:
        if _is_below(row):
            print_line(_verdict(runs, row), bold=True)
    print_line(CLAIMED)
    if is_remote:
        print_line(NOT_SERVED)
        known = [row["run"] for row in rows if row["ledger"] is not None]
        for sentence in filter(None, map(runs.unknown, known)):
            print_line(sentence)


def _verdict(runs: RunSummaries, row: dict[str, Any]) -> str:
    """Return in words what the last accuracy is worth."""
    if unknown := runs.unknown(row["run"]):
        return unknown
    if row["accuracy"] is None:
        return f"{row['run']}: no accuracy was measured"
    if _is_below(row):
        return (
            f"WARNING: {row['run']} ends below its floor: always answering the commonest class is "
            f"right more often"
        )
    proves = f"; what was decided, {runs.audit_of(row['run'])} proves"
    checked = proves if row["ledger"] == "chain" else ""
    return f"{row['run']}: accuracy and accepted attackers are claimed, not proven{checked}"


def _is_below(row: dict[str, Any]) -> bool:
    from ledger.claims import is_below_floor

    return row["floor"] is not None and is_below_floor(row["accuracy"], row["floor"])


def _of(row: dict[str, Any]) -> str:
    if row["rounds"] is None:
        return ""
    return str(row["rounds"]) if row["of"] is None else f"{row['rounds']}/{row['of']}"


def _told(value: object) -> str:
    return f"{value:.3f}" if isinstance(value, float) else whole(shortened(value))


def _set_to(value: str | None) -> str:
    return "not set" if value is None else value
