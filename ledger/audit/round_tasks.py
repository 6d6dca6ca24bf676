"""What is to be checked of a decided round, and what was found: all that goes between processes.

Both are values of this project's own types. No blob is among them: whoever checks a round reads its
blobs itself, and hashes them itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ledger.audit.codes import Step
    from ledger.audit.report import StepResult
    from ledger.protocol.inputs import Inputs
    from ledger.protocol.ledger_state import RoundDecided
    from ledger.protocol.types import ClientId, Digest


@dataclass(frozen=True, slots=True)
class RoundTask:
    """A decided round whose record and blobs are to be checked.

    Attributes:
        block: that decided it.
        inputs: what the chain closed for it.
        event: the decision.
        model: digest of w_t, which it began with.
        origin: digest of w_s, where the travel begins that its distances stand on; None if they
            stand on none, or it is not known.
    """

    block: int
    inputs: Inputs
    event: RoundDecided
    model: Digest
    origin: Digest | None


@dataclass(frozen=True, slots=True)
class MissingPayload:
    """A payload that a round's record says was missing.

    Attributes:
        block: that decided the round.
        round: t.
        client: whose it is.
        commitment: that it would open.
    """

    block: int
    round: int
    client: ClientId
    commitment: Digest


@dataclass(frozen=True, slots=True)
class CheckedRound:
    """What the ten steps say of a decided round.

    Attributes:
        block: newest block that it rests on.
        said: by which step, and what, in their order.
        missing: payloads that the record calls missing.
        named: digests of the blobs that were asked for.
        blobs_read: how many of them were there.
        bytes_read: how long those are together.
    """

    block: int
    said: tuple[tuple[Step, StepResult], ...]
    missing: tuple[MissingPayload, ...]
    named: frozenset[Digest]
    blobs_read: int
    bytes_read: int


@dataclass(frozen=True, slots=True)
class Milestone:
    """A round has been seen to its end.

    Attributes:
        done: how many.
        total: how many rounds have ended.
    """

    done: int
    total: int
