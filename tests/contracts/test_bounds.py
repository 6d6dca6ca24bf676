"""What lies just within a bound is taken, and what lies just past it is not, by both twins."""

from __future__ import annotations

from dataclasses import replace
from math import nextafter
from typing import TYPE_CHECKING, cast

import pytest

from ledger.chain.ports import ChainWriter
from ledger.protocol import encoding
from ledger.protocol.errors import RefusalCode
from ledger.protocol.inputs import MAX_DRAWS, primary_seat
from ledger.protocol.ledger_state import LedgerStage, RoundDecided, registry_batches
from ledger.protocol.parameters import MAX_CLIENTS
from ledger.protocol.signing import GROUP_ORDER, KeySigner
from ledger.protocol.types import (
    NO_DIGEST,
    AcceptanceForm,
    ClientId,
    Digest,
    Phase,
    SignedCommitment,
)
from tests.contracts import faults, support
from tests.contracts.revm_chain import RevmChain
from tests.contracts.twins import Shape, Twins, digest_of, registry_of, signers
from tests.support.keys import ids

if TYPE_CHECKING:
    Keys = tuple[KeySigner, ...]


FLAGS = 224
LARGEST = 1.7976931348623157e308
HALF = GROUP_ORDER // 2


def test_the_last_clients_of_the_largest_registry_take_part(chain: ChainWriter) -> None:
    twins = Twins.opened(chain, Shape(clients=MAX_CLIENTS))
    last = MAX_CLIENTS - 1
    ends = {0, FLAGS - 1, FLAGS, last - FLAGS, last - FLAGS + 1, last - 1, last}
    able = ids(*sorted(ends - set(twins.state.committee), reverse=True)[:6])
    assert able[0] == last
    support.commit_all(twins, able)
    twins.compare_clients({*ends, 1, last - 2})
    assert isinstance(twins.decide(support.proposal(twins, support.ranking_of(able))), tuple)


@pytest.mark.parametrize(
    "clients", [(599, 5), (5, 599), (447, 448), (448, 447), (510, 0), (733, 509), (224, 223)]
)
def test_each_client_is_flagged_in_its_own_word(
    chain: ChainWriter, clients: tuple[int, int]
) -> None:
    twins = Twins.opened(chain, Shape(clients=734))
    support.commit_all(twins, ids(*clients))
    words = {client // FLAGS for client in clients}
    same_bits = {FLAGS * word + client % FLAGS for word in range(3) for client in clients}
    assert len(words) == 2 or clients == (733, 509)
    twins.compare_clients({*clients, *same_bits})
    twins.compare_clients(range(0, 734, 7))


@pytest.mark.parametrize("form", AcceptanceForm)
def test_the_largest_distance_is_finite(chain: ChainWriter, form: AcceptanceForm) -> None:
    twins = Twins.opened(chain, Shape(form=form))
    trainers = support.trainers_of(twins.state)
    support.commit_all(twins, trainers)
    ranking = support.ranking_of(trainers, [0.0, 5e-324, 1.0, 2.0, LARGEST, LARGEST])
    assert isinstance(twins.decide(support.proposal(twins, ranking)), tuple)


def test_strategy_three_accepts_up_to_the_number_below_two(chain: ChainWriter) -> None:
    twins = Twins.opened(chain, Shape(form=AcceptanceForm.BELOW_TWO))
    trainers = support.trainers_of(twins.state)
    support.commit_all(twins, trainers)
    below = nextafter(2.0, 0.0)
    ranking = support.ranking_of(trainers, [0.0, below, below, below, 2.0, 2.0])
    found = twins.decide(support.proposal(twins, ranking))
    assert isinstance(found, tuple)
    (event,) = found
    assert isinstance(event, RoundDecided)
    assert event.accepted == tuple(map(encoding.word_client, ranking[:4]))


def test_a_client_in_a_ranking_is_identified_by_all_bits(chain: ChainWriter) -> None:
    twins = Twins.opened(chain, Shape())
    trainers = support.trainers_of(twins.state)
    support.commit_all(twins, trainers)
    honest = support.proposal(twins, support.ranking_of(trainers))
    for bit in range(4, 32):
        ranking = list(honest.decision.ranking)
        ranking[-1] |= 1 << bit
        decision = replace(honest.decision, ranking=tuple(ranking))
        assert twins.decide(replace(honest, decision=decision)) is RefusalCode.UNKNOWN_CLIENT
    assert isinstance(twins.decide(honest), tuple)


def test_a_primary_at_any_place_does_not_reply_to_itself(chain: ChainWriter) -> None:
    twins = Twins.opened(chain, Shape())
    support.commit_all(twins, support.trainers_of(twins.state))
    honest, seen = faults.honest(twins), set()
    for view in range(60):
        place = primary_seat(twins.state.seed, Phase.AGGREGATION, view, 5)
        others = [other for other in range(5) if other != place]
        repliers = sorted([place, *others[: twins.state.deployment.replies]])
        vote = support.request(twins, honest.decision, Phase.AGGREGATION, view)
        first = support.certificate(twins, vote, repliers=repliers)
        wrong = replace(honest, certificates=(first, honest.certificates[1]))
        assert twins.decide(wrong) is RefusalCode.PRIMARY_REPLIES
        seen.add(place)
    assert seen == set(range(5))


@pytest.mark.parametrize("samples", [1, 2**31, 2**63, 2**64 - 1])
def test_any_positive_number_of_samples_is_registered(chain: ChainWriter, samples: int) -> None:
    first, *others = registry_of(13)
    registered = (replace(first, samples=samples), *others)
    words = [encoding.registry_word(client) for client in registered]
    deployment = Shape().deployment(encoding.registry_digest(words, NO_DIGEST))
    twins = Twins(chain, deployment, signers(13))
    assert isinstance(twins.register(words, NO_DIGEST), tuple)
    assert twins.ledger.client(ClientId(0)).samples == samples


@pytest.mark.parametrize(("s", "is_canonical"), [(HALF, True), (HALF + 1, False)])
@pytest.mark.parametrize("is_vote", [True, False])
def test_half_the_group_order_is_the_last_canonical_s(
    s: int, is_canonical: bool, is_vote: bool
) -> None:
    # No registered key can sign with an s of its choice: the domain commits to the registry, and so
    # to the key. A canonical s that is nobody's is refused for the signer, any other for itself.
    client, twins = ClientId(6), Twins.opened(cast("ChainWriter", RevmChain()))
    proof, promised = support.equivocation(twins, client), support.commitment(twins, client)
    r, v = promised.signature[:32], promised.signature[64:]
    signature = r + s.to_bytes(32) + v
    if is_vote:
        outcome = twins.report(replace(proof, first=replace(proof.first, signature=signature)))
        not_signed: RefusalCode = RefusalCode.STATEMENT_NOT_SIGNED
    else:
        outcome = twins.commit(1, [SignedCommitment(promised.commitment, signature)])
        not_signed = RefusalCode.COMMITMENT_NOT_SIGNED

    assert outcome is (not_signed if is_canonical else RefusalCode.SIGNATURE_NOT_CANONICAL)


def draws_needed(seed: Digest, clients: int, wanted: set[int]) -> int:
    """Return how many draws it takes until all who are wanted have been drawn."""
    left, draws = set(wanted), 0
    while left:
        digest = encoding.keccak256(seed + encoding.u32(draws))
        left.discard(int.from_bytes(digest) % clients)
        draws += 1
    return draws


@pytest.mark.parametrize(("number", "draws"), [(8_014, MAX_DRAWS), (22_414, MAX_DRAWS + 1)])
def test_a_committee_may_be_complete_with_the_last_draw(
    chain: ChainWriter, number: int, draws: int
) -> None:
    # Of 420 clients as many are left as a committee has. Numbers were tried one after the other.
    shape = Shape(clients=420, trainers=160, members=160)
    words = [encoding.registry_word(client) for client in registry_of(shape.clients)]
    registry, batches = registry_batches(words)
    deployment = replace(shape.deployment(registry), config=digest_of("draws", number))
    # So many reports that all clients are compared once, at the end.
    twins = Twins(chain, deployment, signers(shape.clients), most_compared=0)
    for batch, rest in batches:
        twins.register(batch, rest)
    banned = shape.clients - shape.members
    for client in ids(*range(banned)):
        twins.report(support.equivocation(twins, client))
    twins.wait()
    twins.abandon(1)
    left = set(range(banned, shape.clients))
    assert draws_needed(twins.state.seed, shape.clients, left) == draws
    assert twins.state.stage is (LedgerStage.OPEN if draws == MAX_DRAWS else LedgerStage.FINISHED)
    assert len(twins.state.committee) == shape.members - (draws > MAX_DRAWS)
    twins.compare_clients()


@pytest.mark.parametrize(("ppm", "accepted"), [(785_714, 5), (785_715, 6)])
def test_a_millionth_decides_whether_a_half_is_rounded_up(
    chain: ChainWriter, ppm: int, accepted: int
) -> None:
    # 7 * 785,714 / 1,000,000 is 5.499998, and 7 * 785,715 / 1,000,000 is 5.500005.
    twins = Twins.opened(chain, Shape(trainers=7, aggregation_ppm=ppm))
    support.commit_all(twins, support.active_of(twins.state))
    events = twins.decide(
        support.proposal(twins, support.ranking_of(support.trainers_of(twins.state)))
    )
    assert isinstance(events, tuple)
    (decided,) = (event for event in events if isinstance(event, RoundDecided))
    assert len(decided.accepted) == accepted
