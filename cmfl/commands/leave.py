"""`cmfl leave`: the worker of a folder ends after its round."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from cmfl.commands.console import AsJson, complain, print_json, print_line
from cmfl.commands.exit_codes import InterruptedCommand
from cmfl.commands.participant_options import DEFAULT_WORKER, WorkerFolderPath
from ledger.protocol.errors import ConfigurationError

if TYPE_CHECKING:
    from clients.worker.status import WorkerFolder

LOOK_SECONDS = 0.2


def leave(
    folder: WorkerFolderPath = DEFAULT_WORKER,
    no_wait: Annotated[
        bool, typer.Option("--no-wait", help="Ask it, and do not wait until it has ended.")
    ] = False,
    json: AsJson = False,
) -> None:
    """Ask a worker to finish its round and end; its clients stay registered.

    A client that is drawn and absent is late in that round, no more. To take part again, start the
    worker on the same folder. A worker that is killed meanwhile has not been asked any more.
    """
    from clients.worker.status import WorkerFolder
    from ledger.io.home import DISK

    worker = WorkerFolder(folder)
    if not worker.is_held():
        raise ConfigurationError(f"--folder {folder}: no worker runs on it")
    round_number = _round_of(worker)
    DISK.write_whole(worker.leave, b"")
    if not json:
        which = "its round" if round_number is None else f"round {round_number}"
        complain(f"{folder}: the worker ends after {which}")
    has_ended = False
    try:
        while not no_wait and not (has_ended := not worker.is_held()):
            time.sleep(LOOK_SECONDS)
    except KeyboardInterrupt:
        raise InterruptedCommand("interrupted: the worker ends all the same") from None
    if has_ended and worker.leave.exists():
        complain(
            f"{folder}: the worker was killed before it could leave: once it is restarted, ask it "
            f"again"
        )
    if json:
        print_json({"round": round_number, "has_ended": has_ended})
    elif has_ended:
        last = _round_of(worker)
        print_line(f"{folder}: ended, with round {last} open" if last else f"{folder}: ended")


def _round_of(worker: WorkerFolder) -> int | None:
    """Return the round in which the worker says it is; None if it has not said yet."""
    from cmfl.commands.worker import status_of

    try:
        number = status_of(worker)[0].get("round")
    except ConfigurationError:
        return None
    return number if type(number) is int else None
