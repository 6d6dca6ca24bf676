"""The command-line application and its exit codes.

0 success (an audit: everything was checked and is true), 1 a check failed (an audit: the record
contradicts itself), 2 the command or its input is wrong, or the machine has too little memory (one
line says what), 3 an audit found nothing wrong but could not check everything, 70 an internal
error, 128 and the number of the signal interrupted (130 Ctrl-C, 143 TERM, 129 HUP).
"""

from __future__ import annotations

import os
import sys
import time
import traceback
from collections.abc import Callable
from copy import copy
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from cmfl.commands import (
    audit,
    blobs,
    chain,
    console,
    data,
    deploy,
    doctor,
    experiment,
    export,
    model,
    network,
    registry,
    rounds,
    run,
    runs,
    serve,
    verify,
    witness,
    worker,
)
from cmfl.commands import audit as coverage
from cmfl.commands import chain as contract
from cmfl.commands import data as flower
from cmfl.commands import registry as keys
from cmfl.commands import rounds as clients
from cmfl.commands import rounds as watch
from cmfl.commands import witness as transparency_log
from cmfl.commands import worker as join
from cmfl.commands import worker as leave
from cmfl.commands.console import Verbosity, complain, print_line
from cmfl.commands.demo import demo
from cmfl.commands.exit_codes import FAULT, INCOMPLETE, INTERRUPTED, WRONG, InterruptedCommand
from cmfl.commands.interrupts import interrupted_code
from cmfl.commands.limits import limit_in_words, too_little_memory
from cmfl.commands.streams import unprinted
from cmfl.commands.witness import shown_as_lines
from ledger.chain.ports import IncompleteLogsError
from ledger.io.extras import missing_extra
from ledger.protocol.errors import CmflError

try:
    from typer.exceptions import TyperException as UsageError
except ModuleNotFoundError:  # an older Typer stands on the package click
    from click import ClickException as UsageError  # type: ignore[assignment]

if TYPE_CHECKING:
    from clients.worker.worker import WorkerBehaviour


class PanelledGroup(TyperGroup):
    """A group whose help lists its commands by panel, as plain text."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write one section for each panel, in the order of the commands."""
        panels: dict[str, list[tuple[str, Any]]] = {}
        for name in self.list_commands(ctx):
            command: Any = self.get_command(ctx, name)
            if not command.hidden:
                panels.setdefault(command.rich_help_panel, []).append((name, command))
        widest = max(len(name) for rows in panels.values() for name, _ in rows)
        limit = formatter.width - 6 - widest
        for panel, rows in panels.items():
            with formatter.section(panel):
                formatter.write_dl(
                    [(f"{name:{widest}}", each.get_short_help_str(limit)) for name, each in rows]
                )


app = typer.Typer(
    name="cmfl",
    cls=PanelledGroup,
    help="Committee-based federated learning on a ledger that enforces every decision.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
_PANELS: dict[str, tuple[tuple[str, Any], ...]] = {
    "Simulate runs, compare them, and take their models": (
        *(("demo", demo), ("run", run.run), ("runs", runs.app)),
        *(("experiment", experiment.app), ("settings", run.settings), ("track", run.track)),
        *(("data", data.data_app), ("model", model.app)),
    ),
    "Audit: read the history, and verify it": (
        *(("audit", audit.audit), ("coverage", coverage.coverage), ("verify", verify.app)),
        *(("rounds", rounds.rounds_app), ("clients", clients.clients_app), ("export", export.app)),
        ("contract", contract.contract_app),
    ),
    "Deploy a federation, and take part in one": (
        *(
            ("keys", keys.keys_app),
            ("register", registry.register),
            ("registry", registry.registry_app),
        ),
        *(("deploy", deploy.deploy), ("chain", chain.chain_app), ("join", join.join)),
        *(("worker", worker.worker), ("leave", leave.leave), ("network", network.network)),
        ("flower", flower.flower_app),
    ),
    "Operate services and stores": (
        *(("serve", serve.serve), ("watch", watch.watch), ("doctor", doctor.doctor)),
        *(
            ("blobs", blobs.app),
            ("log", transparency_log.log_app),
            ("witness", witness.witness_app),
        ),
    ),
}
for _panel, _commands in _PANELS.items():
    for _name, _command in _commands:
        if isinstance(_command, typer.Typer):
            app.add_typer(_command, name=_name, rich_help_panel=_panel)
        else:
            app.command(_name, rich_help_panel=_panel)(_command)


def _print_version(value: bool) -> None:
    """Print the versions that two installations need in common, and exit."""
    if not value:
        return
    from importlib.metadata import version
    from importlib.resources import files

    from ledger.io.parsing import parse_json
    from ledger.protocol.types import PROTOCOL_VERSION

    artefact = files("contracts") / "artifacts" / "committee_ledger.json"
    print_line(f"cmfl {version('cmfl-ledger')}")
    print_line(f"protocol {PROTOCOL_VERSION}")
    print_line(f"contract compiler {parse_json(artefact.read_bytes())['compiler']}")
    raise typer.Exit


@app.callback()
def cmfl(
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            help="Print the versions of package, protocol and contract compiler.",
            callback=_print_version,
            is_eager=True,
        ),
    ] = False,
) -> None:
    """Committee-based federated learning on a ledger that enforces every decision."""


def main(behaviour: WorkerBehaviour | None = None) -> int:
    """Run one command and return its exit code.

    A verdict keeps its exit code even if it could not be printed.

    Args:
        behaviour: of the clients of `cmfl worker`; None for honest ones.
    """
    with console.fresh(), shown_as_lines():
        return _run_command(behaviour)


@cache
def _command_line(first: str = "") -> Callable[..., int | None]:
    """Return the click command for a command line that begins with this word.

    To make all commands takes a tenth of a second: if the word names one, only that one is made.
    """
    chosen = copy(app)
    chosen.registered_commands = [each for each in app.registered_commands if each.name == first]
    chosen.registered_groups = [each for each in app.registered_groups if each.name == first]
    is_named = bool(chosen.registered_commands or chosen.registered_groups)
    if first and not is_named:
        return _command_line()
    command = typer.main.get_command(chosen if is_named else app)
    console.add_to_all(command)
    return command


def _run_command(behaviour: WorkerBehaviour | None) -> int:
    started = time.monotonic()
    try:
        # Typer's standalone mode would add two lines of usage to every wrong option.
        verdict = _command_line(*sys.argv[1:2])(standalone_mode=False, obj=behaviour)
    except Exception as error:  # noqa: BLE001 - each has an exit code and a message
        code, message = _explained(error)
        is_debugging = os.environ.get("CMFL_DEBUG") or console.chosen() is Verbosity.VERBOSE
        if code == FAULT and is_debugging:
            traceback.print_exception(error)  # not raised: Python would end with 1
        if message:
            complain(message)
        return code
    if verdict == INTERRUPTED:  # Typer's code for Ctrl-C, without a message
        complain("interrupted")
        return interrupted_code()
    if console.chosen() is Verbosity.VERBOSE:
        complain(f"took {time.monotonic() - started:.1f} s")
    lost = unprinted()
    if lost is not None:
        complain(f"standard output: {lost.strerror}: not everything was printed")
        return WRONG if verdict is None else verdict
    return verdict or 0


def _explained(error: Exception) -> tuple[int, str]:
    """Return the exit code and the message of an error; the only place of this mapping."""
    code, message = WRONG, str(error)
    match error:
        case IncompleteLogsError(node=str()):
            code = INCOMPLETE  # another node may have them; from a file they are lost
        case CmflError():
            pass
        case InterruptedCommand():
            code = interrupted_code()
        case UsageError():
            message = _usage_message(error)
        case typer.Abort():
            message = "aborted"
        case ModuleNotFoundError() if (sentence := missing_extra(error)) is not None:
            message = sentence
        # An ImportError for lack of memory, most likely of torch.
        case MemoryError():
            message = too_little_memory(error)
        case ImportError() if "failed to map segment" in str(error):
            message = too_little_memory(error)
        case OSError():
            # A full disk or a missing permission: a fault of the machine, not of this program.
            in_the_way = isinstance(error, FileExistsError)
            told = "there is a file where a folder belongs" if in_the_way else error.strerror
            message = f"{f'{error.filename}: ' if error.filename else ''}{told or error}"
        case _:
            fault = f"a fault of ours, {type(error).__name__}: {error}"
            limit = f"; {limit_in_words()}" if limit_in_words() else ""
            code, message = FAULT, f"{fault} (CMFL_DEBUG=1 shows where{limit})"
    return code, message


def _usage_message(error: Exception) -> str:
    """Return what is wrong with the command line; a group without a command prints its help."""
    message = str(getattr(error, "message", error))
    if message.lstrip().startswith("Usage:"):
        sys.stderr.write(f"{message}\n")
        return ""
    shown = getattr(error, "format_message", lambda: message)()
    return f"{shown} (see --help)"
