"""`cmfl audit` and `cmfl coverage`: replay a run, and show which updates were repeated."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

import typer
from typer import Option

from cmfl.auditing import MOST_UNASKED, AuditRequest, audit_target, check_stop, read_earlier
from cmfl.commands import code_of, console
from cmfl.commands.options import (
    EvidenceOptions,
    Head,
    ReportFile,
    Rules,
    WitnessOptions,
    rounds_between,
)
from cmfl.replaying import Coverage, coverage_of, drawn_training
from cmfl.where import Target
from ledger.audit.anchors import report_bytes
from ledger.audit.report import AuditReport
from ledger.audit.report_text import readable
from ledger.chain.contract.ledger import read_run_manifest, was_in_memory
from ledger.claims import ClaimedRun
from ledger.io.home import Home
from ledger.protocol.errors import CmflError

HeadOutcome: TypeAlias = Literal[
    "matches", "differs", "missing", "unclaimed", "in_memory", "not_asked"
]
"""Of a comparison: the round of a `missing` head has not ended on the chain, and the run of one
that is `not_asked` is on a node's chain, and no node was named."""


@dataclass(frozen=True, slots=True)
class HeadComparison:
    """A claimed head and the chain's, 0x-hex, after a round; None where there is none."""

    outcome: HeadOutcome
    round: int | None = None
    head: str | None = None
    claimed: str | None = None

    @property
    def contradicts(self) -> bool:
        """True if the run's files contradict the chain."""
        return self.outcome in {"differs", "missing"}


def compare_head(target: Target, claimed: ClaimedRun) -> HeadComparison:
    """Return the comparison of the last head that a run claims in its files with its chain."""
    paths = Home(target.home).run(target.run or "")
    number = claimed.last_round
    if number is None:
        return HeadComparison("unclaimed")
    if not paths.manifest.exists() and was_in_memory(paths):
        return HeadComparison("in_memory", number, claimed=claimed.head)
    with target.ledger_of(read_run_manifest(paths)) as ledger:
        if ledger is None:
            return HeadComparison("not_asked", number, claimed=claimed.head)
        history = target.history(ledger.chain)
        ended = history.rounds(number, number) if 0 < number <= history.newest() else []
    end = ended[0].end if ended else None
    if end is None:
        return HeadComparison("missing", number, claimed=claimed.head)
    head = f"0x{end.head.hex()}"
    same: HeadOutcome = "matches" if head == claimed.head else "differs"
    return HeadComparison(same, number, head, claimed.head)


def head_message(run: str, comparison: HeadComparison) -> str:
    """Return the comparison in a sentence."""
    after = f"after round {comparison.round}"
    claims = f"{run} claims head {comparison.claimed} {after}"
    return {
        "matches": f"{run}: the chain has the claimed head {after}",
        "differs": f"{claims}, and the chain has {comparison.head}: its files were "
        f"altered, or are not of this chain",
        "missing": f"{claims}, and on the chain that round has not ended: its files were "
        f"altered, or the chain has lost its end",
        "unclaimed": f"{run}: its metrics.jsonl has no row here, so it claims no head",
        "in_memory": f"{run}: it ran on the memory ledger, so no chain has its head",
        "not_asked": f"{run}: it is on a node's chain, which was not asked: --rpc-url "
        f"names the node",
    }[comparison.outcome]


def audit(
    source: EvidenceOptions,
    head: Head = None,
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
    rules: Rules = None,
    training: Annotated[
        int | None,
        "Also repeat the training of so many drawn updates, and report their number by "
        "verdict beside the ten steps; no verdict of the audit changes. Needs torch and the "
        "data: cmfl verify training names these.",
        Option(min=1),
    ] = None,
    report: ReportFile = None,
    *,
    witnesses: WitnessOptions,
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
    3.
    """
    if report is not None:
        console.require_writable(report, "--report", as_json=json)
    where = source.target()
    where.require_chain_of_its_own()
    consulted = witnesses.witnesses()
    earlier = None if since is None else read_earlier(since, "--since")
    request = AuditRequest(head, strict, earlier, jobs, tuple(rules or ()), consulted)
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
    source: EvidenceOptions,
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
    bounds = rounds_between(None, rounds)
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
