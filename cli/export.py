"""`cmfl export`: what others can check without this home, each in one file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cli.console import AsJson, print_json, print_line
from cli.options import DEFAULT_HOME, Address, ChainId, HomeFolder, RpcUrl, RunName
from cli.verify import Blobs, RoundNumber, opened_ledger
from cli.where import Where
from ledger.protocol.errors import ConfigurationError

app = typer.Typer(help="Write a proof or a round into one file.", no_args_is_help=True)

Out = Annotated[Path, typer.Option("--out", help="The file; it comes whole, or not at all.")]


@app.command("bundle")
def bundle(
    round_number: RoundNumber,
    out: Out,
    home: HomeFolder = DEFAULT_HOME,
    run: RunName = None,
    rpc_url: RpcUrl = None,
    address: Address = None,
    chain_id: ChainId = None,
    blobs: Blobs = None,
    json: AsJson = False,
) -> None:
    """Write all that checking one round needs into a file, for cmfl verify bundle."""
    from ledger.audit.bundles.maker import export_bundle

    where = Where(home, run, address, rpc_url, chain_id, blobs)
    with opened_ledger(where) as ledger:
        try:
            found = export_bundle(ledger, where.published(), round_number, out)
        except OSError as error:
            raise ConfigurationError(f"--out {out}: {error.strerror}") from error
    if json:
        print_json({"file": str(out), "round": round_number, "outcome": str(found.outcome)})
        return
    print_line(f"{out}: {found.sentence}")


@app.command("proof")
def proof(
    round_number: RoundNumber,
    client_index: Annotated[
        int, typer.Option("--client", min=0, max=2**32 - 1, help="Index of the client.")
    ],
    out: Out,
    home: HomeFolder = DEFAULT_HOME,
    run: RunName = None,
    rpc_url: RpcUrl = None,
    address: Address = None,
    chain_id: ChainId = None,
    blobs: Blobs = None,
) -> None:
    """Write what became of a client in a round into a file, for cmfl verify client --proof."""
    from ledger.audit.proofs.document import proof_bytes
    from ledger.audit.proofs.maker import make_proof
    from ledger.audit.proofs.sentences import stated
    from ledger.home import DISK
    from ledger.protocol.types import ClientId

    where, who = Where(home, run, address, rpc_url, chain_id, blobs), ClientId(client_index)
    with opened_ledger(where) as ledger:
        made = make_proof(ledger, where.published(), round_number, who, whole=True)
    try:
        DISK.write_whole(out, proof_bytes(made))
    except OSError as error:
        raise ConfigurationError(f"--out {out}: {error.strerror}") from error
    print_line(f"{out}: {stated(round_number, who, made.statement)}")
