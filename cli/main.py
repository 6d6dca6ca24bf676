"""The command-line application and its exit codes.

0 all is well (an audit: everything was checked and is true), 1 a check failed (an audit: the record
contradicts itself), 2 the command or its input is wrong (one line says what), 3 an audit found
nothing wrong but could not check everything, 70 a fault of ours.
"""

from __future__ import annotations

import os
import sys
from typing import NoReturn

import typer
from typer.exceptions import TyperException

from cli import audit, clients, demo, deploy, doctor, rounds, run_command, serve
from cli.console import fail
from ledger.protocol.errors import CmflError

INTERRUPTED = 130

EXTRAS = {
    "torch": "clients",
    "sklearn": "clients",
    "safetensors": "clients",
    "tomli_w": "clients",
    "fastapi": "api",
    "uvicorn": "api",
}
"""The extra that brings a package which not every install has."""

app = typer.Typer(
    name="cmfl",
    help="Committee-based federated learning on a ledger that enforces every decision.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.command("run")(run_command.run)
app.command("deploy")(deploy.deploy)
app.add_typer(rounds.app, name="rounds")
app.add_typer(clients.app, name="clients")
app.command("audit")(audit.audit)
app.command("serve")(serve.serve)
app.command("doctor")(doctor.doctor)
app.command("demo")(demo.demo)


def run() -> None:
    """Run the application; the only place that turns an error into an exit code."""
    try:
        # Not Typer's own ending, which adds two lines of usage to every wrong option.
        code = app(standalone_mode=False) or 0
    except TyperException as error:
        _fail_usage(error)
    except typer.Abort:
        fail("aborted", 2)
    except CmflError as error:
        fail(str(error), 2)
    except ModuleNotFoundError as error:
        extra = EXTRAS.get((error.name or "").partition(".")[0])
        if extra is None:
            raise
        fail(f"this needs the extra [{extra}]: pip install -c constraints.txt '.[{extra}]'", 2)
    except OSError as error:
        # A full disk, a folder that may not be written: facts of the machine, not faults of ours.
        place = f"{error.filename}: " if error.filename else ""
        fail(f"{place}{error.strerror or error}", 2)
    except Exception as error:
        if os.environ.get("CMFL_DEBUG"):
            raise
        fail(f"a fault of ours, {type(error).__name__}: {error} (CMFL_DEBUG=1 shows where)", 70)
    if code == INTERRUPTED:  # what Typer makes of Ctrl-C, without a word
        fail("interrupted; a run is taken up again with --resume", INTERRUPTED)
    sys.exit(code)


def _fail_usage(error: TyperException) -> NoReturn:
    """End with what is wrong with the command line; a group without a command shows its help."""
    message = str(getattr(error, "message", error))
    if message.lstrip().startswith("Usage:"):
        sys.stderr.write(f"{message}\n")
        sys.exit(2)
    shown = getattr(error, "format_message", lambda: message)()
    fail(f"{shown} (see --help)", 2)


if __name__ == "__main__":
    run()
