"""Whole runs of the contract: what a round decides, and how a run goes on and ends."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ledger.chain.contract import abi
from ledger.chain.embedded.embedded_chain import EmbeddedChain
from ledger.chain.ports import ChainWriter
from ledger.protocol import encoding, ledger_state
from ledger.protocol.errors import RefusalCode
from ledger.protocol.inputs import drawn_committee
from ledger.protocol.ledger_state import LedgerStage
from ledger.protocol.rules.selection import elect, rank
from ledger.protocol.types import (
    NO_DIGEST,
    AcceptanceForm,
    Beacon,
    Phase,
)
from tests.contracts import faults, support
from tests.contracts.test_gas_ceilings import CEILINGS, if_all_were_cold
from tests.contracts.twins import Outcome, Proposal, Shape, Twins, digest_of
from tests.support.keys import ids


def decided(outcome: Outcome) -> ledger_state.RoundDecided:
    assert isinstance(outcome, tuple)
    (event,) = outcome
    assert isinstance(event, ledger_state.RoundDecided)
    return event


def ranked_by_index(twins: Twins, two: float = 2.0) -> tuple[int, ...]:
    """Return a ranking of all trainers at distances 1, 2, ..., scaled so that `two` is 2.0."""
    trainers = faults.rankable(twins)
    return rank((client, (1 + place) * 2.0 / two) for place, client in enumerate(trainers))


@pytest.mark.parametrize(
    ("form", "two", "accepted", "stand"),
    [
        (AcceptanceForm.FIRST, 4.0, slice(0, 3), slice(1, 5)),
        (AcceptanceForm.LAST, 4.0, slice(3, 6), slice(1, 5)),
        (AcceptanceForm.BELOW_TWO, 4.0, slice(0, 3), slice(0, 4)),
        (AcceptanceForm.BELOW_TWO, 4.1, slice(0, 4), slice(0, 4)),
        (AcceptanceForm.BELOW_TWO, 5.1, slice(0, 5), slice(0, 5)),
        (AcceptanceForm.BELOW_TWO, 100.0, slice(0, 6), slice(0, 6)),
        (AcceptanceForm.BELOW_TWO, 1.0, slice(0, 3), slice(0, 4)),
    ],
)
def test_accepts_and_elects_by_strategy(
    chain: ChainWriter, form: AcceptanceForm, two: float, accepted: slice, stand: slice
) -> None:
    # Six trainers at distances 1 to 6; strategy III accepts those below `two`, else half of them
    # is accepted. Four members.
    twins = Twins.opened(chain, Shape(members=4, form=form))
    trainers = support.trainers_of(twins.state)
    support.commit_all(twins, trainers)
    event = decided(twins.decide(support.proposal(twins, ranked_by_index(twins, two))))
    assert event.accepted == trainers[accepted]
    assert event.next_committee == elect(trainers[stand], 4, event.next_seed)


@pytest.mark.parametrize("beacon", Beacon)
@pytest.mark.parametrize(
    ("two", "stand"),
    [
        (11.0, slice(0, 10)),
        (5.0, slice(0, 4)),
        (1.5, slice(0, 4)),  # one is accepted: three more stand
        (1.0, slice(0, 6)),  # none is: the first six
    ],
)
def test_a_lot_among_the_accepted_elects(
    chain: ChainWriter, two: float, stand: slice, beacon: Beacon
) -> None:
    # Ten trainers, four members.
    shape = Shape(
        clients=20,
        trainers=10,
        members=4,
        aggregation_ppm=600_000,
        form=AcceptanceForm.BELOW_TWO,
        beacon=beacon,
    )
    twins = Twins.opened(chain, shape)
    for _ in range(3):
        trainers = support.trainers_of(twins.state)
        support.commit_all(twins, trainers)
        event = decided(twins.decide(support.proposal(twins, ranked_by_index(twins, two))))
        assert event.next_committee == elect(trainers[stand], 4, event.next_seed)
        assert twins.state.committee == event.next_committee


def test_the_window_ends_with_its_last_block(chain: ChainWriter) -> None:
    twins = Twins.opened(chain, Shape(commit_blocks=2, deadline_blocks=6))
    opened, (first, second, *_) = twins.state.opened_block, support.trainers_of(twins.state)
    chain.mine(1)
    assert isinstance(support.commit_all(twins, [first]), tuple)
    assert chain.head().number == opened + 2
    assert support.commit_all(twins, [second]) is RefusalCode.COMMITMENTS_CLOSED
    assert twins.state.committed == {first}


def test_every_quorum_from_half_to_all_others_can_decide(chain: ChainWriter) -> None:
    for replies in (2, 3, 4):
        twins = Twins.opened(chain, Shape(replies=replies))
        support.commit_all(twins, support.trainers_of(twins.state))
        found = faults.honest(twins)
        first = found.certificates[0]
        fewer = replace(
            first, signers=first.signers & (first.signers - 1), replies=first.replies[1:]
        )
        few = replace(found, certificates=(fewer, found.certificates[1]))
        assert twins.decide(few) is RefusalCode.QUORUM_NOT_REACHED
        event = decided(twins.decide(found))
        assert [signers.bit_count() for signers in event.signers] == [replies, replies]


def test_incidents_are_recorded_though_nobody_signs_them(chain: ChainWriter) -> None:
    heads = set()
    for incidents in (NO_DIGEST, digest_of("incidents")):
        twins = Twins.opened(chain, Shape())
        support.commit_all(twins, support.trainers_of(twins.state))
        found = faults.honest(twins)
        with_them = replace(found.decision, incidents=incidents)
        event = decided(twins.decide(replace(found, decision=with_them)))
        assert event.incidents == incidents
        heads.add(event.head)
    assert len(heads) == 2


@pytest.mark.parametrize(
    ("shape", "banned"),
    [
        (Shape(clients=6, trainers=3, members=3, beacon=Beacon.BLOCK), 4),
        (Shape(clients=232, trainers=116, members=116), 117),
    ],
)
def test_ends_when_no_committee_can_be_drawn(chain: ChainWriter, shape: Shape, banned: int) -> None:
    twins = Twins.opened(chain, shape)
    for client in ids(*range(banned)):
        twins.report(support.equivocation(twins, client))
    twins.wait()
    assert isinstance(twins.abandon(1), tuple)
    assert twins.state.stage is LedgerStage.FINISHED
    assert len(twins.state.committee) == shape.clients - banned < shape.members
    assert if_all_were_cold(twins.last_receipt.gas_used) < CEILINGS["abandon_round"]
    twins.compare_clients()


def test_the_code_on_chain_is_the_artefact_and_the_immutables(
    embedded_chain: EmbeddedChain,
) -> None:
    twins, runtime = Twins.opened(embedded_chain), abi.artifact().runtime
    code = embedded_chain.code(twins.ledger.address)
    assert code.startswith(runtime)
    assert len(code) <= 24_576  # EIP-170
    assert twins.deployment_receipt.gas_used < 6_500_000


def test_a_replaced_primary_decides_in_a_later_view(chain: ChainWriter) -> None:
    twins = Twins.opened(chain, Shape())
    support.commit_all(twins, support.trainers_of(twins.state))
    decision = faults.honest(twins).decision
    first, second = (
        support.certificate(twins, support.request(twins, decision, phase, view))
        for phase, view in ((Phase.AGGREGATION, 3), (Phase.ELECTION, 2**32 - 1))
    )
    event = decided(twins.decide(Proposal(1, decision, (first, second))))
    assert event.views == (3, 2**32 - 1)


def test_an_abandoned_round_keeps_the_model_and_draws_a_committee(chain: ChainWriter) -> None:
    twins = Twins.opened(chain, Shape())
    support.commit_all(twins, support.trainers_of(twins.state))
    found, before = faults.honest(twins), twins.state
    twins.wait()
    assert isinstance(twins.abandon(1), tuple)
    assert twins.state.model == before.model
    assert (twins.state.round, len(set(twins.state.committee))) == (2, 5)
    twins.compare_clients()
    # What was signed for the abandoned round is worth nothing in the next.
    assert twins.decide(found) is RefusalCode.WRONG_ROUND
    support.commit_all(twins, support.trainers_of(twins.state))
    assert isinstance(twins.decide(faults.honest(twins)), tuple)


def test_dropouts_leave_a_smaller_ranking_once_commitments_are_closed(chain: ChainWriter) -> None:
    twins = Twins.opened(chain, Shape(members=4))
    trainers = support.trainers_of(twins.state)
    support.commit_all(twins, trainers[:5])
    assert twins.decide(support.proposal(twins, ranked_by_index(twins))) is (
        RefusalCode.RANKING_TOO_EARLY
    )
    twins.close_commitments()
    assert twins.decide(support.proposal(twins, ranked_by_index(twins)[:3])) is (
        RefusalCode.RANKING_TOO_SHORT
    )
    event = decided(twins.decide(support.proposal(twins, ranked_by_index(twins))))
    # Of five that are left, floor(5/2 + 1/2) = 3 are accepted and places 0 to 3 elected.
    assert event.accepted == trainers[:3]
    assert event.next_committee == trainers[:4]


def test_the_first_committee_is_drawn_when_the_registry_is_complete(
    embedded_chain: EmbeddedChain,
) -> None:
    twins = Twins.opened(embedded_chain, Shape(), batch=5)
    opening = twins.ledger.opening(1)
    assert opening is not None
    assert opening.seed == encoding.first_seed(twins.state.deployment.config, NO_DIGEST)
    assert opening.committee == drawn_committee(opening.seed, 13, 5, ())
    assert (opening.round, opening.opened_block) == (1, embedded_chain.head().number)
    assert twins.ledger.opening(1, embedded_chain.head().number - 1) is None
    assert twins.ledger.opening(2) is None
