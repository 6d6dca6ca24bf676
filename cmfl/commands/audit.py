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
    strict: Annotated[bool, "Treat every remark as a check that could not be made."] = False,
    since: Annotated[
        Path | None, "JSON report of an earlier passed audit, trusted for its rounds."
    ] = None,
    jobs: Annotated[
        int | None,
        "Number of processes that check rounds. Default: the number of cores, at most "
        f"{MOST_UNASKED}. A short run uses none.",
        Option(min=1, max=256),
    ] = None,
    rules: options.Rules = None,
    training: Annotated[
        int | None,
        "Number of randomly drawn updates whose training is repeated. The verdict of the "
        "audit does not change. Needs torch and the data (see cmfl verify training).",
        Option(min=1),
    ] = None,
    report: options.ReportFile = None,
    anchors: Annotated[
        Path | None, "Folder of anchors (cmfl log anchor). The run must contain their heads."
    ] = None,
    tsa_root: options.TsaRoot = None,
    *,
    witnesses: options.WitnessOptions,
    json: console.AsJson = False,
) -> None:
    """Verify every round from the chain and the blobs.

    With --rpc-url, --address and --blobs, the audit does not read the home. With --api, the blobs
    come from a service that is not trusted: the audit compares each blob with its digest and names
    missing ones. With --since, the audit does not read the blobs of rounds that an earlier audit
    checked, and the report states this.

    With --witness-policy, the audit first compares the run with logs and witnesses. A run that
    lacks rounds which they have seen, or has different ones, contradicts. Without a quorum, the
    exit code is 3. With --anchors, each anchor is verified offline. The report names the hash of
    the anchor's block, for you to compare with a node that you trust.

    Exit codes: 0, every check passed. 1, the record contradicts itself or the rules. 3, there is no
    contradiction, but something could not be checked, such as a round with missing blobs.
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
        str | None, Option(metavar="A..B", help="First and last round. Default: all.")
    ] = None,
    mailbox: Annotated[
        str | None,
        "URL or folder with the attestations. Default: the location of the blobs, or the service.",
    ] = None,
    auditor: Annotated[
        list[str] | None,
        "Address of a trusted auditor; may be repeated. Default: all auditors.",
        Option(metavar="ADDRESS"),
    ] = None,
    json: console.AsJson = False,
) -> None:
    """Show the updates whose training auditors have repeated.

    The command combines the attestations that `cmfl verify training --sign` writes to the mailbox.
    An attestation is only its auditor's claim, and anyone can sign with a new key. Name the
    auditors that you trust. If auditors disagree, all are shown. Repeat the update to find out
    which auditor is wrong.
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
