"""`cmfl export`: proofs, rounds and provenance as files that others can check."""

from __future__ import annotations

from shutil import copyfileobj
from typing import TYPE_CHECKING, Annotated

import typer

from cmfl.access.downloads import download_bundle, download_proof
from cmfl.access.target import opened_ledger
from cmfl.commands import export_provenance
from cmfl.commands.console import AsJson, print_json, print_written
from cmfl.commands.home_files import require_writable, write_result
from cmfl.commands.option_groups import expand_groups
from cmfl.commands.options import OutFile as Out
from cmfl.commands.source_options import EvidenceOptions
from cmfl.commands.verify import RoundNumber
from ledger.io.named_files import writing_named
from ledger.protocol.errors import ConfigurationError

if TYPE_CHECKING:
    from pathlib import Path

    from cmfl.access.target import Target
    from ledger.audit.bundles.bundle_verification import RoundVerification
    from ledger.audit.proofs.proof import ClientProof
    from ledger.protocol.types import ClientId

_AS_SENT = "as the service sent it, and not checked yet: cmfl verify {} does"

app = typer.Typer(
    help="Write a proof, a round, or the model's provenance for others.", no_args_is_help=True
)


@app.command("bundle")
@expand_groups
def bundle(
    source: EvidenceOptions,
    round_number: RoundNumber,
    out: Out,
    json: AsJson = False,
) -> None:
    """Write all that checking one round needs into a file, for cmfl verify bundle.

    It is checked on the way, but for one that comes from a service.
    """
    require_writable(out, as_json=json)
    target = source.target()
    try:
        verification = _written(target, round_number, out) if target.remote is None else None
        if target.remote is not None:
            with (
                download_bundle(target, round_number, None, whole=True) as (path, _, _),
                path.open("rb") as sent,
                writing_named(out) as file,
            ):
                copyfileobj(sent, file)
    except OSError as error:
        raise ConfigurationError(f"--out {out}: {error.strerror}") from error
    if json:
        outcome = None if verification is None else str(verification.outcome)
        print_json({"file": str(out), "round": round_number, "outcome": outcome})
        return
    text = _AS_SENT.format("bundle FILE") if verification is None else verification.sentence
    print_written(out, text)


def _written(target: Target, round_number: int, out: Path) -> RoundVerification:
    """Write the bundle of a round on a local chain; return the result of checking it."""
    from ledger.audit.bundles.bundle_export import export_bundle

    with opened_ledger(target) as ledger:
        return export_bundle(ledger, target.published(), round_number, out)


@app.command("proof")
@expand_groups
def proof(
    source: EvidenceOptions,
    round_number: RoundNumber,
    client_index: Annotated[
        int, typer.Option("--client", min=0, max=2**32 - 1, help="Index of the client.")
    ],
    out: Out,
) -> None:
    """Write what became of a client in a round into a file, for cmfl verify client --proof."""
    from ledger.audit.proofs.statement import stated
    from ledger.protocol.types import ClientId

    require_writable(out)
    who = ClientId(client_index)
    target = source.target()
    if target.remote is not None:
        data, _ = download_proof(target, round_number, who, whole=True)
        text = _AS_SENT.format("client --proof FILE")
    else:
        data, made = _made(target, round_number, who)
        text = stated(round_number, who, made.statement)
    write_result(out, data)
    print_written(out, text)


def _made(target: Target, round_number: int, who: ClientId) -> tuple[bytes, ClientProof]:
    """Return a proof from chain and blobs, as bytes and as an object."""
    from ledger.audit.proofs.proof_document import proof_bytes
    from ledger.audit.proofs.proof_maker import make_proof

    with opened_ledger(target) as ledger:
        made = make_proof(ledger, target.published(), round_number, who, whole=True)
    return proof_bytes(made), made


app.command("attestation")(export_provenance.attestation)
app.command("crate")(export_provenance.crate)
app.command("mlbom")(export_provenance.mlbom)
