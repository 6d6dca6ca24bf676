"""The command to go on with, as another command prints it: whole, and with nothing secret in it."""

from __future__ import annotations

import os
import shlex

from cli.console import print_line
from cli.options import URL_VARIABLE

BLOBS_VARIABLE = "CMFL_BLOBS"
MAILBOX_VARIABLE = "CMFL_MAILBOX"
DATA_VARIABLE = "CMFL_DATA"

_SECRET = "which may have a key in it"  # noqa: S105 - a sentence
_HELD = {
    URL_VARIABLE: f"the node's URL, {_SECRET}",
    BLOBS_VARIABLE: f"the place of the blobs, {_SECRET}",
    MAILBOX_VARIABLE: f"the place of the mail, {_SECRET}",
    DATA_VARIABLE: "the path of your data",
}


def print_next(introduction: str, command: str, held: dict[str, str] | None = None) -> None:
    """Print a command, and what has to be in its variables that are not set here.

    Args:
        introduction: stands before it.
        command: for a shell.
        held: what a variable holds, where it is not what it usually holds.
    """
    print_line(f"{introduction}: {command}")
    for sentence in missing_variables(command, held):
        print_line(sentence)


def missing_variables(command: str, held: dict[str, str] | None = None) -> list[str]:
    """Return what has to be in the variables of a command that are not set here.

    Args:
        command: for a shell.
        held: what a variable holds, where it is not what it usually holds.
    """
    return [
        f"once {variable} holds {what}"
        for variable, what in (_HELD | (held or {})).items()
        if variable_in_shell(variable) in command and not os.environ.get(variable)
    ]


def variable_in_shell(name: str) -> str:
    """Return a variable as a shell takes it.

    Args:
        name: of the variable.
    """
    return f'"${name}"'


def quoted_url(url: str) -> str:
    """Return a node's URL for a shell, or the variable where it may hold a secret.

    Args:
        url: of the node.
    """
    from ledger.io.http import HttpServer

    try:
        shown = HttpServer(url, timeout_seconds=1).shown_url
    except ValueError:
        shown = ""  # whoever speaks to the node has refused it, with the reason
    return shlex.quote(url) if url.rstrip("/") == shown else variable_in_shell(URL_VARIABLE)


def quoted_place(text: str, variable: str) -> str:
    """Return a place of blobs or mail for a shell, or the variable where it may hold a secret.

    Args:
        text: the place.
        variable: that stands for it.
    """
    from ledger.protocol.errors import BlobError
    from ledger.storage.locations import parse_locations

    try:
        shown = ",".join(place.shown for place in parse_locations("place", text))
    except BlobError:
        shown = ""
    return shlex.quote(text) if shown == text.rstrip("/") else variable_in_shell(variable)
