"""What the paper's rules fall to, and what the preset `robust` does about it."""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING

from clients.adversaries.faults import MemberFault
from clients.configuration.loading import load
from clients.runs.open_run import open_run
from ledger.protocol.encoding import word_client
from tests.clients.played import FIVE_MEMBERS
from tests.seeds import first_that_shows

if TYPE_CHECKING:
    from clients.runs.metrics import RoundMetrics
    from tests.clients.played import Played, Player

ZEROS = ("malice.attack=same-value", "malice.malicious_rate=0.3", "protocol.rounds=6")
WILD = (*FIVE_MEMBERS, "malice.members.false-reference=5", "protocol.rounds=5")


def rows_of(player: Player, preset: str) -> list[RoundMetrics]:
    configuration = load(preset, settings=ZEROS)
    with open_run(player.home, preset, configuration, player.chain, player.blobs) as run:
        return run.go_on(lambda _: None)


def test_zeros_enter_under_squared_distance_by_strategy_one(player: Player) -> None:
    rows = rows_of(player, "digits")
    sent = sum(row.malicious_trained for row in rows)
    assert sent > 20
    assert sum(row.malicious_accepted for row in rows) > 0.8 * sent


def test_zeros_have_no_direction_and_never_enter_robustly(player: Player) -> None:
    rows = rows_of(player, "robust")
    assert sum(row.malicious_trained for row in rows) > 20
    assert sum(row.malicious_accepted for row in rows) == 0


def rankings_of_wild_members(player: Player) -> list[tuple[list[int], list[int]]]:
    def play(seed: int) -> list[tuple[list[int], list[int]]]:
        return rankings_in(player.play(*WILD, f"seed={seed}", name=f"run{seed}"))

    return first_that_shows(lambda found: len(found) > 1, play, first=12)


def rankings_in(played: Played) -> list[tuple[list[int], list[int]]]:
    """Return the ranking of each round with one wild member, and that member's own order."""
    faults = played.population.member_faults
    wild = {c for c, fault in faults.items() if fault is MemberFault.FALSE_REFERENCE}
    found = []
    for record in played.records():
        event = played.decided(record.round)
        assert event is not None
        for vector in played.vectors(record.round):
            if wild.intersection(played.opening(record.round).committee) == {vector.member}:
                order = sorted(zip(vector.distances.tolist(), vector.trainers, strict=True))
                ranking = [int(word_client(word)) for word in event.ranking]
                found.append((ranking, [int(client) for _, client in order]))
    return found


def agreement(found: list[tuple[list[int], list[int]]]) -> float:
    """Return the share of pairs of trainers that rankings and orders have the same way round."""
    pairs = [
        order.index(one) < order.index(other)
        for ranking, order in found
        for one, other in combinations(ranking, 2)
    ]
    return sum(pairs) / len(pairs)


def test_one_members_wild_update_decides_the_rankings_of_strategy_1(player: Player) -> None:
    assert agreement(rankings_of_wild_members(player)) > 0.95
