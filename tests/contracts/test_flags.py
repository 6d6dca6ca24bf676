"""Who may be ranked, where flags of clients are kept in several words and few hold a member."""

from __future__ import annotations

import pytest

from ledger.chain.ports import ChainWriter
from ledger.protocol import encoding
from ledger.protocol.errors import RefusalCode
from ledger.protocol.types import ClientId
from tests.contracts import support
from tests.contracts.twins import Shape, Twins

FLAGS = 224
SHAPE = Shape(600, 12, 3, commit_blocks=12, deadline_blocks=60)


def opened(chain: ChainWriter) -> Twins:
    """Return twins of whose three words of flags at least one holds no member's flag."""
    twins = Twins.opened(chain, SHAPE)
    assert len(words_with_members(twins)) < 3
    return twins


def words_with_members(twins: Twins) -> set[int]:
    return {member // FLAGS for member in twins.state.committee}


def outside(twins: Twins, *, with_member: bool) -> list[ClientId]:
    """Return the clients, no members, whose word of flags holds a member's or none."""
    words, committee = words_with_members(twins), twins.state.committee
    everybody = map(ClientId, range(SHAPE.clients))
    return [
        client
        for client in everybody
        if client not in committee and (client // FLAGS in words) == with_member
    ]


@pytest.mark.parametrize("with_member", [True, False])
def test_only_who_has_committed_is_ranked(chain: ChainWriter, with_member: bool) -> None:
    twins = opened(chain)
    able, idle = outside(twins, with_member=with_member), 12
    support.commit_all(twins, able[:idle])

    def decide(*clients: ClientId) -> object:
        words = ((1 + place) << 32 | client for place, client in enumerate(clients))
        return twins.decide(support.proposal(twins, tuple(words)))

    assert decide(*able[: idle - 1], able[idle]) is RefusalCode.NO_COMMITMENT
    assert decide(able[idle], *able[: idle - 1]) is RefusalCode.NO_COMMITMENT
    assert decide(*able[: idle - 1], able[0]) is RefusalCode.REPEATED_CLIENT
    assert decide(able[0], able[0], *able[1 : idle - 1]) is RefusalCode.REPEATED_CLIENT
    assert isinstance(decide(*able[:idle]), tuple)


@pytest.mark.parametrize("others_with_member", [True, False])
def test_no_member_is_ranked_whether_it_has_committed_or_not(
    chain: ChainWriter, others_with_member: bool
) -> None:
    twins = opened(chain)
    able, (first, *rest) = outside(twins, with_member=others_with_member), twins.state.committee
    support.commit_all(twins, [*able[:12], *rest])
    for member in (first, *rest):
        for place in (0, 6, 11):
            clients = [*able[:place], member, *able[place:11]]
            words = tuple((1 + at) << 32 | client for at, client in enumerate(clients))
            assert twins.decide(support.proposal(twins, words)) is RefusalCode.MEMBER_RANKED
    honest = support.proposal(twins, support.ranking_of(able[:12]))
    assert {encoding.word_client(word) for word in honest.decision.ranking} == set(able[:12])
    assert isinstance(twins.decide(honest), tuple)


def test_flags_of_the_round_before_are_worth_nothing(chain: ChainWriter) -> None:
    twins = opened(chain)
    able = [*outside(twins, with_member=True)[:6], *outside(twins, with_member=False)[:6]]
    support.commit_all(twins, able)
    assert isinstance(twins.decide(support.proposal(twins, support.ranking_of(able))), tuple)
    left = [client for client in able if client not in twins.state.committee]
    twins.close_commitments()
    ranking = support.ranking_of(left)
    assert twins.decide(support.proposal(twins, ranking)) is RefusalCode.NO_COMMITMENT
