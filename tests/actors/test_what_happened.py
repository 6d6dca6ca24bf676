"""Each attack on the first version that concerns who acts, and what comes of it now.

The numbers are the rows of the table in issue 5.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from clients.adversaries.faults import MemberFault
from ledger.actors.steps import SendCommitment
from ledger.protocol.documents.record import Incident, decode_incidents
from ledger.protocol.encoding import sha256, vector_bytes
from ledger.protocol.errors import RefusalCode
from ledger.protocol.ledger_state import ClientBanned, LedgerState, RoundDecided
from ledger.protocol.types import NO_DIGEST, ClientId, DropoutReason, Phase, RefusalReason
from tests.actors.support import (
    PARAMETERS,
    Network,
    committee_of,
    play,
    requested,
    scored,
    self_ban,
    signed_commitment,
    update_of,
)

AGGREGATION = Phase.AGGREGATION
SECONDS = float(PARAMETERS.view_seconds)


def decided_in(network: Network, number: int = 1) -> RoundDecided:
    decided = network.chain.decided(number)
    assert decided is not None
    network.require_right(decided, state_before(network, decided))
    return decided


def state_before(network: Network, decided: RoundDecided) -> LedgerState:
    place = next(i for i, b in enumerate(network.chain.blocks) if decided in b.events)
    return network.chain.blocks[place - 1].state


def incidents_of(network: Network, decided: RoundDecided) -> tuple[Incident, ...]:
    if decided.incidents == NO_DIGEST:
        return ()
    return decode_incidents(network.blobs[decided.incidents]).incidents


def refusals(network: Network) -> list[RefusalCode]:
    return [refusal.code for block in network.chain.blocks for _, refusal in block.refused]


def banned(network: Network) -> set[ClientId]:
    return {event.client for event in network.chain.events if isinstance(event, ClientBanned)}


# 1: a trainer that has committed bans itself before `decide`.


def test_1_self_ban_before_the_decision_does_not_block_it() -> None:
    network = Network()
    view = network.close()
    guilty = view.inputs.participants.trainers[2]
    network.chain.send(self_ban(network, guilty))
    network.chain.mine(network.now)
    play(network, committee_of(network).values())
    decided = decided_in(network)
    assert guilty in {word & 0xFFFF_FFFF for word in decided.ranking}
    assert refusals(network) == []
    assert banned(network) == {guilty}


# 2: restarted members sign second votes.


def test_2_stray_commitment_after_the_votes_causes_no_second_vote() -> None:
    network = Network()
    chain = network.open_chain()
    view = scored(network)
    base = view.inputs.closing.base
    members = committee_of(network)
    network.now = view.closed_at + SECONDS
    for member in members.values():
        member.deliver()
        member.step()  # the primary's request
    idle = next(
        c for c in range(PARAMETERS.clients) if ClientId(c) not in view.inputs.closing.commitments
    )
    network.apply(SendCommitment(signed_commitment(chain, idle, sha256(b"stray"))))
    block = network.chain.mine(network.now)
    assert not block.refused
    for member in members.values():
        member.restart()
    play(network, members.values())
    assert decided_in(network).base == base
    assert banned(network) == set()


@pytest.mark.parametrize("seat", range(5))
def test_2_a_restored_backup_makes_nobody_sign_twice(seat: int) -> None:
    # Each of the five, the primary among them, comes back with a journal that knows nothing.
    network = Network()
    view = scored(network)
    members = list(committee_of(network).values())
    old = members[seat]
    backup = old.journal.backup()
    network.now = view.closed_at + SECONDS
    for _ in range(2):
        for member in members:
            member.deliver()
            member.step()
    votes = dict(old.statements.votes)
    assert votes
    old.restore(backup, mailbox_is_readable=True)
    play(network, members)
    decided_in(network)
    assert old.statements.votes.items() >= votes.items()
    assert banned(network) == set()


def test_2_reorganising_the_closing_block_makes_nobody_sign_twice() -> None:
    network = Network()
    view = requested(network)
    members = committee_of(network)
    network.now = view.closed_at + SECONDS
    for member in members.values():
        member.deliver()
        member.step()
    before = view.inputs.closing.base
    network.chain.reorganise(1)
    network.chain.pool.reverse()  # the same commitments in another order
    network.chain.mine(network.now)
    again = network.closed_view()
    assert again.inputs.closing.base != before
    for member in members.values():
        member.deliver()
        member.step()
    network.chain.reorganise(1)
    network.chain.pool.reverse()  # and back
    network.chain.mine(network.now)
    play(network, members.values())
    assert decided_in(network).base == before
    assert banned(network) == set()


# 3: the sender drops who was refused.


def liar_and(network: Network, fault: MemberFault) -> tuple[ClientId, dict[int, MemberFault]]:
    """Return a liar, and faults by seat: the liar is not the one who sends first, who has this."""
    view = network.closed_view()
    committee = view.inputs.participants.committee
    first = committee.index(view.primary(AGGREGATION, 0))
    last = committee.index(view.primary(Phase.ELECTION, 0))
    lies = next(place for place in range(5) if place not in {first, last})
    return committee[lies], {lies: MemberFault.FALSE_SCORES, last: fault}


def test_3_a_sender_that_drops_who_was_refused_is_refused() -> None:
    network = Network()
    network.close()
    liar, faults = liar_and(network, MemberFault.WHITEWASHING)
    play(network, committee_of(network, faults).values())
    assert RefusalCode.REQUEST_NOT_SIGNED in refusals(network)
    record = network.record_of(decided_in(network))
    assert [(e.signed.scores.member, e.reason) for e in record.refused] == [
        (liar, RefusalReason.FALSE_DISTANCE)
    ]


def test_3_a_primary_that_hides_refused_members_gets_no_quorum() -> None:
    network = Network()
    view = network.close()
    committee = view.inputs.participants.committee
    washes = committee.index(view.primary(AGGREGATION, 0))
    lies = next(place for place in range(5) if place != washes)
    faults = {lies: MemberFault.FALSE_SCORES, washes: MemberFault.WHITEWASHING}
    play(network, committee_of(network, faults).values())
    decided = decided_in(network)
    assert decided.views[0] > 0
    refused = network.record_of(decided).refused
    assert [entry.signed.scores.member for entry in refused] == [committee[lies]]


# 4: a silent trainer commits once `decide` is in sight.


def test_4_a_late_commitment_is_in_no_record_or_base() -> None:
    # All others have committed in time; one more waits until the window is nearly over.
    network = Network()
    chain = network.open_chain()
    late = chain.participants().trainers[3]
    network.commit(*(chain.participants().expected - {late}))
    network.chain.mine(network.now)
    last = chain.opened_block + PARAMETERS.commit_blocks
    network.chain.mine_to(last, network.now)
    network.publish(*chain.participants().expected)
    view = scored(network)
    base = view.inputs.closing.base
    members = committee_of(network)
    for member in members.values():
        member.deliver()
        member.step()
    network.apply(SendCommitment(signed_commitment(chain, late, sha256(b"late"))))
    network.chain.mine(network.now)
    play(network, members.values())
    decided = decided_in(network)
    assert decided.base == base
    (dropout,) = network.record_of(decided).dropouts
    assert (dropout.client, dropout.reason) == (late, DropoutReason.NO_COMMITMENT)


# 6: who publishes last picks the next seed.


def test_6_a_last_publisher_cannot_influence_the_next_seed() -> None:
    seeds, distances = set(), set()
    for fault in (None, MemberFault.GRINDING):
        network = Network()
        network.close()
        faults = {} if fault is None else {0: fault}
        play(network, committee_of(network, faults).values())
        decided = decided_in(network)
        seeds.add(decided.next_seed)
        distances.add(decided.scores_root)
    assert len(seeds) == 1
    assert len(distances) == 2, "it did bend its distances"


# 9: a request of a later view smears the primaries before it.


def test_9_a_request_of_a_later_view_smears_nobody() -> None:
    network = Network()
    view = network.close()
    committee = view.inputs.participants.committee
    jumper = next(
        place
        for place, client in enumerate(committee)
        if client != view.primary(AGGREGATION, 0)
        and any(view.primary(AGGREGATION, later) == client for later in range(1, 8))
    )
    play(network, committee_of(network, {jumper: MemberFault.VIEW_JUMPER}).values())
    jumped = {
        body.request.vote.view
        for body in (e.body for e in network.board)
        if hasattr(body, "request") and body.request.vote.phase is AGGREGATION
    }
    assert max(jumped) > 0, "it did jump"
    decided = decided_in(network)
    assert decided.views == (0, 0)
    assert incidents_of(network, decided) == ()
    assert banned(network) == set()


# 10: one wild reference decides every ranking of strategies 1 and 2.


def accepted_with(strategy: int, factor: float) -> tuple[ClientId, ...]:
    network = Network(replace(PARAMETERS, strategy=strategy))
    wild = network.chain.state.committee[0]
    network.payloads[1, wild] = vector_bytes((factor * update_of(1, wild)).astype(np.float32))
    network.close()
    play(network, committee_of(network, {0: MemberFault.FALSE_REFERENCE}).values())
    decided = decided_in(network)
    record = network.record_of(decided)
    assert wild in {signed.scores.member for signed in record.scores}, "its scores are honest"
    return tuple(sorted(decided.accepted))


def test_10_one_false_reference_decides_but_not_under_strategy_three() -> None:
    # Updates along the wild one are near to it, and updates against it are far: in a mean that is
    # all that counts. Strategy 3 compares with all updates, and this is one of twelve.
    assert accepted_with(1, 100.0) != accepted_with(1, -100.0)
    assert accepted_with(3, 100.0) == accepted_with(3, -100.0)
