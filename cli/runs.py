"""`cmfl runs`: what the runs of a home came to, alone and side by side.

Read from the runs' own files: this is what they claim, and it is said so. Of a run that is shown
alone, the claimed head is held against the chain's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.codes import FAILED, WRONG
from cli.console import (
    AsCsv,
    AsJson,
    command_line,
    complain,
    print_csv,
    print_json,
    print_line,
    print_table,
    shortened,
    whole,
)
from cli.options import DEFAULT_HOME, ChainId, HomeFolder, RpcUrl, runs_of_home
from cli.where import Where
from ledger.home import RUN_NAME, Home, RunPaths
from ledger.protocol.errors import CmflError, ConfigurationError

if TYPE_CHECKING:
    from pathlib import Path

    from ledger.claims import ClaimedRun

app = typer.Typer(help="Runs of a home: what they came to, side by side.", no_args_is_help=True)

COLUMNS = (
    *("run", "ledger", "rounds", "of", "accuracy", "floor", "accepted_attackers"),
    *("head", "configuration"),
)
CLAIMED = (
    "Accuracy and accepted attackers are what the runs say of themselves: claimed, not proven. "
    "What was decided, cmfl audit proves."
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
def list_runs(home: HomeFolder = DEFAULT_HOME, json: AsJson = False, csv: AsCsv = False) -> None:
    """List the runs of a home: rounds, accuracy and its floor, accepted attackers, head.

    The floor is the accuracy of always answering the commonest class. A run whose files cannot be
    read is named on standard error, with exit code 2, and the others are listed.
    """
    found = _names(home)
    rows, faults = [], []
    for name in found:
        try:
            rows.append(_claimed_row(Home(home).run(name)))
        except (CmflError, OSError) as error:
            rows.append(NOWHERE | {"run": name})
            faults.append(error)
    if csv:
        print_csv(COLUMNS, rows)
    elif json:
        print_json(rows)
    else:
        _print_list(home, rows)
    for fault in faults:
        complain(str(fault))
    raise typer.Exit(WRONG if faults else 0)


@app.command("show")
def show(
    name: Name,
    home: HomeFolder = DEFAULT_HOME,
    rpc_url: RpcUrl = None,
    chain_id: ChainId = None,
    json: AsJson = False,
) -> None:
    """Show what one run came to, and the settings that it was begun with.

    The head that its files claim is looked up on the chain; where that has another one, it is said
    loudly, with exit code 1.
    """
    from cli.claimed_head import head_on_chain, sentence_of
    from ledger.claims import claimed_run, recorded_settings

    paths = _run(home, name)
    claimed = claimed_run(paths)
    row, settings = _row(paths, claimed), recorded_settings(paths)
    found = head_on_chain(Where(home, name, rpc_url=rpc_url, chain_id=chain_id), claimed)
    if json:
        chain = {"outcome": found.outcome.value, "round": found.round, "head": found.head}
        print_json(row | {"chain": chain, "settings": settings})
    else:
        for key, value in row.items():
            print_line(f"{key.replace('_', ' '):18} {_told(value)}".rstrip())
        print_line(_verdict(home, row))
        if not found.contradicts:
            print_line(sentence_of(name, found))
        print_table("settings", ("setting", "value"), list(settings.items()))
    if found.contradicts:
        complain(f"WARNING: {sentence_of(name, found)}")
        raise typer.Exit(FAILED)


@app.command("compare")
def compare(names: Names, home: HomeFolder = DEFAULT_HOME, json: AsJson = False) -> None:
    """Put two runs or more side by side: what they came to, and the settings that differ."""
    from ledger.claims import recorded_settings

    if len(set(names)) < 2:
        raise ConfigurationError(f"runs compare {' '.join(names)}: name two different runs or more")
    paths = [_run(home, name) for name in names]
    rows = [_claimed_row(one) for one in paths]
    settings = [recorded_settings(one) for one in paths]
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
    if differing:
        table = [[key, *map(_set_to, found)] for key, found in differing.items()]
        print_table("settings that differ", ("setting", *names), table)
    else:
        print_line("All settings are the same.")


def _claimed_row(paths: RunPaths) -> dict[str, Any]:
    """Return a run as plain data.

    Raises:
        CmflError: one of its files is damaged.
        OSError: one of them cannot be read.
    """
    from ledger.claims import claimed_run

    return _row(paths, claimed_run(paths))


def _row(paths: RunPaths, claimed: ClaimedRun) -> dict[str, Any]:
    """Return a run as plain data; configuration and heads are 0x-hex.

    Raises:
        CmflError: one of its files is damaged.
    """
    from ledger.chain.contract.manifest import settings_digest, was_in_memory
    from ledger.claims import recorded_settings

    planned = recorded_settings(paths).get("protocol.rounds", "")
    return {
        "run": paths.name,
        "ledger": "memory" if not paths.manifest.exists() and was_in_memory(paths) else "chain",
        "rounds": claimed.rounds,
        "of": int(planned) if planned.isdecimal() else None,
        "accuracy": claimed.accuracy,
        "floor": claimed.floor,
        "accepted_attackers": claimed.accepted_attackers,
        "head": claimed.head,
        "configuration": settings_digest(paths),
    }


def _print_list(home: Path, rows: list[dict[str, Any]]) -> None:
    columns = ("run", "ledger", "rounds", "accuracy", "floor", "accepted attackers", "head")
    shown = [
        (
            *(row["run"], row["ledger"], _of(row), _told(row["accuracy"]), _told(row["floor"])),
            *(_told(row["accepted_attackers"]), shortened(row["head"])),
        )
        for row in rows
    ]
    print_table(f"runs of {home}", columns, shown)
    for row in rows:
        if _is_below(row):
            print_line(_verdict(home, row), bold=True)
    print_line(CLAIMED)


def _verdict(home: Path, row: dict[str, Any]) -> str:
    """Return in words what the last accuracy is worth."""
    if row["accuracy"] is None:
        return f"{row['run']}: no accuracy was measured"
    if _is_below(row):
        return (
            f"WARNING: {row['run']} ends below its floor: always answering the commonest class is "
            f"right more often"
        )
    audit = command_line("audit", "--home", home, "--run", row["run"])
    checked = f"; what was decided, {audit} proves" if row["ledger"] == "chain" else ""
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


def _names(home: Path) -> list[str]:
    """Return the runs of a home.

    Raises:
        ConfigurationError: there is no such home, or no run in it.
    """
    runs = Home(home).runs
    found = [path.name for path in runs.iterdir() if path.is_dir()] if runs.is_dir() else []
    names = sorted(name for name in found if RUN_NAME.fullmatch(name))
    if not names:
        raise ConfigurationError(f"there is no run in {home}: make one by cmfl run")
    return names


def _run(home: Path, name: str) -> RunPaths:
    """Return a run that is there.

    Raises:
        ConfigurationError: names the runs that are.
    """
    paths = Home(home).run(name)
    if not paths.path.is_dir():
        raise ConfigurationError(
            f"there is no run {name!r} in {home}; there are {', '.join(_names(home))}"
        )
    return paths
