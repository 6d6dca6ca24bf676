"""`cmfl runs`: summaries of the runs of a home or a service, one by one.

Rounds and head are read from the chain. Accuracy and accepted attackers are claims of the runs' own
files. `cmfl runs show` compares the claimed head of a run with the chain.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from cmfl.commands.console import (
    AsCsv,
    AsJson,
    complain,
    print_csv,
    print_json,
    print_line,
    print_prose,
    print_table,
    shortened,
    whole,
)
from cmfl.commands.exit_codes import FAILED, WRONG
from cmfl.commands.options import (
    DEFAULT_HOME,
    Api,
    ApiTokenFile,
    ChainId,
    HomeFolder,
    RpcUrl,
    runs_of_home,
)
from cmfl.commands.run_summaries import (
    COLUMNS,
    HomeRuns,
    RunSummary,
    ServiceRuns,
    open_run_summaries,
    summary,
)
from cmfl.where import RemoteService, Target
from ledger.io.home import Home
from ledger.protocol.errors import CmflError

if TYPE_CHECKING:
    from cmfl.commands.claimed_head import HeadComparison

app = typer.Typer(help="Summaries of the runs of a home or a service.", no_args_is_help=True)

CLAIMED = (
    "Accuracy and accepted attackers are the runs' own claims: claimed, not proven. "
    "cmfl audit proves the decisions."
)
NOT_SERVED = (
    "The heads are claims of the service, too. It knows no run on the memory ledger, and no digest "
    "of a run's own settings file."
)
Name = Annotated[
    str, typer.Argument(metavar="RUN", help="Name of the run.", autocompletion=runs_of_home)
]


@app.command("list")
def list_runs(
    home: HomeFolder = DEFAULT_HOME,
    rpc_url: RpcUrl = None,
    chain_id: ChainId = None,
    api: Api = None,
    api_token_file: ApiTokenFile = None,
    json: AsJson = False,
    csv: AsCsv = False,
) -> None:
    """List the runs of a home: rounds, accuracy and its floor, accepted attackers, head.

    The floor is the accuracy of always answering the commonest class. Rounds and head are read from
    the chain, and are unknown where it is a node's that is not named. A run that cannot be read is
    named on standard error, with exit code 2, and the others are listed.
    """
    rows: list[RunSummary] = []
    faults: list[Exception] = []
    remote = RemoteService.of(api, api_token_file)
    target = Target(home, rpc_url=rpc_url, chain_id=chain_id, remote=remote)
    with open_run_summaries(target) as runs:
        for name in runs.names():
            try:
                rows.append(runs.row(name))
            except (CmflError, OSError) as error:
                rows.append(summary(name))
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
    """Show one run: its summary and its settings.

    The head that its files claim is compared with the chain; a difference is reported with a
    warning and exit code 1. The claims of a service are not compared.
    """
    from cmfl.commands.claimed_head import head_message
    from ledger.early_stop import claimed_stop

    remote = RemoteService.of(api, api_token_file)
    target = Target(home, name, rpc_url=rpc_url, chain_id=chain_id, remote=remote)
    with open_run_summaries(target) as runs:
        row, settings = runs.row(name), runs.settings(name)
        comparison = _head_of(target, row)
        stop = None if remote is not None else claimed_stop(Home(home).run(name))
        if json:
            chain = {
                "outcome": comparison.outcome.value,
                "round": comparison.round,
                "head": comparison.head,
                "claimed": comparison.claimed,
            }
            ended = {} if stop is None else {"early_stop": asdict(stop)}
            print_json({**row, "chain": chain, **ended, "settings": settings})
            verdict = ""
        else:
            verdict = _verdict(runs, row)
    if not json:
        for key, value in row.items():
            if key == "unread" and value is None:
                continue
            print_line(f"{key.replace('_', ' '):18} {_shown(value)}".rstrip())
        print_line(verdict)
        if stop is not None:
            print_line(stop.sentence)
        if remote is not None:
            print_prose(NOT_SERVED)
        elif row["unread"] is None and not comparison.contradicts:
            print_line(head_message(name, comparison))
        print_table("settings", ("setting", "value"), list(settings.items()))
    if comparison.contradicts:
        complain(f"WARNING: {head_message(name, comparison)}")
        raise typer.Exit(FAILED)


def _head_of(target: Target, row: RunSummary) -> HeadComparison:
    """Return the comparison of a run's claimed head with the chain; a service is not asked."""
    from cmfl.commands.claimed_head import HeadComparison, HeadOutcome, compare_head
    from ledger.claims import claimed_run

    if target.remote is not None:
        return HeadComparison(HeadOutcome.NOT_ASKED, row["rounds"], row["head"])
    return compare_head(target, claimed_run(Home(target.home).run(row["run"])))


def _print_list(runs: HomeRuns | ServiceRuns, rows: list[RunSummary], *, is_remote: bool) -> None:
    columns = ("run", "ledger", "rounds", "accuracy", "floor", "accepted_attackers", "head")
    shown = []
    for row in rows:
        of = "" if None in {row["rounds"], row["of"]} else f"/{row['of']}"
        rounds = row | {"rounds": f"{_shown(row['rounds'])}{of}"}
        shown.append([_shown(rounds[column]) for column in columns])
    print_table(f"runs of {runs.place}", [each.replace("_", " ") for each in columns], shown)
    for row in rows:
        if _is_below(row):
            print_line(_verdict(runs, row), bold=True)
    for row in rows:
        if row["unread"] is not None:
            print_line(row["unread"])
    print_prose(CLAIMED)
    if is_remote:
        print_prose(NOT_SERVED)
        readable = [row["run"] for row in rows if row["ledger"] is not None]
        for sentence in filter(None, map(runs.unknown, readable)):
            print_line(sentence)


def _verdict(runs: HomeRuns | ServiceRuns, row: RunSummary) -> str:
    """Return in words how far the last accuracy can be trusted."""
    if unknown := runs.unknown(row["run"]):
        return unknown
    if row["accuracy"] is None:
        return f"{row['run']}: no accuracy was measured"
    if _is_below(row):
        return (
            f"WARNING: {row['run']} ends below its floor: always answering the commonest class is "
            f"right more often"
        )
    audit = f"; {runs.audit_of(row['run'])} proves the decisions"
    checked = audit if row["ledger"] == "chain" else ""
    return f"{row['run']}: accuracy and accepted attackers are claimed, not proven{checked}"


def _is_below(row: RunSummary) -> bool:
    from ledger.claims import is_below_floor

    return row["floor"] is not None and is_below_floor(row["accuracy"], row["floor"])


def _shown(value: object) -> str:
    return f"{value:.3f}" if isinstance(value, float) else whole(shortened(value))
