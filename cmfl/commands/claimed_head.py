"""Comparison of the head that a run's files claim with the chain's."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from cmfl.where import Target
from ledger.claims import ClaimedRun
from ledger.io.home import Home


class HeadOutcome(StrEnum):
    """Result of the comparison."""

    MATCHES = "matches"
    DIFFERS = "differs"
    MISSING = "missing"
    """The round has not ended on the chain."""
    UNCLAIMED = "unclaimed"
    IN_MEMORY = "in_memory"
    """The run was on the memory ledger, without a chain."""
    NOT_ASKED = "not_asked"
    """The run is on a node's chain, and no node was named."""


@dataclass(frozen=True, slots=True)
class HeadComparison:
    """A claimed head and the chain's.

    Attributes:
        round: after which both apply; None if nothing is claimed.
        claimed: by the run's files, 0x-hex; None if nothing is.
        head: of the chain, 0x-hex; None if it has none, or was not asked.
    """

    outcome: HeadOutcome
    round: int | None
    claimed: str | None
    head: str | None = None

    @property
    def contradicts(self) -> bool:
        """True if the run's files contradict the chain."""
        return self.outcome in {HeadOutcome.DIFFERS, HeadOutcome.MISSING}


def compare_head(target: Target, claimed: ClaimedRun) -> HeadComparison:
    """Return the comparison of the last head that a run claims.

    Args:
        target: an existing run, and its chain.
        claimed: by its files.

    Raises:
        ChainError: the chain is damaged or unreachable, or the contract is not the run's.
    """
    from ledger.chain.contract.manifest import read_run_manifest, was_in_memory

    paths = Home(target.home).run(target.run or "")
    number = claimed.last_round
    if number is None:
        return HeadComparison(HeadOutcome.UNCLAIMED, None, None)
    if not paths.manifest.exists() and was_in_memory(paths):
        return HeadComparison(HeadOutcome.IN_MEMORY, number, claimed.head)
    with target.ledger_of(read_run_manifest(paths)) as ledger:
        if ledger is None:
            return HeadComparison(HeadOutcome.NOT_ASKED, number, claimed.head)
        history = target.history(ledger.chain)
        ended = history.rounds(number, number) if 0 < number <= history.newest() else []
    end = ended[0].end if ended else None
    if end is None:
        return HeadComparison(HeadOutcome.MISSING, number, claimed.head)
    head = f"0x{end.head.hex()}"
    same = HeadOutcome.MATCHES if head == claimed.head else HeadOutcome.DIFFERS
    return HeadComparison(same, number, claimed.head, head)


def head_message(run: str, comparison: HeadComparison) -> str:
    """Return the comparison in a sentence."""
    after = f"after round {comparison.round}"
    claims = f"{run} claims head {comparison.claimed} {after}"
    return {
        HeadOutcome.MATCHES: f"{run}: the chain has the claimed head {after}",
        HeadOutcome.DIFFERS: f"{claims}, and the chain has {comparison.head}: its files were "
        f"altered, or are not of this chain",
        HeadOutcome.MISSING: f"{claims}, and on the chain that round has not ended: its files were "
        f"altered, or the chain has lost its end",
        HeadOutcome.UNCLAIMED: f"{run}: its metrics.jsonl has no row here, so it claims no head",
        HeadOutcome.IN_MEMORY: f"{run}: it ran on the memory ledger, so no chain has its head",
        HeadOutcome.NOT_ASKED: f"{run}: it is on a node's chain, which was not asked: --rpc-url "
        f"names the node",
    }[comparison.outcome]
