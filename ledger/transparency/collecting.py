"""The checkpoints of a run that its logs and witnesses give, as of now."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from ledger.transparency.checkpoints import open_checkpoint
from ledger.transparency.errors import NoteError, WitnessError
from ledger.transparency.remote import (
    OtherSizeError,
    checkpoint_at,
    cosigned_by,
    newest_of_witness,
)
from ledger.transparency.witnessed import DEFAULT_MAX_AGE_SECONDS, weigh

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ledger.transparency.checkpoints import SignedCheckpoint
    from ledger.transparency.policy import PolicyKey, WitnessPolicy
    from ledger.transparency.witnessed import CheckpointEvidence


def collect(
    policy: WitnessPolicy,
    logs: Sequence[PolicyKey],
    places: Sequence[str],
    clock: Callable[[], float],
    max_age_seconds: float = DEFAULT_MAX_AGE_SECONDS,
) -> CheckpointEvidence:
    """Ask logs and witnesses for their newest checkpoints of a run, and weigh them.

    Each witness with a URL is also asked to cosign the largest checkpoint again: its answer says as
    of now that it has seen no larger one.

    Args:
        policy: the witnesses, and how many are enough.
        logs: those of the policy that are the run's.
        places: URLs, folders or files with checkpoints, beside those of the policy.
        clock: seconds since 1970.
        max_age_seconds: of a cosignature that counts.
    """
    collected = _Collected(logs)
    for place in (*places, *(log.url for log in logs if log.url is not None)):
        collected.add(place, partial(checkpoint_at, place))
    witnesses = [each for each in policy.witnesses.values() if each.url is not None]
    for witness in witnesses:
        for log in logs:
            source = f"{witness.name}, of {log.name}"
            collected.add(source, partial(newest_of_witness, witness.url or "", log.name))
    if collected.signed:
        largest = max(collected.signed, key=lambda signed: signed.checkpoint.size)
        for witness in witnesses:
            collected.ask_again(witness, largest)
    evidence = weigh(policy, collected.signed, clock(), max_age_seconds)
    failures = (*collected.failures, *evidence.failures)
    return replace(evidence, failures=failures, withheld=tuple(collected.withheld))


class _Collected:
    """Checkpoints of some logs as they come.

    Attributes:
        signed: those that a log of the run has signed.
        failures: why others could not be had.
        withheld: sizes beyond them that witnesses name.
    """

    def __init__(self, logs: Sequence[PolicyKey]) -> None:
        self._keys = [log.key for log in logs]
        self.signed: list[SignedCheckpoint] = []
        self.failures: list[str] = []
        self.withheld: list[str] = []

    def add(self, source: str, read: Callable[[], bytes | None]) -> None:
        """Add a checkpoint, or why there is none."""
        try:
            note = read()
            if note is not None:
                self.signed.append(open_checkpoint(note, self._keys))
        except NoteError as error:
            self.failures.append(f"{source}: {error}")
        except WitnessError as error:
            self.failures.append(str(error))

    def ask_again(self, witness: PolicyKey, largest: SignedCheckpoint) -> None:
        """Add a witness's cosignature of the largest checkpoint, as of now."""
        try:
            line = cosigned_by(witness, largest, largest.checkpoint.size).line
        except OtherSizeError as other:
            sentence = f"{other}, and {largest.checkpoint.size} are in the largest checkpoint here"
            is_larger = other.size > largest.checkpoint.size
            (self.withheld if is_larger else self.failures).append(sentence)
        except WitnessError as error:
            if str(error) not in self.failures:
                self.failures.append(str(error))
        else:
            note = largest.alone().with_signatures([line])
            self.signed.append(replace(largest, note=note))
