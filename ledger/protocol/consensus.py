"""The arithmetic of Algorithm 2: primaries, quorums, certificates."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ledger.protocol.encoding import keccak256, u8, u32
from ledger.protocol.types import ClientId, Digest, Phase, Quorum, SignedVote, Vote

MAX_VIEWS = 32
"""Views after which a committee gives up; the last would begin after 2^32 times `view_seconds`."""


@dataclass(frozen=True, slots=True)
class QuorumCertificate:
    """A decision's proof: the primary's request and a quorum of equal replies.

    Attributes:
        replies: of other members, in the order of the committee.
    """

    request: SignedVote
    replies: tuple[SignedVote, ...]

    @property
    def vote(self) -> Vote:
        """The vote that both request and replies carry."""
        return self.request.vote

    def signers(self, committee: Sequence[ClientId]) -> int:
        """Return the seats of those who replied, as a bitmap."""
        return sum(1 << committee.index(reply.member) for reply in self.replies)


def primary_seat(seed: Digest, phase: Phase, view: int, members: int) -> int:
    """Return the primary's seat in [0, C), random as the seed (Algorithm 2, line 2).

    View 0 is the first; each later one follows a primary that did not bring consensus.
    """
    return int.from_bytes(keccak256(seed + u8(phase) + u32(view))) % members


def sending_order(seed: Digest, members: Iterable[ClientId]) -> tuple[ClientId, ...]:
    """Return members in the order in which they send a decision, random as the seed."""
    return tuple(sorted(members, key=lambda member: keccak256(seed + b"decide" + u32(member))))


def replies_needed(members: int, quorum: Quorum) -> int:
    """Return the number of equal replies from members other than the primary that decide.

    `paper`: floor(C/2) + 1; `bft`: with the request a Byzantine quorum of ceil((C + f + 1) / 2),
    f = floor((C - 1) / 3).
    """
    if quorum is Quorum.PAPER:
        return majority(members)
    faulty = (members - 1) // 3
    return (members + faulty + 2) // 2 - 1


def majority(members: int) -> int:
    """Return floor(C/2) + 1: the score vectors that must count before anything is decided."""
    return members // 2 + 1
