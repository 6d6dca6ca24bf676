"""`cmfl export`: proofs, rounds and provenance to check, and tables for SQL and data frames."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from shutil import copyfileobj
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cmfl.arguments import naming
from cmfl.commands.console import AsJson, complain, print_json, print_line, print_written
from cmfl.commands.exit_codes import code_of
from cmfl.commands.options import OutFile as Out
from cmfl.commands.options import expand_groups
from cmfl.commands.sources import (
    EvidenceOptions,
    HistoryOptions,
    ProvenanceOptions,
    require_writable,
    write_result,
)
from cmfl.commands.verify import RoundNumber
from cmfl.where import download_bundle, open_history, opened_ledger
from ledger.history.queries import Order
from ledger.io.home import writing_named
from ledger.protocol.errors import ServiceError

if TYPE_CHECKING:
    from api.client.deployment import RemoteDeployment
    from cmfl.provenance.facts import RunFacts
    from ledger.audit.bundles.bundle_verification import RoundVerification
    from ledger.history.export import CsvTable, Row
    from ledger.history.local import LocalHistory


@expand_groups
def attestation(
    source: ProvenanceOptions,
    out: Out,
    sign: Annotated[
        Path | None, typer.Option(help="Private key (PEM): write the statement in a DSSE envelope.")
    ] = None,
    json: AsJson = False,
) -> None:
    """Write an in-toto statement about the model, for cmfl verify attestation and other tools.

    The run is audited before; nothing is written about one whose audit does not pass.
    """
    from cmfl.provenance.documents import PAYLOAD_TYPE, json_bytes, statement
    from cmfl.provenance.signatures import require_private_key, signed_envelope

    require_writable(out, as_json=json)
    if sign is not None:
        require_private_key(sign)
    facts = audited_facts(source, as_json=json)
    data = json_bytes(statement(facts))
    if sign is not None:
        data = json_bytes(signed_envelope(data, PAYLOAD_TYPE, sign))
    write_result(out, data)
    _report(out, facts, "in-toto statement", as_json=json)


@expand_groups
def mlbom(source: ProvenanceOptions, out: Out, json: AsJson = False) -> None:
    """Write the model and what it follows from as a CycloneDX bill of materials (ML-BOM).

    The run is audited before; nothing is written about one whose audit does not pass.
    """
    from cmfl.provenance.documents import json_bytes
    from cmfl.provenance.documents import mlbom as made

    require_writable(out, as_json=json)
    facts = audited_facts(source, as_json=json)
    write_result(out, json_bytes(made(facts)))
    _report(out, facts, "CycloneDX ML-BOM", as_json=json)


@expand_groups
def crate(
    source: ProvenanceOptions,
    out: Annotated[Path, typer.Option(help="The folder to make, or an empty one.")],
    json: AsJson = False,
) -> None:
    """Write model, run document, settings and statement as an RO-Crate, a folder.

    The run is audited before; nothing is written about one whose audit does not pass.
    """
    from cmfl.commands.sources import require_new, whole_folder
    from cmfl.provenance.documents import crate_files
    from ledger.io.home import DISK

    require_new(out)
    facts = audited_facts(source, as_json=json)
    with whole_folder(out) as folder:
        for name, data in crate_files(facts).items():
            DISK.write_whole(folder / name, data)
    _report(out, facts, "RO-Crate", as_json=json)


def audited_facts(source: ProvenanceOptions, *, as_json: bool) -> RunFacts:
    """Audit a run, and return its facts; nothing is written about one that does not pass.

    Raises:
        Exit: the audit fails, or is incomplete.
        RoundNotEndedError: the round that is asked for had not ended when the run was audited.
    """
    from cmfl.auditing import AuditRequest
    from cmfl.commands.audit import audited_with_progress
    from cmfl.provenance.facts import RoundNotEndedError, read_facts
    from ledger.audit.report import AuditOutcome
    from ledger.audit.report_text import readable

    where = source.target()
    report = audited_with_progress(where, AuditRequest(rules=tuple(source.rules or ())))
    if report.outcome is not AuditOutcome.PASSED:
        if as_json:
            print_json({"file": None, "audit": report.as_dict()})
        else:
            for line in readable(report):
                print_line(line)
        complain("nothing was written: a document is about a run whose audit passes")
        raise typer.Exit(code_of(report.outcome))
    number, auditors = source.round_number, source.auditor or ()
    facts = read_facts(where, number, auditors=auditors, mailbox=source.mailbox)
    if facts.round <= report.rounds:
        return facts
    # The run has gone on since it was audited, and what came then was not.
    if number is not None:
        raise RoundNotEndedError(number, report.rounds)
    return read_facts(where, report.rounds, auditors=auditors, mailbox=source.mailbox)


def _report(out: Path, facts: RunFacts, form: str, *, as_json: bool) -> None:
    from ledger.protocol.encoding import to_hex

    if as_json:
        head = {"round": facts.round, "head": to_hex(facts.head)}
        print_json({"file": str(out), "form": form, **head})
    else:
        text = f"{form} of the model after round {facts.round}, head {to_hex(facts.head)}"
        print_written(out, text)


_AS_SENT = "as the service sent it, and not checked yet: cmfl verify {} does"

app = typer.Typer(
    help="Write a proof, a round, the model's provenance, or a table for others.",
    no_args_is_help=True,
)


@app.command("bundle")
@expand_groups
def bundle(
    source: EvidenceOptions, round_number: RoundNumber, out: Out, json: AsJson = False
) -> None:
    """Write all that checking one round needs into a file, for cmfl verify bundle.

    It is checked on the way, but for one that comes from a service.
    """
    from ledger.audit.bundles.bundle_verification import export_bundle

    require_writable(out, as_json=json)
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
        print_json({"file": str(out), "round": round_number, "outcome": outcome})
        return
    text = _AS_SENT.format("bundle FILE") if verification is None else verification.sentence
    print_written(out, text)


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
    from cmfl.recorded import make

    require_writable(out)
    target = source.target()
    made = make(target, round_number, client_index)
    write_result(out, made.data)
    as_sent = _AS_SENT.format("client --proof FILE")
    print_written(out, made.statement if target.remote is None else as_sent)


class TableName(StrEnum):
    """A table of a run."""

    ROUNDS = "rounds"
    UPDATES = "updates"
    PARTICIPATION = "participation"
    EVIDENCE = "evidence"


class TableFormat(StrEnum):
    """Format of a table's file."""

    CSV = "csv"
    PARQUET = "parquet"


PAGE = 100
"""Rounds that are read at once."""


@app.command("table")
@expand_groups
def table(
    source: HistoryOptions,
    name: Annotated[TableName, typer.Argument(help="Table to write.")],
    out: Annotated[
        Path, typer.Option("--output", "--out", help="The file; an existing file is replaced.")
    ],
    format: Annotated[  # noqa: A002 - the option's own word
        TableFormat, typer.Option(help="Format of the file; parquet has typed columns.")
    ] = TableFormat.CSV,
) -> None:
    """Write all rounds, updates, participations or evidence as a table, oldest round first.

    SQL databases and data frames load it. It reports chain and records; cmfl audit verifies these.
    """
    from ledger.history import export

    require_writable(out, "--output")
    columns: CsvTable[Any] = getattr(export, name.name)
    target = source.target()
    with open_history(target) as history:
        pages = _pages(history, name, columns)
        try:
            with naming(f"--output {out}"), writing_named(out) as file:
                if format is TableFormat.CSV:
                    file.writelines(export.csv_lines(columns, pages))
                else:
                    with TemporaryFile() as made:  # Parquet cannot be written into a pipe
                        export.write_parquet(columns, pages, made)
                        made.seek(0)
                        copyfileobj(made, file)
        except (ValueError, OverflowError) as error:
            if target.remote is None:
                raise
            raise ServiceError(f"the {name} do not fit their table: {error}") from error
    print_written(out, f"the {name} of {history.address}, not verified: cmfl audit does")


def _pages(
    history: LocalHistory | RemoteDeployment, name: TableName, columns: CsvTable[Any]
) -> Iterator[list[Row]]:
    """Yield the rows of each page of rounds, oldest first."""
    from ledger.history.queries import RoundQuery

    cursor, query = None, RoundQuery(order=Order.OLDEST)
    while True:
        if name is TableName.EVIDENCE:
            page: Any = history.evidence(Order.OLDEST, PAGE, cursor)
        else:
            page = history.rounds(query, PAGE, cursor, full=name is not TableName.ROUNDS)
        yield columns.rows(page)
        cursor = page["next_cursor"]
        if cursor is None:
            return
        if not page["scanned"]:
            raise ValueError("a page has no rounds, and is not the last")


app.command("attestation")(attestation)
app.command("crate")(crate)
app.command("mlbom")(mlbom)
