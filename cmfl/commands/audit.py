"""`cmfl audit` and `cmfl coverage`: replay a run, and show which updates were repeated."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Option

from cmfl.auditing import MOST_UNASKED, AuditRequest, audit_target, check_stop, read_earlier
from cmfl.commands import code_of, console, options
from cmfl.replaying import Coverage, coverage_of, drawn_training
from cmfl.where import Target
from ledger.audit.anchors import report_bytes
from ledger.audit.report import AuditReport
from ledger.audit.report_text import readable
from ledger.protocol.errors import CmflError


def audit(
    source: options.EvidenceOptions,
    head: options.Head = None,
    strict: Annotated[bool, "Take a remark for something that could not be checked."] = False,
    since: Annotated[
        Path | None, "The JSON report of an earlier audit that passed: trust it for its rounds."
    ] = None,
    jobs: Annotated[
        int | None,
        f"Processes that check rounds, each with the blobs of one in memory; as many as "
        f"there are cores, up to {MOST_UNASKED}, if not given. A short run begins none.",
        Option(min=1, max=256),
    ] = None,
    rules: options.Rules = None,
    training: Annotated[
        int | None,
        "Also repeat the training of so many drawn updates, and report their number by "
        "verdict beside the ten steps; no verdict of the audit changes. Needs torch and the "
        "data: cmfl verify training names these.",
        Option(min=1),
    ] = None,
    report: options.ReportFile = None,
    anchors: Annotated[
        Path | None, "Folder of anchors (cmfl log anchor): the run must have their heads."
    ] = None,
    tsa_root: options.TsaRoot = None,
    *,
    witnesses: options.WitnessOptions,
    json: console.AsJson = False,
) -> None:
    """Check every round from the chain and the blobs alone.

    Exit code 0: everything was checked and is true. 1: the record contradicts itself. 3: nothing
    contradicts, but something could not be checked, such as a round whose blobs are gone. With
    --rpc-url, --address and --blobs nothing of the home is needed. With --api the blobs come from a
    service, which is trusted for nothing: each is compared with its digest, and one that is not to
    be had is named. With --since the blobs of rounds that an earlier audit has checked are not read
    again, and the report says so. With --witness-policy logs and witnesses are asked first: a run
    that lacks rounds they have seen, or has others, contradicts; without a quorum it is exit code
    3. With --anchors each anchor is verified offline; the report names the hash of its block, which
    you compare with a node that you trust.
    """
    if report is not None:
        console.require_writable(report, "--report", as_json=json)
    where = source.target()
    where.require_chain_of_its_own()
    consulted = witnesses.witnesses()
    earlier = None if since is None else read_earlier(since, "--since")
    request = AuditRequest(
        head, strict, earlier, jobs, tuple(rules or ()), consulted, anchors, tsa_root
    )
    result = audited_with_progress(where, request)
    apart: dict[str, Any] = {}
    lines = []
    if training is not None:
        with console.counting("training, updates") as show:
            repeated = apart["training"] = drawn_training(where, training, show)
        found = f"nothing was repeated: {repeated['reason']}"
        if repeated["counts"] is not None:
            counts = ", ".join(f"{number} {name}" for name, number in repeated["counts"].items())
            found = f"{repeated['drawn']} updates drawn, {counts}"
        lines.append(f"training, apart from the ten steps: {found}")
    # What cannot be read is the audit's to name.
    with suppress(CmflError, OSError):
        if (stop := check_stop(where)) is not None:
            apart["early_stop"] = asdict(stop)
            lines.append(f"early stop, apart from the ten steps: {stop.sentence}")
    console.print_result(result.as_dict() | apart, [*lines, *readable(result)], as_json=json)
    written = console.write_report(report, report_bytes(result))
    raise typer.Exit(code_of(result.outcome) or written)


def audited_with_progress(where: Target, request: AuditRequest) -> AuditReport:
    """Audit a run, and show how far it is."""
    with console.counting("audit, rounds") as show:
        return audit_target(where, request, show)


WIDEST = 100  # clients of a grid; with more only the numbers of each round are shown
MOST_NAMED = 20  # auditors that are named: anybody can make keys without end
MARKS = {"same": "s", "other": "X", "disputed": "?", "none": "."}


def coverage(
    source: options.EvidenceOptions,
    rounds: Annotated[
        str | None, Option(metavar="A..B", help="First and last round; else all.")
    ] = None,
    mailbox: Annotated[
        str | None,
        "URL or folder with the attestations; else that of the blobs, or of the service.",
    ] = None,
    auditor: Annotated[
        list[str] | None,
        "Count the attestations of this address; may be repeated; else everybody's.",
        Option(metavar="ADDRESS"),
    ] = None,
    json: console.AsJson = False,
) -> None:
    """Show which updates have been repeated by auditors: rounds by clients, and their verdicts.

    Folds the attestations that `cmfl verify training --sign` puts into the mailbox. Each is its
    auditor's word, and anybody can sign with a new key: name the auditors that you trust. Where
    auditors disagree, all of them are shown; whoever repeats the update finds out who is false.
    """
    bounds = options.rounds_between(None, rounds)
    result = Coverage(coverage_of(source.target(), bounds, auditor or (), mailbox))
    console.print_result(result.as_dict(), _coverage_lines(result), as_json=json)


def _coverage_lines(result: Coverage) -> Iterator[str]:
    yield result.sentence
    auditors = result.auditors
    yield from (f"auditor {address}" for address in auditors[:MOST_NAMED])
    if len(auditors) > MOST_NAMED:
        yield f"and {len(auditors) - MOST_NAMED} more auditors: --auditor counts those you trust"
    clients, updates = result.answer["clients"], result.answer["updates"]
    by_round: dict[int, dict[int, str]] = {}
    for update in updates:
        by_round.setdefault(update["round"], {})[update["client"]] = update["verdict"]
    if clients <= WIDEST:
        yield "one column for each client: s same, X other, ? disputed, . not attested"
    for number, verdicts in by_round.items():
        if clients <= WIDEST:
            row = "".join(MARKS.get(verdicts.get(client, ""), " ") for client in range(clients))
            yield f"{number:>6}  {row.rstrip()}"
        else:
            found = list(verdicts.values())
            yield f"round {number}: {', '.join(f'{found.count(name)} {name}' for name in MARKS)}"
    for update in updates:
        if update["verdict"] in {"other", "disputed"}:
            given = [f"{each['verdict']} by {each['auditor']}" for each in update["attestations"]]
            words = list(dict.fromkeys(given))
            more = f", and {len(words) - MOST_NAMED} more" if len(words) > MOST_NAMED else ""
            named = ", ".join(words[:MOST_NAMED])
            yield f"round {update['round']}, client {update['client']}: {named}{more}"
