"""`cmfl join`: whether everything is there to take part in a run, and the command that does."""

from __future__ import annotations

import secrets
import shlex
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cli.codes import FAILED
from cli.console import AsJson, command_line, print_json, print_line, print_table
from cli.deploy import quoted
from cli.options import KEY_VARIABLE, URL_VARIABLE, Settings
from cli.sender import environment_key, keystore_key

if TYPE_CHECKING:
    from clients.joining.readiness import Checked
    from ledger.chain.rpc.sending_node import SendingNode
    from ledger.protocol.signing import KeySigner

PROBE_BYTES = 64
BLOBS_VARIABLE = "CMFL_BLOBS"
MAILBOX_VARIABLE = "CMFL_MAILBOX"
DEFAULT_WORKER = Path("cmfl-worker")

WorkerDir = Annotated[
    Path,
    typer.Option(
        "--folder",
        help="Of the worker: its journal, own updates and status.",
        envvar="CMFL_WORKER_FOLDER",
    ),
]


def join(
    rpc_url: Annotated[
        str, typer.Option("--rpc-url", help="A JSON-RPC node.", envvar=URL_VARIABLE)
    ],
    chain_id: Annotated[
        int,
        typer.Option(
            "--chain-id", min=1, max=2**64 - 1, help="That it must have.", envvar="CMFL_CHAIN_ID"
        ),
    ],
    contract: Annotated[
        str,
        typer.Option("--contract", help="Address of the run's contract.", envvar="CMFL_CONTRACT"),
    ],
    blobs: Annotated[
        str,
        typer.Option(
            "--blobs", help="Where everybody publishes: a folder or a URL.", envvar=BLOBS_VARIABLE
        ),
    ],
    mailbox: Annotated[
        str | None,
        typer.Option(
            "--mailbox",
            help="Where envelopes go; where the blobs are if not given.",
            envvar=MAILBOX_VARIABLE,
        ),
    ] = None,
    keystore: Annotated[
        Path | None,
        typer.Option(
            "--keystore",
            help=f"Your encrypted key, else {KEY_VARIABLE} holds it.",
            envvar="CMFL_KEYSTORE",
        ),
    ] = None,
    password_file: Annotated[
        Path | None, typer.Option("--password-file", help="Its password; else asked for.")
    ] = None,
    data: Annotated[
        Path | None, typer.Option("--data", help="Where the data, or your own samples, lie here.")
    ] = None,
    folder: WorkerDir = DEFAULT_WORKER,
    genesis: Annotated[
        str | None,
        typer.Option("--genesis", help="Hash of block 0, if you were told it: 0x and 64 digits."),
    ] = None,
    confirmations: Annotated[
        int | None,
        typer.Option(
            min=0, max=1000, help="As for the worker; what the chain calls final if not given."
        ),
    ] = None,
    setting: Settings = None,
    json: AsJson = False,
) -> None:
    """Check all that you need to take part, say what is missing, and print how to begin.

    Looks at chain, contract, run document, clock, finality, model, key, funds, blobs, mailbox,
    data and folder. Nothing is sent to the chain. Exit code 1 if something is missing.
    """
    from clients.joining.readiness import Asked, Readiness, State
    from ledger.protocol.signing import KeySigner

    expected, mailbox = _genesis(genesis), mailbox or blobs

    def open_key() -> KeySigner:
        if keystore is None:
            return KeySigner(environment_key())
        return KeySigner(keystore_key(keystore, password_file))

    def open_node() -> SendingNode:
        from ledger.chain.rpc.sending_node import SendingNode

        return SendingNode(rpc_url, chain_id=chain_id, genesis_hash=expected)

    asked = Asked(contract, blobs, mailbox, folder, data, tuple(setting or ()), confirmations)
    probe = secrets.token_bytes(PROBE_BYTES)
    ready = Readiness(asked, open_node, open_key, wall=time.time(), probe=probe)
    found = list(ready.checks())
    is_ready = all(one.state in {State.OK, State.WARNING} for one in found)
    words: list[object] = ["worker", "--chain-id", chain_id, "--contract", contract]
    for option, value in (
        ("--keystore", keystore),
        ("--password-file", password_file),
        ("--data", data),
        ("--folder", folder),
        ("--confirmations", confirmations),
        *(("--set", one) for one in setting or ()),
    ):
        words += [] if value is None else [option, value]
    places = (
        f"--blobs {_place(blobs, BLOBS_VARIABLE)} --mailbox {_place(mailbox, MAILBOX_VARIABLE)}"
    )
    command = f"{command_line(*words)} {places} --rpc-url {quoted(rpc_url)}"
    if json:
        checks = [asdict(one) for one in found]
        print_json(
            {"ready": is_ready, "client": ready.client, "checks": checks, "command": command}
        )
    else:
        _print(found)
    if is_ready and not json:
        print_line(f"begin with: {command}")
    raise typer.Exit(0 if is_ready else FAILED)


def _print(found: list[Checked]) -> None:
    rows = [(one.check, str(one.state), one.found) for one in found]
    print_table("what it takes to join", ("check", "state", "found"), rows)


def _place(text: str, variable: str) -> str:
    """Return a place of blobs or mail for a shell, or the variable where it may hold a secret."""
    from ledger.blobs.places import places_of
    from ledger.protocol.errors import BlobError

    try:
        shown = ",".join(place.shown for place in places_of("place", text))
    except BlobError:
        shown = ""
    return shlex.quote(text) if shown == text.rstrip("/") else f'"${variable}"'


def _genesis(text: str | None) -> bytes | None:
    """Return the hash of block 0 that is expected.

    Raises:
        ConfigurationError: it is none.
    """
    from ledger.protocol.errors import ConfigurationError

    if text is None:
        return None
    try:
        found = bytes.fromhex(text.removeprefix("0x"))
    except ValueError:
        found = b""
    if len(found) != 32:
        raise ConfigurationError(f"--genesis {text[:80]}: must be 0x and 64 hex digits")
    return found
