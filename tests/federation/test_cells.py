"""Who can be a victim of what, what is kept of it, and what the table says."""

from __future__ import annotations

import subprocess
import sys
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, cast

import pytest

from clients.testnet.network import clients_by_worker
from clients.testnet.watch import WatchedRound
from ledger.history.round import HistoryRound
from ledger.protocol.fold import RoundStart
from ledger.protocol.parameters import Parameters
from ledger.protocol.types import Address, ClientId, Digest, RegisteredClient
from tests.federation.cells import (
    CELLS,
    Cell,
    Fault,
    Margin,
    Role,
    is_drawn_for_nothing,
    liars,
    margin_of,
    possible_cells,
    roles_of,
    seats_of_members,
    tolerated,
    victims,
)
from tests.federation.checks import Violation, Wrong
from tests.federation.disturbances import Disturbance
from tests.federation.effects import effective
from tests.federation.state import State
from tests.federation.table import BEGIN, END, table, written

if TYPE_CHECKING:
    from pathlib import Path

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


def test_workers_host_the_clients_in_turn() -> None:
    assert clients_by_worker(5, 2) == [(0, 2, 4), (1, 3)]


def test_one_of_five_members_may_be_silent() -> None:
    assert (SIZES.members, SIZES.trainers, SIZES.replies, tolerated(SIZES)) == (5, 7, 3, 1)


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


def test_self_bans_leave_tolerably_many_vacant_slots() -> None:
    trainer = frozenset({Role.TRAINER})
    roles = {ClientId(0): trainer, ClientId(1): trainer, ClientId(2): frozenset({Role.MEMBER})}
    places = seats((0, 1), (1,), (1, 2))

    def numbers(fault: Fault, role: Role) -> list[int]:
        return [seat.number for seat in victims(Cell(fault, role), places, roles, MARGIN)]

    # Two trainers of one worker that are both elected would be two empty seats of five.
    assert numbers(Fault.LATE, Role.TRAINER) == [0, 1]
    assert numbers(Fault.SELF_BAN, Role.TRAINER) == [1]
    assert numbers(Fault.SELF_BAN, Role.MEMBER) == []
    assert numbers(Fault.EQUIVOCATING, Role.MEMBER) == [2], "its trainer signs no votes"


def test_members_lie_as_members_and_as_clients_that_train() -> None:
    roles = {ClientId(0): frozenset({Role.TRAINER}), ClientId(1): frozenset({Role.MEMBER})}
    assert liars(Fault.FALSE_SCORES, roles) == {1}
    assert liars(Fault.SELF_BAN, roles) == {0, 1}


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


def test_an_effect_is_recorded_and_wrong_payloads_are_never_late() -> None:
    both = frozenset({ClientId(1), ClientId(2)})
    ended = WatchedRound(
        number=2,
        seconds=1.0,
        views=(0, 0),
        accepted=(),
        late=(ClientId(1),),
        unusable=(ClientId(2),),
        refused=(),
        banned=(),
        model=None,
        head=Digest(bytes(32)),
        commitments=2,
        malformed=(ClientId(2),),
    )
    nobody = frozenset[ClientId]()
    assert effective(Fault.TRUNCATED, both, ended, nobody) == {2}
    assert effective(Fault.COPIED, both, ended, nobody) == nobody
    assert effective(Fault.LATE, both, ended, nobody) == {1}
    assert effective(Fault.SELF_BAN, both, ended, both) == both
    with pytest.raises(ValueError, match="kill -9 is no lie"):
        effective(Fault.KILLED, both, ended, nobody)


def test_a_started_disturbance_completes_and_others_never_happened() -> None:
    acts: list[str] = []
    far, now = time.monotonic() + 3600, time.monotonic()
    begun = Disturbance(Fault.FROZEN, (), frozenset())
    begun._acts = [(now, lambda: acts.append("freeze")), (far, lambda: acts.append("thaw"))]
    begun.step()
    assert begun.lifted_on == 0, "it lasts"
    begun.lift()
    assert (acts, begun.has_come) == (["freeze", "thaw"], True)
    assert begun.lifted_at is not None
    late = Disturbance(Fault.FROZEN, (), frozenset())
    late._acts = [(far, lambda: acts.append("too late"))]
    late.step()
    late.lift()
    assert (acts, late.has_come) == (["freeze", "thaw"], False)


def test_excess_members_are_in_the_fewest_workers() -> None:
    committee = [ClientId(c) for c in (0, 1, 2)]
    chosen = seats_of_members(seats((0,), (1, 2), (3,)), committee, 2)
    assert [seat.number for seat in chosen] == [1]


def test_what_was_kept_is_read_back(tmp_path: Path) -> None:
    state = State("anvil", rounds=7, seconds=1.5)
    state.cells[CELLS[3]].done = 2
    state.cells[CELLS[3]].recovery_seconds += [1.0, 3.0]
    state.violations.append(Violation(Wrong.HONEST_BAN, 4, Fault.KILLED, (3,)))
    path = tmp_path / "anvil.json"
    state.write(path)
    assert State.read(path) == state
    assert not state.is_complete(CELLS)
    assert state.is_complete((CELLS[3],), 2)


def test_the_table_has_a_row_per_cell_with_violations(tmp_path: Path) -> None:
    state = State("embedded", rounds=3)
    killed = Cell(Fault.KILLED, Role.TRAINER)
    state.cells[killed].done = 2
    state.cells[killed].recovery_seconds += [1.0, 2.0]
    state.violations.append(Violation(Wrong.STUCK, 3))
    rows = table([state]).splitlines()
    assert "| kill -9 | trainer | 2 | 1.5, 2.0 |" in rows
    assert sum(row.startswith("| ") for row in rows) == 2 + len(CELLS)
    assert "stuck 1, lost round 0" in rows[-1]
    page = tmp_path / "page.md"
    page.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n", "utf-8")
    written(page, [state])
    text = page.read_text("utf-8")
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    assert "old" not in text
    assert "kill -9" in text
    page.write_text("no place", "utf-8")
    with pytest.raises(ValueError, match="no place for the table"):
        written(page, [state])


FILLED = """
import sys
from pathlib import Path
from tests.federation import disks
folder = Path(sys.argv[1])
if not (disks.has_own_mounts() and disks.mount_small(folder)):
    sys.exit(77)
disks.fill(folder)
try:
    (folder / "more").write_bytes(b"x")
except OSError as error:
    print(error.strerror)
disks.empty(folder)
print((folder / "more").write_bytes(b"x"))
"""


def test_a_filled_disk_takes_nothing_until_it_is_emptied(tmp_path: Path) -> None:
    command = [sys.executable, "-c", FILLED, str(tmp_path / "disk")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode == 77:  # no mounts of our own here: the matrix then goes without
        left_out = set(CELLS) - set(possible_cells(can_fill_disks=False))
        assert {cell.fault for cell in left_out} == {Fault.FULL_DISK}
        return
    assert done.stdout.split("\n")[:2] == ["No space left on device", "1"], done.stderr
    assert not list((tmp_path / "disk").iterdir()), "the disk went with the process"
