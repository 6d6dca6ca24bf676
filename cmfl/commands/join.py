"""`cmfl join`: whether everything is there to take part in a run, and the command that does."""

from __future__ import annotations

import secrets
import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from cmfl.arguments import digest_of_head
from cmfl.commands.console import AsJson, command_line, print_json, print_table
from cmfl.commands.exit_codes import FAILED
from cmfl.commands.next_command import (
    BLOBS_VARIABLE,
    MAILBOX_VARIABLE,
    print_next,
    quoted_place,
    quoted_url,
)
from cmfl.commands.option_groups import expand_groups
from cmfl.commands.participant_options import ParticipantOptions, SharedPlaces
from cmfl.commands.sender import private_keys

if TYPE_CHECKING:
    from ledger.chain.rpc.node import SendingNode
    from ledger.protocol.signing import KeySigner

PROBE_BYTES = 64


@expand_groups
def join(
    options: ParticipantOptions,
    genesis: Annotated[
        str | None, typer.Option(help="Expected hash of block 0: 0x and 64 hex digits.")
    ] = None,
    json: AsJson = False,
) -> None:
    """Check all that you need to take part, say what is missing, and print how to begin.

    Looks at chain, contract, run document, clock, finality, model, key, funds, blobs, mailbox,
    data and folder. Nothing is sent to the chain. Exit code 1 if something is missing.
    """
    from clients.onboarding.checks import CheckState, PreflightChecks
    from clients.worker.process import WorkerTarget
    from ledger.protocol.signing import KeySigner

    shared = options.shared()
    expected = None if genesis is None else digest_of_head(genesis, "--genesis")

    def open_keys() -> list[KeySigner]:
        return [
            KeySigner(key) for key in private_keys(options.keystore or [], options.password_file)
        ]

    def open_node() -> SendingNode:
        from ledger.chain.rpc.node import SendingNode

        return SendingNode(shared.rpc_url, chain_id=shared.chain_id, genesis_hash=expected)

    ready = PreflightChecks(
        WorkerTarget(
            shared.contract,
            shared.blobs,
            shared.mailbox,
            options.data,
            tuple(options.setting or ()),
            options.confirmations,
            options.allow_unknown_creation,
        ),
        options.folder,
        open_node,
        open_keys,
        wall=time.time(),
        probe=secrets.token_bytes(PROBE_BYTES),
        allow_predictable_seeds=options.allow_predictable_seeds,
    )
    results = list(ready.checks())
    is_ready = all(result.state in {CheckState.OK, CheckState.WARNING} for result in results)
    command = _worker_command(options, shared)
    if json:
        clients, checks = ready.clients, [asdict(result) for result in results]
        about = {"ready": is_ready, "client": clients[0] if clients else None, "clients": clients}
        print_json(about | {"checks": checks, "command": command})
    else:
        rows = [(result.check, str(result.state), result.found) for result in results]
        print_table("what it takes to join", ("check", "state", "found"), rows)
        if is_ready:
            print_next("start with", command)
    raise typer.Exit(0 if is_ready else FAILED)


def _worker_command(options: ParticipantOptions, shared: SharedPlaces) -> str:
    """Return the command that starts the worker, with secrets and URLs as variables."""
    from clients.configuration.parsing import ALLOW_PREDICTABLE
    from ledger.chain.contract.deploy import ALLOW_UNKNOWN_CREATION

    chain = ["--chain-id", shared.chain_id, "--contract", shared.contract]
    words: list[object] = ["worker", *chain]
    for option, value in (
        *(("--keystore", path) for path in options.keystore or ()),
        ("--password-file", options.password_file),
        ("--data", options.data),
        ("--folder", options.folder),
        ("--confirmations", options.confirmations),
        *(("--set", setting) for setting in options.setting or ()),
    ):
        words += [] if value is None else [option, value]
    words += [ALLOW_PREDICTABLE] if options.allow_predictable_seeds else []
    words += [ALLOW_UNKNOWN_CREATION] if options.allow_unknown_creation else []
    storage = (
        f"--blobs {quoted_place(shared.blobs, BLOBS_VARIABLE)} "
        f"--mailbox {quoted_place(shared.mailbox, MAILBOX_VARIABLE)}"
    )
    return f"{command_line(*words)} {storage} --rpc-url {quoted_url(shared.rpc_url)}"
