"""`cmfl audit`: replay a whole run from chain and blobs alone."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cmfl.commands.console import AsJson, complain, print_json, print_line, progress
from cmfl.commands.exit_codes import FAILED, INCOMPLETE, WRONG
from cmfl.commands.home_files import require_writable
from cmfl.commands.option_groups import expand_groups
from cmfl.commands.options import Head, Rules
from cmfl.commands.source_options import EvidenceOptions
from cmfl.commands.witness_options import WitnessOptions

if TYPE_CHECKING:
    from cmfl.access.target import Target
    from cmfl.stopping import StopCheck
    from cmfl.witnessing import Witnesses
    from ledger.audit.earlier_report import EarlierAudit
    from ledger.audit.report import AuditReport

MOST_JOBS = 256
MOST_UNASKED = 4


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
            "--since",
            help="The JSON report of an earlier audit that passed: trust it for its rounds.",
        ),
    ] = None,
    jobs: Annotated[
        int | None,
        typer.Option(
            "--jobs",
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
            "--training",
            min=1,
            help="Also repeat the training of so many drawn updates, and report their number by "
            "verdict beside the ten steps; no verdict of the audit changes. Needs torch and the "
            "data: cmfl verify training names these.",
        ),
    ] = None,
    report: Annotated[
        Path | None,
        typer.Option("--report", help="File of the JSON report; an existing file is replaced."),
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
    from cmfl.auditing import read_earlier
    from ledger.audit.report import AuditOutcome
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
    code = {
        AuditOutcome.PASSED: 0,
        AuditOutcome.FAILED: FAILED,
        AuditOutcome.INCOMPLETE: INCOMPLETE,
    }
    written = report is None or _written(report, result)
    raise typer.Exit(code[result.outcome] or (0 if written else WRONG))


@dataclass(frozen=True, slots=True)
class AuditRequest:
    """Options of an audit.

    Attributes:
        head: a known earlier head, 0x-hex; None for none.
        strict: whether remarks make it incomplete.
        earlier: the audit that it continues; None for none.
        jobs: number of processes; None for the machine's default.
        rules: files of own rules.
        witnesses: whom to ask before; None for nobody.
    """

    head: str | None = None
    strict: bool = False
    earlier: EarlierAudit | None = None
    jobs: int | None = None
    rules: tuple[str, ...] = ()
    witnesses: Witnesses | None = None


def audited_with_progress(where: Target, request: AuditRequest) -> AuditReport:
    """Return the audit of a target; its progress is shown meanwhile."""
    from cmfl.auditing import audit_target
    from ledger.distances.fast import usable_cores

    jobs = min(usable_cores(), MOST_UNASKED) if request.jobs is None else request.jobs
    with progress() as bar:
        task = bar.add_task("audit, rounds", total=None)
        return audit_target(
            where,
            head=request.head,
            strict=request.strict,
            earlier=request.earlier,
            jobs=jobs,
            on_progress=lambda done, total: bar.update(task, completed=done, total=total),
            rules=request.rules,
            witnesses=request.witnesses,
        )


def _stop_of(where: Target) -> StopCheck | None:
    """Return what is known of an early stop; what cannot be read is the audit's to name."""
    from cmfl.stopping import check_stop
    from ledger.protocol.errors import CmflError

    try:
        return check_stop(where)
    except (CmflError, OSError):
        return None


def _repeated(where: Target, sample: int) -> dict[str, Any]:
    """Repeat some drawn updates, and return their number by verdict."""
    from cmfl.replaying import drawn_training

    with progress() as bar:
        task = bar.add_task("training, updates", total=None)
        return drawn_training(
            where, sample, lambda done, total: bar.update(task, completed=done, total=total)
        )


def _training_line(repeated: dict[str, Any]) -> str:
    """Return a line on repeated training, which is apart from the ten steps."""
    if repeated["counts"] is None:
        return f"training, apart from the ten steps: nothing was repeated: {repeated['reason']}"
    counts = ", ".join(f"{number} {name}" for name, number in repeated["counts"].items())
    return f"training, apart from the ten steps: {repeated['drawn']} updates drawn, {counts}"


def _written(path: Path, result: AuditReport) -> bool:
    """Write the report; a failure is only reported, because the verdict remains."""
    from ledger.audit.earlier_report import report_bytes
    from ledger.io.named_files import write_named

    try:
        write_named(path, report_bytes(result))
    except OSError as error:
        complain(f"--report {path}: {error.strerror}; no report was written")
        return False
    return True
