"""The checkpoints of a run that its logs and witnesses give, as of now."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeAlias

from ledger.transparency.checkpoints import SignedCheckpoint, open_checkpoint
from ledger.transparency.errors import NoteError, WitnessError
from ledger.transparency.keys import VerifierKey
from ledger.transparency.policy import PolicyKey, WitnessPolicy
from ledger.transparency.remote import (
    OtherSizeError,
    ask_all,
    checkpoint_at,
    cosigned_by,
    newest_of_witness,
    shown,
)
from ledger.transparency.witnessed import DEFAULT_MAX_AGE_SECONDS, CheckpointEvidence, weigh


def collect(
    policy: WitnessPolicy,
    logs: Sequence[PolicyKey],
    places: Sequence[str],
    clock: Callable[[], float],
    max_age_seconds: float = DEFAULT_MAX_AGE_SECONDS,
) -> CheckpointEvidence:
    """Ask logs and witnesses for their newest checkpoints of a run, and weigh them.

    Each witness with a URL is also asked to cosign the largest checkpoint again, or its own newest
    one: its answer says as of now that it has seen no larger one.

    Args:
        places: URLs, folders or files with checkpoints, beside those of the policy.
        clock: seconds since 1970.
    """
    keys = [log.key for log in logs]
    sources = [*places, *(log.url for log in logs if log.url is not None)]
    requests = [
        partial(_opened, keys, shown(place), partial(checkpoint_at, place)) for place in sources
    ]
    witnesses = [each for each in policy.witnesses.values() if each.url is not None]
    requests += [partial(_newest, keys, witness, log.name) for witness in witnesses for log in logs]
    answers = ask_all(requests)
    largest: dict[str, SignedCheckpoint] = {}
    for signed in answers:
        if isinstance(signed, SignedCheckpoint):
            origin, size = signed.checkpoint.origin, signed.checkpoint.size
            if origin not in largest or largest[origin].checkpoint.size < size:
                largest[origin] = signed
    answers += ask_all(
        [
            partial(_cosigned_again, keys, witness, signed)
            for witness in witnesses
            for signed in largest.values()
        ]
    )
    signed_ones = [each for each in answers if isinstance(each, SignedCheckpoint)]
    failures = [each for each in answers if isinstance(each, _Failure)]
    evidence = weigh(policy, signed_ones, clock(), max_age_seconds)
    return replace(
        evidence,
        failures=(*dict.fromkeys(each.sentence for each in failures), *evidence.failures),
        withheld=tuple(each.sentence for each in failures if each.is_withheld),
    )


@dataclass(frozen=True, slots=True)
class _Failure:
    """The reason why there is no checkpoint.

    Attributes:
        is_withheld: whether a witness names a larger one, and does not show it.
    """

    sentence: str
    is_withheld: bool = False


_Answer: TypeAlias = "SignedCheckpoint | _Failure | None"


def _opened(keys: Sequence[VerifierKey], source: str, read: Callable[[], bytes | None]) -> _Answer:
    """Return a checkpoint that a log of the run has signed, or why there is none."""
    try:
        note = read()
        return None if note is None else open_checkpoint(note, keys)
    except NoteError as error:
        return _Failure(f"{source}: {error}")
    except WitnessError as error:
        return _Failure(str(error))


def _newest(keys: Sequence[VerifierKey], witness: PolicyKey, origin: str) -> _Answer:
    source = f"{witness.name}, of {origin}"
    return _opened(keys, source, partial(newest_of_witness, witness.url or "", origin))


def _cosigned_again(
    keys: Sequence[VerifierKey], witness: PolicyKey, largest: SignedCheckpoint
) -> _Answer:
    """Return the largest checkpoint as a witness cosigns it now, or else the newest one of its."""
    size, origin = largest.checkpoint.size, largest.checkpoint.origin
    try:
        return _cosigned_now(witness, largest)
    except OtherSizeError as other:
        newest = _newest(keys, witness, origin)
        if not isinstance(newest, SignedCheckpoint) or newest.checkpoint.size < other.size:
            # The log has gone on meanwhile, or somebody is hiding that it has.
            sentence = f"{other}, and the largest checkpoint here has {size}"
            return _Failure(sentence, is_withheld=other.size > size)
        if newest.checkpoint.size >= size:
            return newest
        try:
            # Nobody has shown it the largest one: a publisher may have been killed.
            return _cosigned_now(witness, newest)
        except WitnessError as error:
            return _Failure(str(error))
    except WitnessError as error:
        return _Failure(str(error))


def _cosigned_now(witness: PolicyKey, signed: SignedCheckpoint) -> SignedCheckpoint:
    line = cosigned_by(witness, signed, signed.checkpoint.size).line
    return replace(signed, note=signed.alone().with_signatures([line]))
