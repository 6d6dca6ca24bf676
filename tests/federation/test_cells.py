"""Who can be a victim of what, what is kept of it, and what the table says."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import pytest

from clients.federation.federation import hosting
from ledger.protocol.parameters import Parameters
from ledger.protocol.types import ClientId
from tests.federation.cells import (
    CELLS,
    Cell,
    Fault,
    Role,
    possible_cells,
    seats_of_members,
    tolerated,
    victims,
)
from tests.federation.checks import Violation, Wrong
from tests.federation.state import State
from tests.federation.table import BEGIN, END, table, written

if TYPE_CHECKING:
    from pathlib import Path

    from clients.federation.seat import Seat

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


@dataclass
class Place:
    number: int
    clients: tuple[ClientId, ...]


def seats(*hosted: tuple[int, ...]) -> list[Seat]:
    places = [Place(number, tuple(map(ClientId, them))) for number, them in enumerate(hosted)]
    return cast("list[Seat]", places)


def test_workers_host_the_clients_in_turn() -> None:
    assert hosting(5, 2) == [(0, 2, 4), (1, 3)]


def test_one_of_five_members_may_be_silent() -> None:
    assert (SIZES.members, SIZES.trainers, SIZES.replies, tolerated(SIZES)) == (5, 7, 3, 1)


def test_a_victim_has_the_role_and_no_more_members_than_may_be_faulty() -> None:
    trainer, member = frozenset({Role.TRAINER}), frozenset({Role.MEMBER})
    primary = frozenset({Role.FIRST_PRIMARY})
    roles = {ClientId(c): its for c, its in enumerate([trainer, trainer, trainer, member, primary])}
    places = seats((0, 9), (3, 0), (3, 4), (4,), (0, 1, 2), (9,))

    def numbers(fault: Fault, role: Role) -> list[int]:
        return [seat.number for seat in victims(Cell(fault, role), places, roles, SIZES)]

    assert numbers(Fault.KILLED, Role.MEMBER) == [1], "the third seat has two members"
    assert numbers(Fault.KILLED, Role.FIRST_PRIMARY) == [3]
    assert numbers(Fault.NOT_FINITE, Role.TRAINER) == [0], "of seven trainers two can be spared"


def test_too_many_members_are_in_the_fewest_seats_that_hold_them() -> None:
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


def test_the_table_has_a_row_for_each_cell_and_says_what_was_wrong(tmp_path: Path) -> None:
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
