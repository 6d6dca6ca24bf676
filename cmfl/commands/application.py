"""The command-line application, which maps each error to an exit code of `cmfl.commands`.

A sentence in the annotation of a command's parameter is the help of its option. A `bool` is a flag
without a --no- form. A group of options is a frozen dataclass whose fields are annotated as
parameters are. A command names it as one parameter, and `Commands` shows its fields to Typer as
options of their own:

    @app.command("show")
    def show(source: HistoryOptions, last: Annotated[bool, "Only the last round."] = False) -> None:
"""

from __future__ import annotations

import dataclasses
import inspect
import os
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from copy import copy
from functools import cache, wraps
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any, get_args, get_origin, get_type_hints

import typer
from typer import Option
from typer.core import TyperGroup

from cmfl.commands import FAULT, INCOMPLETE, INTERRUPTED, WRONG, InterruptedCommand, console
from cmfl.commands.console import VERBOSITY, Verbosity, complain, shown_as_lines
from cmfl.commands.process import (
    interrupted_code,
    limit_in_words,
    others_on_standard_error,
    print_versions,
    too_little_memory,
    unprinted,
)
from ledger.chain.ports import IncompleteLogsError
from ledger.io.extras import missing_extra
from ledger.protocol.errors import CmflError

try:
    from typer.exceptions import TyperException as UsageError
except ModuleNotFoundError:  # an older Typer stands on the package click
    from click import ClickException as UsageError  # type: ignore[assignment]

if TYPE_CHECKING:
    from clients.worker.worker import WorkerBehaviour


class Commands(typer.Typer):
    """Commands whose parameters may be groups of options."""

    def __init__(self, **how: Any) -> None:
        super().__init__(no_args_is_help=True, **how)

    def command(self, name: str | None = None, **how: Any) -> Callable[..., Any]:
        """Register a command, with the fields of its groups in place of the groups."""
        register = super().command(name, **how)
        return lambda command: register(_expanded(command))


def _expanded(command: Callable[..., None]) -> Callable[..., None]:
    """Return the command with options only, -v and -q; standard output has its results alone."""
    hints = get_type_hints(command, include_extras=True)
    parameters = inspect.signature(command).parameters.values()
    groups = {p.name: hints[p.name] for p in parameters if dataclasses.is_dataclass(hints[p.name])}

    @wraps(command)
    @others_on_standard_error()
    def expanded(**values: Any) -> None:
        for name, group in groups.items():
            fields = [field.name for field in dataclasses.fields(group)]
            values[name] = group(**{field: values.pop(field) for field in fields})
        command(**{name: value for name, value in values.items() if name not in VERBOSITY})

    options = [
        option
        for p in parameters
        for option in _options_of(p.name, hints[p.name], default=p.default)
    ]
    names = [option.name for option in options]
    if len(set(names)) < len(names):
        raise TypeError(f"{command.__name__}: two of the options {names} have one name")
    for name, kind in VERBOSITY.items():
        options += _options_of(name, kind, default=False)
    expanded.__signature__ = inspect.Signature(options)  # type: ignore[attr-defined]
    expanded.__annotations__ = {option.name: option.annotation for option in options}
    return expanded


def _options_of(name: str, kind: Any, *, default: Any) -> Iterator[inspect.Parameter]:
    options = [(name, kind, default)]
    if dataclasses.is_dataclass(kind):
        hints = get_type_hints(kind, include_extras=True)
        options = [(each.name, hints[each.name], each.default) for each in dataclasses.fields(kind)]
    for option, annotation, value in options:
        yield inspect.Parameter(
            option,
            inspect.Parameter.KEYWORD_ONLY,
            default=inspect.Parameter.empty if value is dataclasses.MISSING else value,
            annotation=_with_help(option, annotation),
        )


def _with_help(name: str, kind: Any) -> Any:
    """Return an annotation with a sentence turned into the help of an option or argument."""
    plain, *about = get_args(kind) if get_origin(kind) is Annotated else (kind,)
    sentences = [each for each in about if isinstance(each, str)]
    if not sentences:
        return kind
    flag = (f"--{name.replace('_', '-')}",) if plain is bool else ()
    shown = next((copy(each) for each in about if not isinstance(each, str)), Option(*flag))
    shown.help = sentences[0]
    return Annotated[plain, shown]


class PanelledGroup(TyperGroup):
    """A group whose help lists its commands by panel, as plain text."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
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


_COMMANDS = """
Simulate runs, compare them, export their models
  demo       demo       Run, audit and compare on real digits, then serve the history.
  run        run        Run simulated rounds, or resume an interrupted run.
  settings   run        Show settings with their defaults, allowed and current values.
  track      run        Log a recorded run to MLflow, TensorBoard or W&B.
  runs       runs       List or show the runs of a home or a service.
  experiment experiment Run, plot, report and audit experiments.
  data       data       Check the files of a data set, or download them.
  model      data       Export, evaluate or hash models as files.
Audit: read the history and verify it
  audit      audit      Verify every round from the chain and the blobs.
  coverage   audit      Show the updates whose training auditors have repeated.
  evidence   rounds     List banned, refused and left-out clients with reasons.
  verify     verify     Verify a client's part, a round, training or provenance.
  rounds     rounds     List, show or explain the recorded rounds.
  clients    rounds     List or show the registered clients and their rounds.
  export     export     Export a proof, a round, provenance or a table.
  contract   chain      Print the contract's interface, or verify its code.
Deploy a federation, take part in one
  register   registry   Write your signed registry entry: address, samples, settings.
  deploy     deploy     Deploy a run's contract.
  join       worker     Check everything that you need to take part in a run.
  worker     worker     Take part in a run with one or more clients.
  leave      worker     Stop a worker after its current round.
  network    network    Run and audit a federation of processes on this machine.
  keys       registry   Create a client's key, or show its address.
  registry   registry   Combine the owners' entries into a registry, or show it.
  chain      chain      Serve the home's chain to other programs; fund accounts.
  flower     data       Create a Flower project whose rounds a committee decides.
Operate services and stores
  serve      serve      Serve the round history over REST, with a dashboard.
  watch      rounds     Follow the open round of a live federation.
  doctor     doctor     Check the installation, the home and the node.
  blobs      serve      List, remove, copy or serve published blobs.
  log        witness    Publish or check a run's heads as a transparency log.
  witness    witness    Cosign the checkpoints of append-only logs.
"""
"""Panels and their commands: name, module, and a sentence of help (which may be shortened).

The module has a command under its own name, and a group of commands as NAME_app.
"""


def _listed() -> Iterator[tuple[str, str, str, str]]:
    panel = ""
    for line in _COMMANDS.strip().splitlines():
        if line.startswith("  "):
            name, module, text = line.split(maxsplit=2)
            yield panel, name, module, text
        else:
            panel = line


def application(only: str | None = None, *, is_listed: bool = False) -> typer.Typer:
    """Return the application with all commands, one of them, or all as a list without modules."""
    made = Commands(
        name="cmfl",
        cls=PanelledGroup,
        help="Committee-based federated learning on a ledger that enforces every decision.",
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    made.callback()(cmfl)
    for panel, name, module, text in _listed():
        if only not in {None, name}:
            continue
        if is_listed:
            how = {"help": text, "rich_help_panel": panel}
            typer.Typer.command(made, name, **how)(lambda: None)  # type: ignore[arg-type]
            continue
        commands = import_module(f"cmfl.commands.{module}")
        if hasattr(commands, f"{name}_app"):
            group = getattr(commands, f"{name}_app")
            made.add_typer(group, name=name, help=text, rich_help_panel=panel)
        else:
            made.command(name, rich_help_panel=panel)(getattr(commands, name))
    return made


def _print_version(value: bool) -> None:
    if value:
        print_versions()
        raise typer.Exit


def cmfl(
    version: Annotated[
        bool,
        Option(
            "--version",
            help="Print the versions of package, protocol and contract compiler, and exit.",
            callback=_print_version,
            is_eager=True,
        ),
    ] = False,
) -> None:
    """Committee-based federated learning on a ledger that enforces every decision."""


def main(behaviour: WorkerBehaviour | None = None) -> int:
    """Run one command and return its exit code, which a verdict keeps also where nothing prints."""
    with console.fresh(), shown_as_lines():
        return _run_command(behaviour)


@cache
def command_for(first: str = "") -> Callable[..., int | None]:
    """Return the click command for a first word: to import all modules takes long."""
    is_named = any(first == name for _, name, _, _ in _listed())
    is_listed = not is_named and "_CMFL_COMPLETE" not in os.environ
    return typer.main.get_command(application(first if is_named else None, is_listed=is_listed))


def _run_command(behaviour: WorkerBehaviour | None) -> int:
    started = time.monotonic()
    try:
        # Typer's standalone mode would add two lines of usage to every wrong option.
        verdict = command_for(*sys.argv[1:2])(standalone_mode=False, obj=behaviour)
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
        complain(f"standard output: {lost.strerror}; some output is missing")
        return WRONG if verdict is None else verdict
    return verdict or 0


def _explained(error: Exception) -> tuple[int, str]:
    """Return the exit code and the message of an error; the only place of this mapping."""
    code, message = WRONG, str(error)
    # An ImportError for lack of memory is most likely of torch.
    lacks_memory = isinstance(error, MemoryError) or "failed to map segment" in message
    match error:
        case IncompleteLogsError(node=str()):
            code = INCOMPLETE  # another node may have them; from a file they are lost
        case _ if isinstance(error, CmflError) or message.startswith("Symlink loop"):  # resolve()
            pass
        case InterruptedCommand():
            code = interrupted_code()
        case UsageError():
            message = str(getattr(error, "message", error))
            if message.lstrip().startswith("Usage:"):  # a group without a command prints its help
                sys.stderr.write(f"{message}\n")
                return WRONG, ""
            message = f"{getattr(error, 'format_message', lambda: message)()} (see --help)"
        case typer.Abort():
            message = "aborted"
        case ModuleNotFoundError() if (sentence := missing_extra(error)) is not None:
            message = sentence
        case MemoryError() | ImportError() if lacks_memory:
            message = too_little_memory(error)
        case OSError():
            # A full disk or a missing permission: a fault of the machine, not of this program.
            in_the_way = isinstance(error, FileExistsError)
            told = "is a file, but must be a folder" if in_the_way else error.strerror
            message = f"{f'{error.filename}: ' if error.filename else ''}{told or error}"
        case _:
            fault = f"internal error: {type(error).__name__}: {error}"
            limit = f"; {limit_in_words()}" if limit_in_words() else ""
            code, message = FAULT, f"{fault} (CMFL_DEBUG=1 shows the traceback{limit})"
    return code, message
