"""`cmfl audit`: replay a whole run from chain and blobs alone."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cmfl.auditing import MOST_UNASKED, AuditRequest, audit_target, read_earlier
from cmfl.commands.console import AsJson, counting, print_json, print_line
from cmfl.commands.exit_codes import WRONG, code_of
from cmfl.commands.home_files import require_writable, wrote_report
from cmfl.commands.option_groups import expand_groups
from cmfl.commands.options import Head, Rules
from cmfl.commands.source_options import EvidenceOptions
from cmfl.commands.witness_options import WitnessOptions
from cmfl.where import Target

if TYPE_CHECKING:
    from cmfl.stopping import StopCheck
    from ledger.audit.report import AuditReport

MOST_JOBS = 256


@expand_groups
def audit(
    source: EvidenceOptions,
    head: Head = None,
    strict: Annotated[
        bool,
        typer.Option("--strict", help="Take a remark for something that could not be checked."),
    ] = False,
    since: Annotated[
        Path | None,
        typer.Option(
            help="The JSON report of an earlier audit that passed: trust it for its rounds."
        ),
    ] = None,
    jobs: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=MOST_JOBS,
            help=f"Processes that check rounds, each with the blobs of one in memory; as many as "
            f"there are cores, up to {MOST_UNASKED}, if not given. A short run begins none.",
        ),
    ] = None,
    rules: Rules = None,
    training: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Also repeat the training of so many drawn updates, and report their number by "
            "verdict beside the ten steps; no verdict of the audit changes. Needs torch and the "
            "data: cmfl verify training names these.",
        ),
    ] = None,
    report: Annotated[
        Path | None, typer.Option(help="File of the JSON report; an existing file is replaced.")
    ] = None,
    *,
    witnesses: WitnessOptions,
    json: AsJson = False,
) -> None:
    """Check every round from the chain and the blobs alone.

    Exit code 0: everything was checked and is true. 1: the record contradicts itself. 3: nothing
    contradicts, but something could not be checked, such as a round whose blobs are gone. With
    --rpc-url, --address and --blobs nothing of the home is needed. With --api the blobs come from a
    service, which is trusted for nothing: each is compared with its digest, and one that is not to
    be had is named. With --since the blobs of rounds that an earlier audit has checked are not read
    again, and the report says so. With --witness-policy logs and witnesses are asked first: a run
    that lacks rounds they have seen, or has others, contradicts; without a quorum it is exit code
    3.
    """
    from ledger.audit.anchors import report_bytes
    from ledger.audit.report_text import readable

    if report is not None:
        require_writable(report, "--report", as_json=json)
    where = source.target()
    where.require_chain_of_its_own()
    consulted = witnesses.witnesses()
    earlier = None if since is None else read_earlier(since, "--since")
    result = audited_with_progress(
        where, AuditRequest(head, strict, earlier, jobs, tuple(rules or ()), consulted)
    )
    repeated = None if training is None else _repeated(where, training)
    stop = _stop_of(where)
    if json:
        apart = {"training": repeated, "early_stop": None if stop is None else asdict(stop)}
        print_json(result.as_dict() | {key: each for key, each in apart.items() if each})
    else:
        if repeated is not None:
            print_line(_training_line(repeated))
        if stop is not None:
            print_line(f"early stop, apart from the ten steps: {stop.sentence}")
        for line in readable(result):
            print_line(line)
    written = report is None or wrote_report(report, report_bytes(result))
    raise typer.Exit(code_of(result.outcome) or (0 if written else WRONG))


def audited_with_progress(where: Target, request: AuditRequest) -> AuditReport:
    """Audit a run, and show how far it is."""
    with counting("audit, rounds") as show:
        return audit_target(where, request, show)


def _stop_of(where: Target) -> StopCheck | None:
    """Return what is known of an early stop; what cannot be read is the audit's to name."""
    from cmfl.stopping import check_stop
    from ledger.protocol.errors import CmflError

    try:
        return check_stop(where)
    except (CmflError, OSError):
        return None


def _repeated(where: Target, sample: int) -> dict[str, Any]:
    from cmfl.replaying import drawn_training

    with counting("training, updates") as show:
        return drawn_training(where, sample, show)


def _training_line(repeated: dict[str, Any]) -> str:
    if repeated["counts"] is None:
        return f"training, apart from the ten steps: nothing was repeated: {repeated['reason']}"
    counts = ", ".join(f"{number} {name}" for name, number in repeated["counts"].items())
    return f"training, apart from the ten steps: {repeated['drawn']} updates drawn, {counts}"
