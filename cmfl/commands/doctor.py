"""`cmfl doctor`: what is installed, what works, and what a home and its node look like."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from cmfl.commands.checks.check import run_checks
from cmfl.commands.checks.home import home_checks
from cmfl.commands.checks.machine import machine_checks
from cmfl.commands.checks.node import node_checks
from cmfl.commands.checks.training import training_checks
from cmfl.commands.console import AsJson, print_json, print_line
from cmfl.commands.exit_codes import FAILED
from cmfl.commands.option_groups import expand_groups
from cmfl.commands.options import DEFAULT_HOME, HomeFolder
from cmfl.commands.sender import only_keystore
from cmfl.commands.source_options import NodeOptions


@expand_groups
def doctor(
    home: HomeFolder = DEFAULT_HOME,
    *,
    node: NodeOptions,
    keystore: Annotated[
        list[Path] | None, typer.Option(help="Encrypted key to look at.", envvar="CMFL_KEYSTORE")
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(min=1, max=65535, help="Of the REST service, which must be free; else 8000."),
    ] = None,
    deep: Annotated[
        bool,
        typer.Option("--deep", help="Run every block again and hash every blob; takes its time."),
    ] = False,
    preset: Annotated[
        str | None, typer.Option(help="Say how clients of this preset would train.")
    ] = None,
    config: Annotated[Path | None, typer.Option(help="The same of a TOML file.")] = None,
    setting: Annotated[
        list[str] | None, typer.Option("--set", help="section.key=value, over preset or file.")
    ] = None,
    json: AsJson = False,
) -> None:
    """Check installation, home and node; exit 1 if something is wrong.

    No password is asked for. With --preset or --config, also say which path training would take,
    and how each layer would be computed; the data are loaded for it.
    """
    where = node.chain_of(home)
    rows = list(
        run_checks(
            [
                *machine_checks(where.home, port),
                *node_checks(where, only_keystore(keystore) if keystore else None),
                *home_checks(where, deep=deep),
                *training_checks(preset, config, tuple(setting or ())),
            ]
        )
    )
    if json:
        print_json([asdict(row) for row in rows])
    else:
        for row in rows:
            print_line(f"{'ok  ' if row.ok else 'FAIL'} {row.check:18} {row.found}")
    raise typer.Exit(0 if all(row.ok for row in rows) else FAILED)
