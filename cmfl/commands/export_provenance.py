"""`cmfl export attestation`, `crate` and `mlbom`: a run's model in the forms of other tools."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cmfl.commands.console import AsJson, complain, print_json, print_line, print_written
from cmfl.commands.exit_codes import code_of
from cmfl.commands.home_files import require_writable, write_result
from cmfl.commands.option_groups import expand_groups
from cmfl.commands.options import OutFile as Out
from cmfl.commands.source_options import ProvenanceOptions

if TYPE_CHECKING:
    from cmfl.provenance.facts import RunFacts


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
    from cmfl.commands.new_folder import require_new, whole_folder
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
