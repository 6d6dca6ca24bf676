"""Audits of a run, their early stop check, what witnesses state, and checks of proofs.

The chain records the rule, by the digest of the run document, and how many rounds have ended. It
records no measurement: that the rule was met is a claim of the run's own files.
"""

from __future__ import annotations

import html
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from cmfl.arguments import LIST, checked, digest_of_head, reference, require
from cmfl.display import Table, tracking
from cmfl.recorded import Proof, Run, read, target_of
from cmfl.where import Target, chain_id_of, opened_ledger, target_on_node
from ledger.audit.anchors import (
    MAX_REPORT_BYTES,
    EarlierAudit,
    EarlierReportError,
    read_report,
    report_bytes,
)
from ledger.audit.engine import AuditOptions
from ledger.audit.engine import audit as run_audit
from ledger.audit.proofs.recorded import read_trusted_contract
from ledger.audit.proofs.verification import ProofVerification, Trusted, TrustedHead, verify_proof
from ledger.audit.report import AnchoredHead, AuditReport
from ledger.audit.report_text import readable
from ledger.audit.round_checker import AuditWorkers
from ledger.chain.round_ledger import ends_after
from ledger.claims import SECTION, EarlyStopRule, claimed_rounds, stop_after
from ledger.distances import usable_cores
from ledger.io.home import naming, read_file, write_named
from ledger.protocol.canonical import MAX_DOCUMENT_BYTES
from ledger.protocol.documents.run import decode_run
from ledger.protocol.encoding import to_canonical
from ledger.protocol.errors import ConfigurationError
from ledger.protocol.types import Address, ClientId
from ledger.transparency import policy as policies
from ledger.transparency.tree import run_suffix


@dataclass(frozen=True, slots=True)
class StopCheck:
    """State of a run's early stop, by the rows of its own files.

    A rule has `stopped` the run if the chain ends there, and was `passed over` if later rounds
    exist. A rule that is `not met` has not ended the run, which goes on or was cut off. Without
    rows, or with rows of another chain, it is `unknown`.
    """

    outcome: Literal["stopped", "all rounds", "not met", "passed over", "unknown"]
    sentence: str


def check_stop(target: Target) -> StopCheck | None:
    """Return what is known of a run's early stop; None if its document has no such rule."""
    with target.reader() as chain:
        ledger = target.ledger(chain)
        deployment = ledger.deployment()
        document = decode_run(target.published().get(deployment.config, MAX_DOCUMENT_BYTES))
        rule = EarlyStopRule.of(document.experiment)
        if rule is None:
            return None
        ends = ends_after(ledger, 0)
    heads = {f"0x{end.head.hex()}" for end in ends}
    ended, planned = len(ends), deployment.rounds
    is_home = target.address is None and target.remote is None
    rows = list(claimed_rounds(target.run_paths())) if is_home else []
    is_known = bool(rows) and all(row.head in heads for row in rows)
    stop = stop_after(rule, rows).stop if is_known else None
    if ended == planned and (stop is None or stop.round == ended):
        return StopCheck("all rounds", f"all {planned} rounds have ended")
    here = f"{ended} of {planned} rounds have ended"
    if not is_known:
        why = "the measured values are not here" if not rows else "the rows are not of this chain"
        return StopCheck("unknown", f"{here}; whether by {SECTION} is unknown: {why}")
    if stop is None:
        return StopCheck("not met", f"{here}; by its own files {SECTION} has not ended the run")
    outcome: Literal["stopped", "passed over"] = "stopped" if stop.round == ended else "passed over"
    return StopCheck(outcome, f"{here}; by its own files, {stop.sentence}")


MAX_AGE_HOURS = 1_000_000  # of a cosignature that counts


@dataclass(frozen=True, slots=True)
class Witnesses:
    """Logs and witnesses to ask about a run, places of more checkpoints, and a maximal age."""

    policy: policies.WitnessPolicy
    places: tuple[str, ...]
    max_age_seconds: float

    def evidence(self, chain_id: int, address: str) -> policies.CheckpointEvidence:
        """Return what logs and witnesses say of a run now; nothing of its chain is read."""
        from ledger.transparency.network import collect

        suffix = run_suffix(chain_id, Address(to_canonical(address)))
        logs = [log for log in self.policy.logs if log.name.endswith(suffix)]
        if not logs:
            named = ", ".join(log.name for log in self.policy.logs) or "none"
            raise ConfigurationError(
                f"the witness policy has no log of this run, whose origin ends with {suffix} (its "
                f"logs: {named})"
            )
        return collect(self.policy, logs, self.places, time.time, self.max_age_seconds)


def witnesses_of(
    policy: Path | None, places: Sequence[str], max_age_hours: float | None
) -> Witnesses | None:
    """Return a policy's logs and witnesses, if there is one; older cosignatures do not count."""
    # NaN is neither below nor above a bound, and would let any cosignature count.
    if max_age_hours is not None and not 0 <= max_age_hours <= MAX_AGE_HOURS:
        raise ConfigurationError(
            f"checkpoint max age {max_age_hours}: must be 0 to {MAX_AGE_HOURS} hours"
        )
    if policy is None:
        if places or max_age_hours is not None:
            raise ConfigurationError("a checkpoint needs --witness-policy")
        return None
    known = policy_in(policy)
    if known.quorum == policies.NONE:
        raise ConfigurationError(
            f"--witness-policy {policy}: quorum none requires no witness, and a log alone can "
            "replace its history; set a quorum"
        )
    seconds = policies.DEFAULT_MAX_AGE_SECONDS if max_age_hours is None else max_age_hours * 3600
    return Witnesses(known, tuple(places), seconds)


def policy_in(path: Path) -> policies.WitnessPolicy:
    """Return the policy in a file, as `--witness-policy` names it."""
    with naming(f"--witness-policy {path}", (OSError, ConfigurationError)):
        return policies.parse_policy(read_file(path, policies.MAX_POLICY_BYTES))


MOST_UNASKED = 4


class Audit:
    """The result of an audit.

    `report` is the ledger's, with its ten steps, findings and counts. `outcome` is "passed",
    "failed" (the record contradicts itself) or "incomplete".
    """

    def __init__(self, report: AuditReport) -> None:
        self.report = report
        self.outcome = str(report.outcome)

    @property
    def passed(self) -> bool:
        """True if everything was checked and is true."""
        return self.outcome == "passed"

    @property
    def verdict(self) -> str:
        """The outcome in a sentence."""
        return self.lines[-1]

    @property
    def lines(self) -> list[str]:
        """The report as `cmfl audit` prints it."""
        return readable(self.report)

    @property
    def steps(self) -> Table:
        """The ten steps: number, title, outcome, contradictions, and how much was missing."""
        return Table(
            {
                "step": int(step.number),
                "title": step.title,
                "outcome": str(step.outcome),
                "contradictions": step.contradictions,
                "missing": step.missing_count,
            }
            for step in self.report.steps
        )

    @property
    def findings(self) -> Table:
        """Misbehaviour that the record already handles: round, clients, kind, sentence."""
        names = ("round", "clients", "kind", "proven", "sentence")
        rows = ({name: getattr(found, name) for name in names} for found in self.report.findings)
        return Table(row | {"kind": str(row["kind"])} for row in rows)

    @property
    def head_to_keep(self) -> str | None:
        """The head of the last block known to be final, 0x-hex, for a later `head=`."""
        return self.report.deployment["final_head"] or None

    def as_dict(self) -> dict[str, Any]:
        """Return the report as plain data, as `cmfl audit --json` prints it."""
        return self.report.as_dict()

    @checked
    def save(self, path: str | Path) -> Path:
        """Write the report, which a later audit can build on; replace an existing file."""
        write_named(Path(path), report_bytes(self.report))
        return Path(path)

    def __repr__(self) -> str:
        return f"<cmfl.Audit {self.verdict}>"

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(chr(10).join(self.lines))}</pre>"


@checked
def audit(
    run: Run | str | Path | None = None,
    *,
    name: str | None = None,
    rpc_url: str | None = None,
    address: str | None = None,
    chain_id: int | None = None,
    blobs: str | Path | None = None,
    head: str | None = None,
    strict: bool = False,
    since: str | Path | None = None,
    jobs: int = 1,
    rules: str | Path | Callable[..., Any] | Sequence[str | Path | Callable[..., Any]] = (),
    witness_policy: str | Path | None = None,
    checkpoints: Sequence[str | Path] = (),
    checkpoint_max_age: float | None = None,
    anchors: str | Path | None = None,
    tsa_root: str | Path | None = None,
    progress: bool | None = None,
) -> Audit:
    """Check every round of a run from its chain and its blobs alone.

    Args:
        run: result of `cmfl.run`, `cmfl.open` or `cmfl.connect`, or the path of a home. The audit
            uses only the blobs of a service: also name chain and contract.
        name: name of the run, for a home with several.
        rpc_url: a node whose chain is read, in place of the home's own chain.
        address: address of the contract on that chain, 0x-hex.
        chain_id: id that the node must have; None accepts the node's own, which the report names.
        blobs: URL or folder of the blobs; each is compared with its digest.
        head: a head of this run that you have kept, 0x-hex: the run must pass through it.
        strict: take a remark for something that could not be checked.
        since: the saved report of an earlier audit that passed, trusted for its rounds.
        jobs: processes that check rounds; over 1 a script needs the usual
            `if __name__ == "__main__":`.
        rules: the run's own distance, if it has one: your copy of its file, or the function
            itself. It is executed if its digest is in the run document. The distance of a run that
            this process has played is known.
        witness_policy: file with known logs and witnesses (c2sp.org/tlog-policy), which are asked
            for their checkpoints of the run; None to skip them.
        checkpoints: URLs, folders or files of logs' checkpoints, besides the policy's URLs.
        checkpoint_max_age: maximal age of a cosignature in hours; None for 24.
        anchors: folder of anchors, as `cmfl log anchor` writes them: the run must have their heads.
        tsa_root: PEM file with certificates of time-stamping authorities that you trust.
        progress: True to show progress; None to show it at a terminal or in a notebook.

    Raises:
        ConfigurationError: run or contract is ambiguous, or an argument is wrong.
        ChainError: the chain cannot be read.
    """
    if jobs < 1:
        raise ConfigurationError(f"jobs = {jobs}: must be at least 1")
    if isinstance(rules, str | Path) or callable(rules):
        rules = (rules,)
    require(LIST, rules=rules)
    if isinstance(run, Run) and not rules:
        rules = run.rules
    target = audited_target(run, name, rpc_url, address, chain_id, blobs)
    earlier = None if since is None else read_earlier(Path(since), "since")
    policy = None if witness_policy is None else Path(witness_policy)
    age = None if checkpoint_max_age is None else float(checkpoint_max_age)
    witnesses = witnesses_of(policy, list(map(str, checkpoints)), age)
    sources = []
    for rule in rules:
        is_file = isinstance(rule, str | Path)
        code = "" if is_file else reference("rules", rule, target.home).rpartition(":")[0]
        sources.append(str(rule) if is_file else code)
    places = (None if each is None else Path(each) for each in (anchors, tsa_root))
    request = AuditRequest(head, strict, earlier, jobs, tuple(sources), witnesses, *places)
    with tracking("audit, rounds", shown=progress) as show:
        return Audit(audit_target(target, request, show))


@dataclass(frozen=True, slots=True)
class AuditRequest:
    """Options of an audit.

    The `head` is a known earlier one, 0x-hex. Without `jobs` there are as many processes as cores,
    up to `MOST_UNASKED`. The files of `rules` are run; witnesses are asked before the run is read.
    The folder `anchors` may hold tokens of authorities whose certificates `tsa_root` has.
    """

    head: str | None = None
    strict: bool = False
    earlier: EarlierAudit | None = None
    jobs: int | None = None
    rules: tuple[str, ...] = ()
    witnesses: Witnesses | None = None
    anchors: Path | None = None
    tsa_root: Path | None = None


def audit_target(
    target: Target, request: AuditRequest, on_progress: Callable[[int, int], None]
) -> AuditReport:
    """Audit what a target names; `on_progress` takes the rounds that are done, and their number."""
    if request.tsa_root is not None and request.anchors is None:
        raise ConfigurationError(f"--tsa-root {request.tsa_root}: needs the anchors (--anchors)")
    jobs = min(usable_cores(), MOST_UNASKED) if request.jobs is None else request.jobs
    known_head = None if request.head is None else digest_of_head(request.head)
    workers = None if jobs == 1 else AuditWorkers(jobs, target.published)
    with target.reader() as chain:
        ledger = target.ledger(chain, is_audited=True)
        # Before the chain is read: it only grows, so it must have all that they have seen by now.
        asked = request.witnesses
        checkpoints = None if asked is None else asked.evidence(chain.chain_id, ledger.address)
        anchors: tuple[AnchoredHead, ...] = ()
        if request.anchors is not None:
            from ledger.audit.anchored import read_anchors

            where = chain.chain_id, ledger.address
            anchors = read_anchors(request.anchors, request.tsa_root, *where)
        return run_audit(
            ledger,
            target.published(),
            AuditOptions(progress=on_progress, rules=request.rules, workers=workers),
            head=known_head,
            strict=request.strict,
            earlier=request.earlier,
            checkpoints=checkpoints,
            anchors=anchors,
        )


def read_earlier(path: Path, argument: str) -> EarlierAudit:
    """Return the audit behind a report."""
    with naming(f"{argument} {path}", (OSError, EarlierReportError)):
        return read_report(read_file(path, MAX_REPORT_BYTES))


def audited_target(
    run: Run | str | Path | None,
    name: str | None,
    rpc_url: str | None,
    address: str | None,
    chain_id: int | None,
    blobs: str | Path | None,
) -> Target:
    """Return the run that is audited, by the arguments of `audit`."""
    place, target = None if blobs is None else str(blobs), Target()
    if isinstance(run, Run):
        target = run.target
        if name not in {None, run.name}:
            raise ConfigurationError(f"name = {name!r}: the run is {run.name!r}")
    elif run is not None:
        target = target_of(Path(run), name)
    elif rpc_url is None or address is None or blobs is None:
        raise ConfigurationError(
            "name what to audit: a run, a home, or rpc_url=, address= and blobs= together"
        )
    remote = target.remote if place is None else None
    if rpc_url is not None:
        if target.remote is not None and address is None:
            raise ConfigurationError("rpc_url= needs address=, the contract that you trust")
        asked = chain_id_of(rpc_url, chain_id)
        return Target(target.home, target.run, address, rpc_url, asked, place, remote)
    if target.remote is not None and target.rpc_url is None:
        raise ConfigurationError(
            f"{target.remote.url} serves blobs, not a chain; name the trusted chain and "
            "contract with rpc_url= and address="
        )
    if address is not None or chain_id is not None:
        raise ConfigurationError("address= and chain_id= need rpc_url=")
    return replace(target, blobs_at=place or target.blobs_at, remote=remote)


class Verification:
    """The result of checking a proof.

    `result` is the ledger's, with all comparisons. `outcome` is "passed" (proven), "failed"
    (contradicted) or "incomplete"; `sentence` is the proven statement, or the refusal.
    """

    def __init__(self, result: ProofVerification) -> None:
        self.result = result
        self.outcome = str(result.outcome)
        self.sentence = result.sentence

    @property
    def passed(self) -> bool:
        """True if the statement is proven."""
        return self.outcome == "passed"

    @property
    def steps(self) -> Table:
        """The comparisons: name, what was expected, what was computed, whether they agree."""
        return Table(
            {
                "step": str(step.name),
                "expected": step.expected,
                "computed": step.computed,
                "ok": step.is_ok,
            }
            for step in self.result.steps
        )

    @property
    def caveats(self) -> tuple[str, ...]:
        """Sentences about what is not proven, however the comparisons end."""
        return tuple(caveat.sentence for caveat in self.result.caveats)

    def as_dict(self) -> dict[str, Any]:
        """Return the result as plain data, as `cmfl verify client --json` prints it."""
        return self.result.as_dict()

    def __repr__(self) -> str:
        return f"<cmfl.Verification {self.sentence}>"

    def _repr_html_(self) -> str:
        return f"<p>{html.escape(self.sentence)}</p>{self.steps._repr_html_()}"


@checked
def verify(
    proof: Proof | str | Path,
    *,
    round: int | None = None,  # noqa: A002 - read as verify(..., round=3)
    client: int | None = None,
    head: str | None = None,
    run: Run | str | Path | None = None,
    rpc_url: str | None = None,
    address: str | None = None,
    chain_id: int | None = None,
) -> Verification:
    """Check a proof that you received against a head, a run of yours, or a contract you trust.

    Args:
        proof: result of `Round.prove`, or the path of its file.
        round: the round that you asked about; None for the proof's own.
        client: the client that you asked about; None for the proof's own.
        head: a head that you have kept, 0x-hex.
        run: your own run or home, whose chain is trusted.
        rpc_url: a node that you trust, with address and chain_id as for `cmfl.audit`.

    Without anything that is trusted the outcome is "incomplete".

    Raises:
        ConfigurationError: more than one thing is to be trusted, or an argument is wrong.
        EncodingError: the file is not a proof.
        ChainError: the chain cannot be read.
    """
    sent = proof if isinstance(proof, Proof) else read(Path(proof))
    number = sent.round if round is None else round
    who = ClientId(sent.client if client is None else client)
    if sum(each is not None for each in (head, run, rpc_url)) > 1:
        raise ConfigurationError("give exactly one of head=, run= and rpc_url=")
    if (rpc_url is None) != (address is None):
        raise ConfigurationError("rpc_url= needs address=, the contract")
    target: Target | None = None
    if run is not None:
        target = run.target if isinstance(run, Run) else target_of(Path(run), None)
    elif rpc_url is not None and address is not None:
        target = target_on_node(rpc_url, address, chain_id)
    if target is not None and target.remote is not None:
        raise ConfigurationError("run: is a service, not trusted; give head= or rpc_url=")
    trusted = trusted_by(target, number, head)
    return Verification(verify_proof(sent.parsed, number, who, trusted))


def trusted_by(target: Target | None, number: int, head: str | None) -> Trusted | None:
    """Return what a proof of a round is held against: a head that was kept, else a contract."""
    if head is not None:
        return TrustedHead(digest_of_head(head))
    if target is None:
        return None
    with opened_ledger(target) as ledger:
        return read_trusted_contract(ledger, number)
