"""`cmfl join`: whether everything is there to take part in a run, and the command that does."""

from __future__ import annotations

import secrets
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cli.console import AsJson, command_line, print_json, print_table
from cli.exit_codes import FAILED
from cli.next_command import (
    BLOBS_VARIABLE,
    MAILBOX_VARIABLE,
    print_next,
    quoted_place,
    quoted_url,
)
from cli.options import (
    KEY_VARIABLE,
    URL_VARIABLE,
    AllowPredictableSeeds,
    Settings,
    contract_address,
)
from cli.sender import private_keys

if TYPE_CHECKING:
    from clients.onboarding.preflight import CheckResult
    from ledger.chain.rpc.sending_node import SendingNode
    from ledger.protocol.signing import KeySigner

PROBE_BYTES = 64
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
        typer.Option(
            "--contract",
            help="Address of the run's contract.",
            envvar="CMFL_CONTRACT",
            callback=contract_address,
        ),
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
        list[Path] | None,
        typer.Option(
            "--keystore",
            help=f"Your encrypted key, once for each client; else {KEY_VARIABLE} holds one.",
            envvar="CMFL_KEYSTORE",
        ),
    ] = None,
    password_file: Annotated[
        Path | None,
        typer.Option("--password-file", help="Password of all keystores; else asked for."),
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
    allow_predictable_seeds: AllowPredictableSeeds = False,
    setting: Settings = None,
    json: AsJson = False,
) -> None:
    """Check all that you need to take part, say what is missing, and print how to begin.

    Looks at chain, contract, run document, clock, finality, model, key, funds, blobs, mailbox,
    data and folder. Nothing is sent to the chain. Exit code 1 if something is missing.
    """
    from clients.onboarding.preflight import CheckState, PreflightChecks, PreflightTarget
    from clients.onboarding.seed_policy import ALLOW_PREDICTABLE
    from ledger.protocol.signing import KeySigner

    expected, mailbox = _genesis(genesis), mailbox or blobs

    def open_keys() -> list[KeySigner]:
        return [KeySigner(key) for key in private_keys(keystore or [], password_file)]

    def open_node() -> SendingNode:
        from ledger.chain.rpc.sending_node import SendingNode

        return SendingNode(rpc_url, chain_id=chain_id, genesis_hash=expected)

    asked = PreflightTarget(
        contract,
        blobs,
        mailbox,
        folder,
        data,
        tuple(setting or ()),
        confirmations,
        allow_predictable_seeds,
    )
    probe = secrets.token_bytes(PROBE_BYTES)
    ready = PreflightChecks(asked, open_node, open_keys, wall=time.time(), probe=probe)
    found = list(ready.checks())
    is_ready = all(one.state in {CheckState.OK, CheckState.WARNING} for one in found)
    words: list[object] = ["worker", "--chain-id", chain_id, "--contract", contract]
    for option, value in (
        *(("--keystore", path) for path in keystore or ()),
        ("--password-file", password_file),
        ("--data", data),
        ("--folder", folder),
        ("--confirmations", confirmations),
        *(("--set", one) for one in setting or ()),
    ):
        words += [] if value is None else [option, value]
    words += [ALLOW_PREDICTABLE] if allow_predictable_seeds else []
    places = (
        f"--blobs {quoted_place(blobs, BLOBS_VARIABLE)} "
        f"--mailbox {quoted_place(mailbox, MAILBOX_VARIABLE)}"
    )
    command = f"{command_line(*words)} {places} --rpc-url {quoted_url(rpc_url)}"
    if json:
        clients, checks = ready.clients, [asdict(one) for one in found]
        about = {"ready": is_ready, "client": clients[0] if clients else None, "clients": clients}
        print_json(about | {"checks": checks, "command": command})
    else:
        _print(found)
    if is_ready and not json:
        print_next("begin with", command)
    raise typer.Exit(0 if is_ready else FAILED)


def _print(found: list[CheckResult]) -> None:
    rows = [(one.check, str(one.state), one.found) for one in found]
    print_table("what it takes to join", ("check", "state", "found"), rows)


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
