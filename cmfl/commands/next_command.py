"""The next command, as another command prints it: complete and without secrets."""

from __future__ import annotations

import os
import shlex

from cmfl.commands.console import command_line, print_line
from cmfl.commands.options import URL_VARIABLE
from cmfl.where import Target

BLOBS_VARIABLE = "CMFL_BLOBS"
MAILBOX_VARIABLE = "CMFL_MAILBOX"
DATA_VARIABLE = "CMFL_DATA"

_SECRET = "which may have a key in it"  # noqa: S105 - a sentence
_USUAL = {
    URL_VARIABLE: f"the node's URL, {_SECRET}",
    BLOBS_VARIABLE: f"the place of the blobs, {_SECRET}",
    MAILBOX_VARIABLE: f"the place of the mail, {_SECRET}",
    DATA_VARIABLE: "the path of your data",
}


def print_next(introduction: str, command: str, descriptions: dict[str, str] | None = None) -> None:
    """Print a command, and the values of its variables that are not set here.

    Args:
        introduction: printed before it.
        command: for a shell.
        descriptions: of variables that differ from the usual ones.
    """
    print_line(f"{introduction}: {command}")
    for line in missing_variables(command, descriptions):
        print_line(line)


def command_on(where: Target, *words: object) -> str:
    """Return a command on the home and the node of a target, for a shell and without secrets."""
    words = (*words, "--home", where.home)
    if where.rpc_url is None:
        return command_line(*words)
    url = quoted_url(where.rpc_url)
    return f"{command_line(*words, '--chain-id', where.chain_id)} --rpc-url {url}"


def missing_variables(command: str, descriptions: dict[str, str] | None = None) -> list[str]:
    """Return lines about the variables of a command that are not set here; see `print_next`."""
    return [
        f"once {variable} holds {content}"
        for variable, content in (_USUAL | (descriptions or {})).items()
        if variable_in_shell(variable) in command and not os.environ.get(variable)
    ]


def variable_in_shell(name: str) -> str:
    """Return a variable in shell syntax."""
    return f'"${name}"'


def quoted_url(url: str) -> str:
    """Return a node's URL for a shell, or its variable if it may contain a secret."""
    from ledger.io.http import HttpServer

    try:
        shown = HttpServer(url, timeout_seconds=1).shown_url
    except ValueError:
        shown = ""  # the connection to the node reports it
    return shlex.quote(url) if url.rstrip("/") == shown else variable_in_shell(URL_VARIABLE)


def quoted_place(text: str, variable: str) -> str:
    """Return a location of blobs or mail for a shell, or `variable` if it may contain a secret."""
    from ledger.protocol.errors import BlobError
    from ledger.storage.objects import parse_locations

    try:
        shown = ",".join(place.shown for place in parse_locations("place", text))
    except BlobError:
        shown = ""
    return shlex.quote(text) if shown == text.rstrip("/") else variable_in_shell(variable)
