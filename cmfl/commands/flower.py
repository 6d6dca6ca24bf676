"""`cmfl flower`: projects of Flower in whose rounds a committee decides."""

from __future__ import annotations

from pathlib import Path
from shlex import quote
from typing import Annotated

import typer

from cmfl.commands.configuration_options import ConfigurationOptions
from cmfl.commands.console import print_line
from cmfl.commands.option_groups import expand_groups

app = typer.Typer(
    help="Projects of Flower in whose rounds a committee decides.", no_args_is_help=True
)


@app.callback()
def flower() -> None:
    """Projects of Flower in whose rounds a committee decides."""


@app.command("new")
@expand_groups
def new(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder of the project.")],
    options: ConfigurationOptions,
) -> None:
    """Write a project that flwr run runs: a ServerApp, a ClientApp and the run's settings.

    SuperNodes train; the ServerApp's process has all clients' keys, and the home of the run.
    """
    from cmfl.flower_project import write_project

    configuration = options.load()
    write_project(folder, configuration)
    clients = configuration.protocol.clients
    print_line(f"{folder}: a project of Flower with {clients} clients")
    print_line(
        f"run it with: FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION=1 FLWR_TELEMETRY_ENABLED=0 "
        f"flwr run {quote(str(folder))} --stream --federation-config num-supernodes={clients}"
    )
