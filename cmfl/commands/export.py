"""`cmfl export`: proofs, rounds and provenance to check, and tables for SQL and data frames."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from shutil import copyfileobj
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from typer import Argument, Option

from cmfl.auditing import AuditRequest
from cmfl.commands import code_of, console
from cmfl.commands.application import Commands
from cmfl.commands.options import EvidenceOptions, HistoryOptions, ProvenanceOptions, RoundRange
from cmfl.commands.options import OutFile as Out
from cmfl.commands.verify import ClientIndex, RoundNumber
from cmfl.recorded import make, table_pages
from cmfl.where import download_bundle, open_history, opened_ledger
from ledger.audit.proofs.bundle_verification import RoundVerification, export_bundle
from ledger.audit.report import AuditOutcome
from ledger.audit.report_text import readable
from ledger.history import export
from ledger.history.fields import Order, RoundQuery
from ledger.io.home import DISK, naming, writing_named
from ledger.protocol.encoding import to_hex
from ledger.protocol.errors import ServiceError

if TYPE_CHECKING:
    from cmfl.provenance.facts import RunFacts

_AS_SENT = "as the service sent it, not checked; to check it, run cmfl verify {}"

export_app = Commands()


def attestation(
    source: ProvenanceOptions,
    out: Out,
    sign: Annotated[
        Path | None, "Private key (PEM) that signs the statement in a DSSE envelope."
    ] = None,
    json: console.AsJson = False,
) -> None:
    """Write an in-toto statement about the model, for cmfl verify attestation and other tools.

    The command audits the run first, and writes nothing if the audit does not pass.
    """
    from cmfl.provenance.documents import PAYLOAD_TYPE, json_bytes, statement
    from cmfl.provenance.verify import require_key, signed_envelope

    console.require_writable(out, as_json=json)
    if sign is not None:
        require_key(sign, "private")
    facts = audited_facts(source, as_json=json)
    data = json_bytes(statement(facts))
    if sign is not None:
        data = json_bytes(signed_envelope(data, PAYLOAD_TYPE, sign))
    console.write_result(out, data)
    _report(out, facts, "in-toto statement", as_json=json)


def mlbom(source: ProvenanceOptions, out: Out, json: console.AsJson = False) -> None:
    """Write the model and its sources as a CycloneDX bill of materials (ML-BOM).

    The command audits the run first, and writes nothing if the audit does not pass.
    """
    from cmfl.provenance import documents

    console.require_writable(out, as_json=json)
    facts = audited_facts(source, as_json=json)
    console.write_result(out, documents.json_bytes(documents.mlbom(facts)))
    _report(out, facts, "CycloneDX ML-BOM", as_json=json)


def crate(
    source: ProvenanceOptions,
    out: Annotated[Path, "New or empty folder."],
    json: console.AsJson = False,
) -> None:
    """Write model, run document, settings and statement to a folder (RO-Crate).

    The command audits the run first, and writes nothing if the audit does not pass.
    """
    from cmfl.provenance.documents import crate_files

    console.require_new(out)
    facts = audited_facts(source, as_json=json)
    with console.whole_folder(out) as folder:
        for name, data in crate_files(facts).items():
            DISK.write_whole(folder / name, data)
    _report(out, facts, "RO-Crate", as_json=json)


def audited_facts(source: ProvenanceOptions, *, as_json: bool) -> RunFacts:
    """Audit a run, and return its facts; end the command if the audit does not pass."""
    from cmfl.commands.audit import audited_with_progress
    from cmfl.provenance.facts import RoundNotEndedError, read_facts

    where = source.target()
    report = audited_with_progress(where, AuditRequest(rules=tuple(source.rules or ())))
    if report.outcome is not AuditOutcome.PASSED:
        answer = {"file": None, "audit": report.as_dict()}
        console.print_result(answer, readable(report), as_json=as_json)
        console.complain("nothing was written, because the run's audit did not pass")
        raise typer.Exit(code_of(report.outcome))
    number, read = source.round_number, partial(read_facts, where)
    whose: dict[str, Any] = {"auditors": source.auditor or (), "mailbox": source.mailbox}
    facts = read(number, **whose)
    if facts.round <= report.rounds:
        return facts
    # The run has gone on since it was audited, and what came then was not.
    if number is not None:
        raise RoundNotEndedError(number, report.rounds)
    return read(report.rounds, **whose)


def _report(out: Path, facts: RunFacts, form: str, *, as_json: bool) -> None:
    if as_json:
        head = {"round": facts.round, "head": to_hex(facts.head)}
        console.print_json({"file": str(out), "form": form, **head})
    else:
        text = f"{form} of the model after round {facts.round}, head {to_hex(facts.head)}"
        console.print_written(out, text)


@export_app.command("bundle")
def bundle(
    source: EvidenceOptions, round_number: RoundNumber, out: Out, json: console.AsJson = False
) -> None:
    """Write everything needed to check one round to a file, for cmfl verify bundle.

    The command checks the bundle first, unless it comes from a service.
    """
    console.require_writable(out, as_json=json)
    target = source.target()
    verification: RoundVerification | None = None
    with naming(f"--out {out}"):
        if target.remote is None:
            with opened_ledger(target) as ledger:
                verification = export_bundle(ledger, target.published(), round_number, out)
        else:
            with (
                download_bundle(target, round_number, whole=True) as (path, _, _),
                path.open("rb") as sent,
                writing_named(out) as file,
            ):
                copyfileobj(sent, file)
    if json:
        outcome = None if verification is None else str(verification.outcome)
        console.print_json({"file": str(out), "round": round_number, "outcome": outcome})
        return
    text = _AS_SENT.format("bundle FILE") if verification is None else verification.sentence
    console.print_written(out, text)


@export_app.command("proof")
def proof(
    source: EvidenceOptions, round_number: RoundNumber, client_index: ClientIndex, out: Out
) -> None:
    """Write a client's outcome in a round to a file, for cmfl verify client --proof."""
    console.require_writable(out)
    target = source.target()
    made = make(target, round_number, client_index)
    console.write_result(out, made.data)
    as_sent = _AS_SENT.format("client --proof FILE")
    console.print_written(out, made.statement if target.remote is None else as_sent)


@export_app.command("table")
def table(
    source: HistoryOptions,
    rounds: RoundRange,
    name: Annotated[export.TableName, Argument(help="Name of the table.")],
    out: Annotated[
        Path, Option("--output", "--out", help="Output file, which replaces an existing one.")
    ],
    format: Annotated[  # noqa: A002 - the option's own word
        Literal["csv", "parquet"], "Format of the file. Parquet has typed columns."
    ] = "csv",
) -> None:
    """Write rounds, updates, participations or evidence as a table, oldest round first.

    SQL databases and data frames can load the file. To verify its contents, run cmfl audit.
    """
    console.require_writable(out, "--output")
    columns, target = getattr(export, name.upper()), source.target()
    with open_history(target) as history:
        pages = table_pages(history, name, RoundQuery(order=Order.OLDEST, rounds=rounds))
        try:
            with naming(f"--output {out}"), writing_named(out) as file, TemporaryFile() as made:
                if format == "csv":
                    file.writelines(export.csv_lines(columns, pages))
                else:  # Parquet cannot be written into a pipe
                    export.write_parquet(columns, pages, made)
                    made.seek(0)
                    copyfileobj(made, file)
        except (ValueError, OverflowError) as error:
            if target.remote is None:
                raise
            raise ServiceError(f"the {name} do not fit their table: {error}") from error
    console.print_written(out, f"the {name} of {history.address}, not verified (see cmfl audit)")


export_app.command("attestation")(attestation)
export_app.command("crate")(crate)
export_app.command("mlbom")(mlbom)
