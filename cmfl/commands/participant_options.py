"""Options of the commands that take part in a run or prepare it: `cmfl worker`, `join`, `leave`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from cmfl.commands.next_command import BLOBS_VARIABLE, MAILBOX_VARIABLE
from cmfl.commands.options import (
    KEY_VARIABLE,
    URL_VARIABLE,
    AllowPredictableSeeds,
    contract_address,
)
from ledger.protocol.errors import ConfigurationError

DEFAULT_WORKER = Path("cmfl-worker")

WorkerFolderPath = Annotated[
    Path,
    typer.Option(
        "--folder",
        help="Folder of this worker alone: journal, own updates, status.",
        envvar="CMFL_WORKER_FOLDER",
    ),
]


class SharedPlaces(NamedTuple):
    """Locations shared by all participants of a run."""

    rpc_url: str
    chain_id: int
    contract: str
    blobs: str
    mailbox: str


@dataclass(frozen=True, slots=True)
class ParticipantOptions:
    """The node, the contract, the shared storage, and what a participant has on its machine."""

    rpc_url: Annotated[
        str | None,
        # Eager: the limits of fees ask whether it is there.
        typer.Option(help="A JSON-RPC node.", envvar=URL_VARIABLE, is_eager=True),
    ] = None
    chain_id: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=2**64 - 1,
            help="The chain id that the node must have.",
            envvar="CMFL_CHAIN_ID",
        ),
    ] = None
    contract: Annotated[
        str | None,
        typer.Option(
            help="Address of the run's contract.", envvar="CMFL_CONTRACT", callback=contract_address
        ),
    ] = None
    blobs: Annotated[
        str | None,
        typer.Option(
            help="Where all participants publish: a folder or a URL.", envvar=BLOBS_VARIABLE
        ),
    ] = None
    mailbox: Annotated[
        str | None,
        typer.Option(
            help="Where envelopes go; where the blobs are if not given.", envvar=MAILBOX_VARIABLE
        ),
    ] = None
    keystore: Annotated[
        list[Path] | None,
        typer.Option(
            help=f"Key of a client, once for each; else {KEY_VARIABLE} holds the key of one.",
            envvar="CMFL_KEYSTORE",
        ),
    ] = None
    password_file: Annotated[
        Path | None, typer.Option(help="Password of all keystores; else asked for.")
    ] = None
    data: Annotated[
        Path | None, typer.Option(help="Where the training data are on this machine.")
    ] = None
    setting: Annotated[
        list[str] | None,
        typer.Option("--set", help="section.key=value of this machine, such as machine.workers."),
    ] = None
    folder: WorkerFolderPath = DEFAULT_WORKER
    confirmations: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=1000,
            help="Blocks on top of one before it counts as final; what the chain calls final if "
            "not given.",
        ),
    ] = None
    allow_predictable_seeds: AllowPredictableSeeds = False
    allow_unknown_creation: Annotated[
        bool,
        typer.Option(
            "--allow-unknown-creation",
            help="Accept a contract whose creation code is not checkable.",
        ),
    ] = False

    def shared(self) -> SharedPlaces:
        """Return what all participants share."""
        url, chain_id, contract, blobs = self.rpc_url, self.chain_id, self.contract, self.blobs
        if url is None or chain_id is None or contract is None or blobs is None:
            needed = {
                "--rpc-url": url,
                "--chain-id": chain_id,
                "--contract": contract,
                "--blobs": blobs,
            }
            missing = next(name for name, value in needed.items() if value is None)
            raise ConfigurationError(f"{missing} must be given; --help says what it is")
        return SharedPlaces(url, chain_id, contract, blobs, self.mailbox or blobs)
