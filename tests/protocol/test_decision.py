"""What a committee decides, from updates of one number each."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.protocol import encoding, merkle
from ledger.protocol.decision import Decision, decide, score_leaves, update_leaves
from ledger.protocol.errors import ConsensusError
from ledger.protocol.parameters import Parameters
from ledger.protocol.types import NO_DIGEST, ClientId, Phase, Scoring, Strategy
from tests.protocol.support import SmallRound, f32, ids, small_round

# Nine clients: members 0, 1, 2 with the update 0; trainers 3 to 8 with these. Half are accepted.
VALUES = {3: 3.0, 4: 1.0, 5: -2.0, 6: 5.0, 7: 4.0, 8: 6.0}
NEAREST = Parameters(
    clients=9,
    active_rate=1.0,
    committee_rate=0.33,
    aggregation_rate=0.5,
    rounds=1,
    dimension=1,
)
ROUND = small_round(NEAREST, VALUES)


def decided(found: SmallRound, model: float = 0.0) -> Decision:
    return decide(found.parameters, found.registry, f32(model), found.updates, found.counted())


def test_distances_rank_select_aggregate_and_elect() -> None:
    # Distances are squares: 4 -> 1, 5 -> 4, 3 -> 9, 7 -> 16, 6 -> 25, 8 -> 36.
    found = decided(ROUND, model=10.0)
    assert [encoding.word_client(word) for word in found.ranking] == [4, 5, 3, 7, 6, 8]
    distances = [encoding.word_distance(word) for word in found.ranking]
    assert distances == [1.0, 4.0, 9.0, 16.0, 25.0, 36.0]
    assert found.accepted == ids(4, 5, 3)
    assert found.next_committee == ids(5, 3, 7)
    # All have equal samples, so a third each: 10 - (1 - 2 + 3) / 3; thirds are not exact.
    assert found.model.tolist() == [np.float32(10 - 2 / 3)]
    assert found.model_digest == encoding.sha256(found.model.tobytes())
    assert found.threshold_bits == 0


def test_strategy_two_accepts_the_farthest() -> None:
    farthest = replace(NEAREST, strategy=Strategy.FARTHEST)
    found = decided(small_round(farthest, VALUES))
    assert found.accepted == ids(7, 6, 8)
    assert found.next_committee == ids(5, 3, 7), "the election does not depend on the strategy"


def test_strategy_three_accepts_all_within_the_committees_spread() -> None:
    # Members at 0, 2 and 4: medians of distances to one another 10, 4, 10, whose median is 10
    # and deviation 0: the threshold is 10. Trainers' mean distances to 0, 2, 4: x = 2 gives
    # (4 + 0 + 4) / 3, x = 3 gives (9 + 1 + 1) / 3, x = 5 gives (25 + 9 + 1) / 3 = 11.67.
    spread = replace(NEAREST, strategy=Strategy.WITHIN_SPREAD, aggregation_rate=0.1)
    values = {0: 0.0, 1: 2.0, 2: 4.0, 3: 2.0, 4: 3.0, 5: 5.0, 6: 6.0, 7: 7.0, 8: 8.0}
    found = decided(small_round(spread, values))
    assert encoding.float_from_bits(found.threshold_bits) == 10.0
    assert found.accepted == ids(3, 4)


def test_members_whose_scores_do_not_count_have_no_say_in_the_spread() -> None:
    spread = replace(NEAREST, strategy=Strategy.WITHIN_SPREAD)
    four = small_round(spread, VALUES | {0: 0.0, 1: 1.0, 2: 50.0})
    counted = four.counted()
    del counted[ClientId(2)]
    found = decide(spread, four.registry, f32(0.0), four.updates, counted)
    # Left are members 0 and 1 at distance 1 from one another: median 1, deviation 0.
    assert encoding.float_from_bits(found.threshold_bits) == 1.0


def test_the_median_is_used_where_the_deployment_says_so() -> None:
    # Members at 0, 0 and 100: the mean distance of x = 60 is (3600 + 3600 + 1600) / 3.
    values = VALUES | {2: 100.0, 8: 60.0}
    mean = decided(small_round(NEAREST, values))
    median = decided(small_round(replace(NEAREST, scoring=Scoring.MEDIAN), values))
    assert encoding.word_distance(mean.ranking[0]) == 8800 / 3
    assert encoding.word_client(mean.ranking[0]) == 8
    assert encoding.word_client(median.ranking[-1]) == 8
    assert encoding.word_distance(median.ranking[-1]) == 3600.0


def test_sizes_follow_the_trainers_that_remain() -> None:
    # Of six trainers one has dropped out: m = 2.5 rounds to 3, the middle of five is 1 .. 3.
    found = decided(small_round(NEAREST, VALUES, missing=[8]))
    assert found.accepted == ids(4, 5, 3)
    assert found.next_committee == ids(5, 3, 7)
    # Of four, m = 2.
    assert decided(small_round(NEAREST, VALUES, missing=[6, 8])).accepted == ids(4, 5)


def test_as_many_trainers_as_places_suffice_and_one_fewer_does_not() -> None:
    three = decided(small_round(NEAREST, VALUES, missing=[6, 7, 8]))
    assert three.next_committee == ids(4, 5, 3)
    with pytest.raises(ConsensusError, match="2 trainers remain, and a committee needs 3"):
        decided(small_round(NEAREST, VALUES, missing=[3, 6, 7, 8]))


def test_a_quorum_of_score_vectors_suffices_and_one_fewer_does_not() -> None:
    counted = ROUND.counted()
    del counted[ClientId(0)]
    decide(NEAREST, ROUND.registry, f32(0.0), ROUND.updates, counted)
    del counted[ClientId(1)]
    with pytest.raises(ConsensusError, match="1 score vectors count, and 2 are needed"):
        decide(NEAREST, ROUND.registry, f32(0.0), ROUND.updates, counted)
    with pytest.raises(ConsensusError, match="0 score vectors count"):
        decide(NEAREST, ROUND.registry, f32(0.0), ROUND.updates, {})


def test_an_aggregate_that_is_not_finite_is_not_decided() -> None:
    with pytest.raises(ConsensusError, match="not finite"):
        decided(small_round(replace(NEAREST, server_rate=1e300), VALUES))


def test_votes_are_over_the_sets_and_what_they_rest_on() -> None:
    found = decided(ROUND)
    result = encoding.aggregation_result(
        found.model_digest,
        found.updates_root,
        found.scores_root,
        encoding.ranking_digest(found.ranking),
        0,
    )
    assert found.voted(Phase.AGGREGATION) == (encoding.set_digest(ids(4, 5, 3)), result)
    assert found.voted(Phase.ELECTION) == (encoding.set_digest(ids(5, 3, 7)), NO_DIGEST)


def test_the_updates_root_covers_every_ranked_update() -> None:
    found, payloads = decided(ROUND), ROUND.updates.payloads
    leaves = update_leaves(found.ranking, found.accepted, payloads)
    assert leaves[0] == (4, payloads[ClientId(4)], 0, encoding.float_bits(1.0), True)
    assert leaves[5] == (8, payloads[ClientId(8)], 5, encoding.float_bits(36.0), False)
    assert merkle.root(merkle.UPDATE_LEAF, leaves) == found.updates_root


def test_the_scores_root_covers_every_counted_vector() -> None:
    counted = ROUND.counted()
    leaves = score_leaves(dict(reversed(counted.items())))
    assert leaves == [(c, counted[c].digest) for c in ids(0, 1, 2)]
    assert merkle.root(merkle.SCORES_LEAF, leaves) == decided(ROUND).scores_root


@given(
    values=st.lists(st.floats(-1e3, 1e3, width=32), min_size=9, max_size=9),
    strategy=st.sampled_from(Strategy),
    scoring=st.sampled_from(Scoring),
    data=st.data(),
)
def test_all_members_decide_alike_whatever_arrived_first(
    values: list[float], strategy: Strategy, scoring: Scoring, data: st.DataObject
) -> None:
    parameters = replace(NEAREST, strategy=strategy, scoring=scoring)
    found = small_round(parameters, dict(enumerate(values)))
    counted = found.counted()
    arrived = dict(data.draw(st.permutations(list(counted.items()))))
    one = decide(parameters, found.registry, f32(1.0), found.updates, counted)
    other = decide(parameters, found.registry, f32(1.0), found.updates, arrived)
    assert all(one.voted(phase) == other.voted(phase) for phase in Phase)
    assert one.model.tobytes() == other.model.tobytes()
    ranked = {encoding.word_client(word) for word in one.ranking}
    assert ranked == set(found.trainers)
    assert set(one.accepted) <= ranked
    assert set(one.next_committee) <= ranked
