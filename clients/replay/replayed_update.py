"""Results of repeated training: a verdict for each update, and their report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ledger.protocol.encoding import to_hex
from ledger.protocol.training_replay import ReplayVerdict, TrainingEnvironment
from ledger.protocol.types import Address, ClientId, Domain

VERDICT_NAMES = {
    ReplayVerdict.SAME: "same",
    ReplayVerdict.OTHER: "other",
    ReplayVerdict.NOT_CHECKABLE: "not checkable",
}

_MOST_ATTESTATIONS = 20
"""Others' false attestations that are named: anybody can make keys without end."""

CONFIRMED = "confirmed"
FALSE = "false"
NOT_COMPARABLE = "not comparable"


@dataclass(frozen=True, slots=True)
class UpdateDifference:
    """Distance of a repeated update from the recorded one.

    Attributes:
        relative: of the length of the recorded update; None if that is zero.
        spread: in units of the median distance of the round's honest updates from their mean: of
            those that were repeated here, or if that is one alone, of the accepted ones; None where
            fewer than two are to be had, or where all of them are equal.
    """

    relative: float | None
    spread: float | None

    @classmethod
    def between(
        cls,
        repeated: NDArray[np.float32],
        recorded: NDArray[np.float32],
        honest: Sequence[NDArray[np.float32]],
    ) -> UpdateDifference:
        """Return the distance of two finite updates, each of shape (d,)."""
        distance = _norm(repeated, recorded)
        length = _norm(recorded, np.zeros(1, np.float32))
        spread = _spread(honest)
        return cls(
            relative=distance / length if length else None,
            spread=distance / spread if spread else None,
        )

    def __str__(self) -> str:
        parts = []
        if self.relative is not None:
            parts.append(f"{self.relative:.2g} of the recorded update's length")
        if self.spread is not None:
            parts.append(f"{self.spread:.2g} times the spread of honest updates")
        return ", ".join(parts) or "not in proportion to anything"


@dataclass(frozen=True, slots=True)
class ReplayedUpdate:
    """Result of repeating one update.

    Attributes:
        reason: sentence without a full stop; empty for "same".
        recorded: environment that the update's trainer recorded; None if it did not.
        losses: float32, little-endian, of every local step that was repeated; None where nothing
            was trained. They are a secret of who repeats: the witness of an attestation.
        difference: distance from the recorded update; None if the bits are equal, or there is no
            recorded update of the model's length.
    """

    round: int
    client: ClientId
    verdict: ReplayVerdict
    reason: str
    environment: TrainingEnvironment
    recorded: TrainingEnvironment | None = None
    losses: bytes | None = None
    difference: UpdateDifference | None = None

    @property
    def is_attestable(self) -> bool:
        """True if there is a verdict, and the losses for its witness."""
        return self.verdict is not ReplayVerdict.NOT_CHECKABLE and self.losses is not None

    def as_dict(self) -> dict[str, Any]:
        """Return it as plain data for JSON, without the losses."""
        difference = self.difference
        return {
            "round": self.round,
            "client": int(self.client),
            "verdict": VERDICT_NAMES[self.verdict],
            "reason": self.reason,
            "recorded_environment": None if self.recorded is None else str(self.recorded),
            "relative_distance": None if difference is None else difference.relative,
            "spread_distance": None if difference is None else difference.spread,
        }

    def __str__(self) -> str:
        subject = f"round {self.round}, client {self.client}: {VERDICT_NAMES[self.verdict]}"
        return f"{subject}: {self.reason}" if self.reason else subject


@dataclass(frozen=True, slots=True)
class ComparedAttestation:
    """Another's attestation, compared with the own repetition of the update.

    Attributes:
        reason: sentence without a full stop; empty for a confirmed one.
    """

    round: int
    client: ClientId
    auditor: Address
    finding: str
    reason: str

    @property
    def is_false(self) -> bool:
        """True if the repetition shows that it is false."""
        return self.finding == FALSE

    def as_dict(self) -> dict[str, Any]:
        """Return it as plain data for JSON."""
        return {
            "round": self.round,
            "client": int(self.client),
            "auditor": to_hex(self.auditor),
            "finding": self.finding,
            "reason": self.reason,
        }

    def __str__(self) -> str:
        about = f"attestation of round {self.round}, client {self.client}, by "
        reason = f": {self.reason}" if self.reason else ""
        return f"{about}{to_hex(self.auditor)}: {self.finding}{reason}"


@dataclass(frozen=True, slots=True)
class TrainingReplay:
    """Results of all updates that were chosen.

    Attributes:
        updates: ascending by round and client.
        published: number of own attestations that are in the mailbox.
        unpublished: reason why not all own attestations are there; empty if they are, and where
            nobody signs.
    """

    domain: Domain
    environment: TrainingEnvironment
    data: str
    updates: tuple[ReplayedUpdate, ...]
    attestations: tuple[ComparedAttestation, ...] = ()
    published: int = 0
    unpublished: str = ""

    @property
    def counts(self) -> dict[str, int]:
        """Number of updates by verdict, all three of them."""
        counted = Counter(update.verdict for update in self.updates)
        return {name: counted[verdict] for verdict, name in VERDICT_NAMES.items()}

    @property
    def verdict(self) -> ReplayVerdict:
        """Other if any is, else not checkable if any is, else same."""
        verdicts = {update.verdict for update in self.updates}
        for worst in (ReplayVerdict.OTHER, ReplayVerdict.NOT_CHECKABLE):
            if worst in verdicts:
                return worst
        return ReplayVerdict.SAME

    @property
    def sentence(self) -> str:
        """The numbers in a sentence."""
        same, other, not_checkable = self.counts.values()
        total = len(self.updates)
        return f"{same} of {total} updates same, {other} other, {not_checkable} not checkable"

    def lines(self, *, is_verbose: bool = False) -> Iterator[str]:
        """Yield the report for people: the numbers, where, and each update that is not the same.

        Updates that were not trained for one reason share a line.
        """
        yield self.sentence
        if any(update.losses is not None for update in self.updates):
            yield f"repeated with {self.environment}; {self.data}"
        else:
            yield f"{self.data}; the environment here is {self.environment}"
        shared = Counter(update.reason for update in self.updates if update.losses is None)
        for update in self.updates:
            if update.losses is None and shared[update.reason] > 1:
                continue
            if is_verbose or update.verdict is not ReplayVerdict.SAME:
                yield str(update)
        for reason, number in shared.items():
            if number > 1:
                yield f"{number} updates {VERDICT_NAMES[ReplayVerdict.NOT_CHECKABLE]}: {reason}"
        if self.attestations:
            findings = Counter(attestation.finding for attestation in self.attestations)
            named = ", ".join(f"{findings[name]} {name}" for name in sorted(findings))
            yield f"attestations by others: {named}"
        shown = [each for each in self.attestations if is_verbose or each.is_false]
        most = len(shown) if is_verbose else _MOST_ATTESTATIONS
        yield from map(str, shown[:most])
        if len(shown) > most:
            yield f"and {len(shown) - most} more false attestations: -v shows all"

    def as_dict(self) -> dict[str, Any]:
        """Return it as plain data for JSON, without the losses."""
        environment = self.environment
        return {
            "contract": to_hex(self.domain.contract),
            "chain_id": self.domain.chain_id,
            "verdict": VERDICT_NAMES[self.verdict],
            "counts": self.counts,
            "environment": {"class": str(environment), "digest": to_hex(environment.digest)},
            "data": self.data,
            "updates": [update.as_dict() for update in self.updates],
            "attestations": [attestation.as_dict() for attestation in self.attestations],
            "published": self.published,
            "unpublished": self.unpublished,
        }


def _spread(updates: Sequence[NDArray[np.float32]]) -> float | None:
    """Return the median distance of finite updates from their mean; None of fewer than two."""
    finite = [update for update in updates if np.isfinite(update).all()]
    if len(finite) < 2:
        return None
    mean: NDArray[np.float64] = np.mean(finite, axis=0, dtype=np.float64)
    return float(np.median([_norm(update, mean) for update in finite]))


def _norm(one: NDArray[np.float32], other: NDArray[np.float32] | NDArray[np.float64]) -> float:
    return float(np.linalg.norm(one.astype(np.float64) - other))
