"""The checkpoints of a run that an auditor could get, and the newest one that a quorum stands for.

A signature of the log alone binds it: two trees of one size, or a tree that the run does not have,
contradict. That nothing newer exists is what a quorum of witnesses stands for, as of the time of
their cosignatures; so these may be neither old nor from the future.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ledger.transparency.errors import NoteError

if TYPE_CHECKING:
    from ledger.transparency.checkpoints import Checkpoint, Cosignature, SignedCheckpoint
    from ledger.transparency.policy import WitnessPolicy

SKEW_SECONDS = 300
"""How far a witness's clock may be ahead of the auditor's."""
DEFAULT_MAX_AGE_SECONDS = 86_400


@dataclass(frozen=True, slots=True)
class WitnessedCheckpoint:
    """A checkpoint that a quorum has cosigned recently enough.

    Attributes:
        time: seconds since 1970, as of which a quorum of them says that nothing is newer.
    """

    checkpoint: Checkpoint
    witnesses: tuple[str, ...]
    time: int


@dataclass(frozen=True, slots=True)
class CheckpointEvidence:
    """What logs and witnesses say of a run.

    Attributes:
        checkpoints: every tree that a log of the run has signed, each once, the largest first.
        witnessed: the largest one with a quorum; None if there is none.
        failures: why something could not be had or does not count, a sentence for each.
    """

    checkpoints: tuple[Checkpoint, ...]
    witnessed: WitnessedCheckpoint | None
    failures: tuple[str, ...] = ()
    withheld: tuple[str, ...] = ()

    def conflict(self) -> tuple[Checkpoint, Checkpoint] | None:
        """Return two trees of one size that one log has signed; None if there are none."""
        trees: dict[tuple[str, int], Checkpoint] = {}
        for checkpoint in self.checkpoints:
            other = trees.setdefault((checkpoint.origin, checkpoint.size), checkpoint)
            if other.root != checkpoint.root:
                return other, checkpoint
        return None


def weigh(
    policy: WitnessPolicy,
    signed: Iterable[SignedCheckpoint],
    now: float,
    max_age_seconds: float,
) -> CheckpointEvidence:
    """Return what signed checkpoints are worth under a policy.

    Args:
        now: seconds since 1970.
    """
    by_text: dict[str, list[SignedCheckpoint]] = {}
    for each in signed:
        by_text.setdefault(each.note.text, []).append(each)
    notes = sorted(by_text.values(), key=lambda group: -group[0].checkpoint.size)
    checkpoints = tuple(dict.fromkeys(group[0].checkpoint for group in notes))
    failures: list[str] = []
    for group in notes:
        counted, doubts = _counted(policy, group, now, max_age_seconds)
        failures += doubts
        if policy.is_met(counted):
            time = _quorum_time(policy, counted)
            witnessed = WitnessedCheckpoint(group[0].checkpoint, tuple(sorted(counted)), time)
            return CheckpointEvidence(checkpoints, witnessed, tuple(failures))
        failures.append(
            f"{len(counted)} of {len(policy.witnesses)} witnesses have cosigned the "
            f"{group[0].checkpoint.size} entries of {group[0].checkpoint.origin} recently, which "
            f"is no quorum"
        )
    return CheckpointEvidence(checkpoints, None, tuple(failures))


def _counted(
    policy: WitnessPolicy, group: Sequence[SignedCheckpoint], now: float, max_age_seconds: float
) -> tuple[dict[str, int], list[str]]:
    """Return the times of the cosignatures that count, by witness, and why others do not."""
    newest: dict[str, int] = {}
    doubts: list[str] = []
    for witness in policy.witnesses.values():
        cosignatures: list[Cosignature] = []
        for signed in group:
            try:
                cosignatures += signed.cosignatures([witness.key])
            except NoteError as error:
                doubts.append(str(error))
        current = [each.time for each in cosignatures if each.time <= now + SKEW_SECONDS]
        if len(current) < len(cosignatures):
            doubts.append(f"a cosignature of {witness.name} is from the future")
        if current and max(current) < now - max_age_seconds:
            age = (now - max(current)) / 3600
            doubts.append(f"the cosignature of {witness.name} is {age:.1f} hours old")
        elif current:
            newest[witness.name] = max(current)
    return newest, doubts


def _quorum_time(policy: WitnessPolicy, times: dict[str, int]) -> int:
    """Return the latest time as of which a quorum has cosigned; 0 if no witness is needed."""
    names: list[str] = []
    for name in sorted(times, key=lambda name: -times[name]):
        names.append(name)
        if policy.is_met(names):
            return times[name]
    return 0
