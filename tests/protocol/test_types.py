"""The words of the protocol."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ledger.protocol.types import Address, Phase, RegisteredClient, Vote, VoteKind
from tests.protocol.support import BASE, SEED

CLIENT = RegisteredClient(Address(bytes(20)), 1)
VOTE = Vote(VoteKind.REPLY, 3, Phase.ELECTION, 2, BASE, SEED, SEED)


def test_a_ban_counts_from_the_round_after_it() -> None:
    banned = replace(CLIENT, banned_in=3)
    assert [banned.is_banned_in(number) for number in (1, 2, 3, 4, 5)] == [False] * 3 + [True] * 2
    assert not any(CLIENT.is_banned_in(number) for number in (0, 1, 9))


@pytest.mark.parametrize(
    "other",
    [
        replace(VOTE, kind=VoteKind.REQUEST),
        replace(VOTE, round=4),
        replace(VOTE, phase=Phase.AGGREGATION),
        replace(VOTE, view=3),
        replace(VOTE, base=SEED),
    ],
)
def test_a_vote_elsewhere_is_no_second_vote(other: Vote) -> None:
    assert other.slot != VOTE.slot
