"""Who can be a victim of what, what is kept of it, and what the table says."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, cast

from ledger.history.round import HistoryRound
from ledger.protocol.encoding import RegisteredClient
from ledger.protocol.ledger_state import RoundStart
from ledger.protocol.parameters import Parameters
from ledger.protocol.types import Address, ClientId, Digest
from tests.federation.cells import (
    Cell,
    Fault,
    Margin,
    Role,
    is_drawn_for_nothing,
    margin_of,
    roles_of,
    victims,
)

if TYPE_CHECKING:
    from clients.testnet.network import WorkerSlot

SIZES = Parameters(
    clients=24,
    rounds=1,
    dimension=1,
    active_ppm=500_000,
    committee_ppm=416_667,
    aggregation_ppm=500_000,
    strategy=1,
)
"""Twelve active: five members, of whom three others reply and one may be silent; seven trainers."""

MARGIN = Margin(members=1, trainers=2, bans=1)


@dataclass
class Place:
    number: int
    clients: tuple[ClientId, ...]


def seats(*hosted: tuple[int, ...]) -> list[WorkerSlot]:
    places = [Place(number, tuple(map(ClientId, them))) for number, them in enumerate(hosted)]
    return cast("list[WorkerSlot]", places)


def test_a_victim_has_the_role_within_the_fault_limit() -> None:
    trainer, member = frozenset({Role.TRAINER}), frozenset({Role.MEMBER})
    primary = frozenset({Role.FIRST_PRIMARY})
    roles = {ClientId(c): its for c, its in enumerate([trainer, trainer, trainer, member, primary])}
    places = seats((0, 9), (3, 0), (3, 4), (4,), (0, 1, 2), (9,))

    def numbers(fault: Fault, role: Role) -> list[int]:
        return [seat.number for seat in victims(Cell(fault, role), places, roles, MARGIN)]

    assert numbers(Fault.KILLED, Role.MEMBER) == [1], "the third seat has two members"
    assert numbers(Fault.KILLED, Role.FIRST_PRIMARY) == [3]
    assert numbers(Fault.NOT_FINITE, Role.TRAINER) == [0], "of seven trainers two can be spared"


REGISTRY = tuple(RegisteredClient(Address(bytes(20)), 1) for _ in range(24))


def closed_round(banned: tuple[int, ...] = ()) -> HistoryRound:
    registry = [
        replace(client, banned_in=1) if number in banned else client
        for number, client in enumerate(REGISTRY)
    ]
    committee = tuple(ClientId(c) for c in range(5))
    opening = RoundStart(2, committee, Digest(bytes(32)), 10)
    return HistoryRound(opening, SIZES, tuple(registry), ended=None)


def test_vacant_slots_and_unrecovered_members_reduce_the_margin() -> None:
    one = closed_round()
    assert margin_of(one, SIZES, []) == Margin(members=1, trainers=2, bans=1)
    trainer = one.trainers[0]
    assert margin_of(one, SIZES, seats((0, trainer))) == Margin(members=0, trainers=1, bans=1)
    with_empty_seat = closed_round(banned=(0,))
    assert margin_of(with_empty_seat, SIZES, []).members == 0
    assert margin_of(with_empty_seat, SIZES, seats((0,))).members == 0, "it is not lost twice"
    beyond = margin_of(with_empty_seat, SIZES, seats((1,)))
    assert not beyond.is_kept
    assert with_empty_seat.committee[0] not in roles_of(with_empty_seat)


def test_chance_may_draw_nobody_but_the_faulty() -> None:
    # Of seed 0 and five members, the places 2, 4, 2, 3 ... are drawn, then 3, 3, 2, 4 ...
    def is_drawn(faulty: set[int], views: int, banned: tuple[int, ...] = ()) -> bool:
        return is_drawn_for_nothing(closed_round(banned), frozenset(map(ClientId, faulty)), views)

    assert is_drawn({2}, 1)
    assert not is_drawn({2}, 2)
    assert is_drawn({2, 4}, 3)
    assert is_drawn({3}, 2), "of the election"
    assert not is_drawn({3}, 3)
    assert is_drawn({4}, 1, banned=(2,)), "an empty seat takes no time"
    assert not is_drawn(set(), 1)
