"""Types of the status of an open round."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from ledger.protocol.types import ClientId, Digest, Phase, VoteKind

if TYPE_CHECKING:
    from ledger.actors.view_timing import ViewSpan


class RoundStage(StrEnum):
    """The stage of an open round."""

    COMMITTING = "committing"
    """Commitments are taken."""
    COLLECTING = "collecting"
    """Closed: payloads and the first score vectors are published."""
    AGGREGATING = "aggregating"
    """A view of phase 1 goes on."""
    ELECTING = "electing"
    """Phase 1 is certified, and a view of phase 2 goes on."""
    DECIDING = "deciding"
    """Both phases are certified: the decision is waited for."""
    EXHAUSTED = "exhausted"
    """All views have passed: the deadline is waited for."""


class ParticipantRole(StrEnum):
    """The role of an active client in a round."""

    TRAINER = "trainer"
    MEMBER = "member"
    EMPTY_SEAT = "empty_seat"
    """A member that was banned when the round opened."""


class ActionKind(StrEnum):
    """The kind of an action that is expected of a client."""

    COMMITMENT = "commitment"
    PAYLOAD = "payload"
    SCORES = "scores"
    REQUEST = "request"
    REPLY = "reply"
    DECISION = "decision"


@dataclass(frozen=True, slots=True)
class ExpectedAction:
    """One thing that is waited for from a client.

    Attributes:
        due: when an honest client that is reached by everything has done it, in the chain's
            seconds; None while a block decides and no clock.
    """

    act: ActionKind
    due: float | None


@dataclass(frozen=True, slots=True)
class ScoredSet:
    """A set of updates for which a member has signed a score vector.

    Attributes:
        size: how many clients are in it; None where the vector is not one of this set.
    """

    clients: Digest
    size: int | None


@dataclass(frozen=True, slots=True)
class CastVote:
    """A slot in which a member has signed.

    Attributes:
        different: how many different votes it has signed there; two are equivocation.
    """

    kind: VoteKind
    phase: Phase
    view: int
    different: int


@dataclass(frozen=True, slots=True)
class PassedView:
    """A view that has passed without its primary's request."""

    phase: Phase
    view: int


@dataclass(frozen=True, slots=True)
class ClientRoundStatus:
    """One active client, by what chain and mailbox hold of it.

    Attributes:
        place: on the committee, from 0; None for a trainer.
        committed_block: block with its commitment; None without.
        is_banned: whether the chain holds a ban of it, which counts from the next round on.
        counts: whether that is known to have come by the closing block; None while it is open.
        announced: digest of the payload that opens its commitment; None before it is published.
        has_equivocated: whether it has signed two statements where one is allowed.
        late_since: when the first of it was due, in the chain's seconds; None if nothing is late.
    """

    client: ClientId
    role: ParticipantRole
    place: int | None
    committed_block: int | None
    is_banned: bool
    counts: bool | None = None
    announced: Digest | None = None
    scored: tuple[ScoredSet, ...] = ()
    votes: tuple[CastVote, ...] = ()
    has_equivocated: bool = False
    passed: tuple[PassedView, ...] = ()
    awaited: tuple[ExpectedAction, ...] = ()
    late_since: float | None = None


@dataclass(frozen=True, slots=True)
class OpenRoundStatus:
    """The status of an open round.

    Attributes:
        deadline_block: the first block in which it may be abandoned.
        clients: the active ones, ascending.
        closing_block: block up to which commitments count; None while that is open.
        closed_at: that block's time; None while that is open.
        phase: what is voted on; None before the first view, and after the last certificate.
        span: the view in time; None where no view is running. Of phase 2 it depends on when the
            certificate of phase 1 was first seen, which is not the same moment for everybody.
        primary: of the view; None where no view goes on.
        certified: view in which each phase was certified; None for one that is not.
    """

    round: int
    stage: RoundStage
    opened_block: int
    window_block: int
    deadline_block: int
    clients: tuple[ClientRoundStatus, ...]
    closing_block: int | None = None
    closed_at: float | None = None
    phase: Phase | None = None
    span: ViewSpan | None = None
    primary: ClientId | None = None
    certified: tuple[int | None, int | None] = (None, None)

    @property
    def late(self) -> tuple[ClientRoundStatus, ...]:
        """Late clients, the longest first."""
        since = [(c.late_since, c.client, c) for c in self.clients if c.late_since is not None]
        return tuple(client for *_, client in sorted(since, key=lambda one: one[:2]))
