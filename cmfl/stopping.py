"""The end of a run by its early-stop rule: what chain and files say of it, apart from the audit.

The chain records the rule, by the digest of the run document, and how many rounds have ended. It
records no measurement: that the rule was met is a claim of the run's own files.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from cmfl.where import Target


class StopOutcome(StrEnum):
    """Result of the comparison of rule, rows and chain."""

    STOPPED = "stopped"
    """By its rows the rule ended the run, where the chain ends."""
    ALL_ROUNDS = "all rounds"
    """The run has ended with its last round."""
    NOT_MET = "not met"
    """By its rows the rule has not ended the run: it goes on, or was cut off."""
    PASSED_OVER = "passed over"
    """By its rows the rule ended the run, and the chain has later rounds."""
    UNKNOWN = "unknown"
    """There are no rows here, or they are not of this chain."""


@dataclass(frozen=True, slots=True)
class StopCheck:
    """What is known of a run's early stop."""

    outcome: StopOutcome
    sentence: str


def check_stop(target: Target) -> StopCheck | None:
    """Return what is known of a run's early stop; None if its document has no such rule."""
    from ledger.chain.round_ledger import ends_after
    from ledger.claims import claimed_rounds
    from ledger.early_stop import SECTION, EarlyStopRule, stop_after
    from ledger.protocol.canonical import MAX_DOCUMENT_BYTES
    from ledger.protocol.documents.run import decode_run

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
        return StopCheck(StopOutcome.ALL_ROUNDS, f"all {planned} rounds have ended")
    if not is_known:
        why = "the measured values are not here" if not rows else "the rows are not of this chain"
        outcome, reason = StopOutcome.UNKNOWN, f"whether by {SECTION} is unknown: {why}"
    elif stop is None:
        outcome, reason = StopOutcome.NOT_MET, f"by its own files {SECTION} has not ended the run"
    else:
        outcome = StopOutcome.STOPPED if stop.round == ended else StopOutcome.PASSED_OVER
        reason = f"by its own files, {stop.sentence}"
    return StopCheck(outcome, f"{ended} of {planned} rounds have ended; {reason}")
