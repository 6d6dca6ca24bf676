"""Which faults there are, whom they can befall, and what makes a cell of the matrix."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from clients.adversaries.faults import MemberFault, TrainerFault
from ledger.protocol.consensus import primary_place
from ledger.protocol.types import Phase

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from clients.federation.seat import Seat
    from ledger.history.round import Round
    from ledger.protocol.parameters import Parameters
    from ledger.protocol.types import ClientId


class Role(StrEnum):
    """What an active client of the victim's is in the round; a victim of trainers has no member."""

    TRAINER = "trainer"
    MEMBER = "member"
    FIRST_PRIMARY = "primary of phase 1"
    SECOND_PRIMARY = "primary of phase 2"
    EVERYBODY = "everybody"


class Fault(StrEnum):
    """What befalls a worker, or the chain under all of them."""

    KILLED = "kill -9"
    FROZEN = "frozen"
    SLOW = "slow network"
    CUT = "network cut"
    SILENT = "network silent"
    WRONG_ANSWERS = "RPC errors"
    FULL_DISK = "full disk"
    RESTORED_BACKUP = "restored backup"
    TWO_PROCESSES = "key in two processes"
    CORRUPTED_BLOB = "corrupted blob"
    FALSE_SCORES = "false scores"
    WRONG_PROPOSAL = "wrong proposal"
    EQUIVOCATING = "equivocation"
    NOT_FINITE = "NaN payload"
    TRUNCATED = "truncated payload"
    COPIED = "copied update"
    LATE = "late commitment"
    SELF_BAN = "self-ban"
    REORGANISED = "reorganisation"
    TOO_MANY = "too many members"


LIES: dict[Fault, MemberFault | TrainerFault] = {
    Fault.FALSE_SCORES: MemberFault.FALSE_SCORES,
    Fault.WRONG_PROPOSAL: MemberFault.WRONG_PROPOSAL,
    Fault.EQUIVOCATING: MemberFault.EQUIVOCATING,
    Fault.NOT_FINITE: TrainerFault.NOT_FINITE,
    Fault.TRUNCATED: TrainerFault.WRONG_LENGTH,
    Fault.COPIED: TrainerFault.COPIED,
    Fault.LATE: TrainerFault.LATE,
    Fault.SELF_BAN: TrainerFault.SELF_BAN,
}
"""Faults of who a client is: its worker is begun with them, and begun honest again afterwards."""

BANS = frozenset({Fault.EQUIVOCATING, Fault.SELF_BAN})
"""Faults that end in a ban."""

_PRIMARIES = (Role.FIRST_PRIMARY, Role.SECOND_PRIMARY)
_ALL = (Role.TRAINER, Role.MEMBER, *_PRIMARIES)
_TRAINING = (Role.TRAINER, Role.MEMBER)

BEFALLS: dict[Fault, tuple[Role, ...]] = {
    Fault.KILLED: _ALL,
    Fault.FROZEN: _ALL,
    Fault.SLOW: _ALL,
    Fault.CUT: _ALL,
    Fault.SILENT: _ALL,
    Fault.WRONG_ANSWERS: _ALL,
    Fault.FULL_DISK: _ALL,
    Fault.RESTORED_BACKUP: _ALL,
    Fault.TWO_PROCESSES: _ALL,
    Fault.CORRUPTED_BLOB: _TRAINING,
    Fault.FALSE_SCORES: (Role.MEMBER, *_PRIMARIES),
    Fault.WRONG_PROPOSAL: _PRIMARIES,
    Fault.EQUIVOCATING: (Role.MEMBER, *_PRIMARIES),
    Fault.NOT_FINITE: _TRAINING,
    Fault.TRUNCATED: _TRAINING,
    Fault.COPIED: _TRAINING,
    Fault.LATE: _TRAINING,
    Fault.SELF_BAN: _TRAINING,
    Fault.REORGANISED: (Role.EVERYBODY,),
    Fault.TOO_MANY: (Role.EVERYBODY,),
}
"""The roles in which each fault makes sense: a trainer proposes nothing, say."""


@dataclass(frozen=True, slots=True, order=True)
class Cell:
    """One cell of the matrix on one chain.

    Attributes:
        fault: what happens.
        role: to whom.
    """

    fault: Fault
    role: Role


CELLS = tuple(Cell(fault, role) for fault, roles in BEFALLS.items() for role in roles)


def possible_cells(*, can_fill_disks: bool) -> tuple[Cell, ...]:
    """Return the cells that can occur on this machine.

    Args:
        can_fill_disks: whether each worker can have a small disk of its own.
    """
    return tuple(cell for cell in CELLS if can_fill_disks or cell.fault is not Fault.FULL_DISK)


def roles_of(one: Round) -> dict[ClientId, frozenset[Role]]:
    """Return what each active client is in a round.

    Args:
        one: the round.
    """
    found: dict[ClientId, set[Role]] = {client: {Role.TRAINER} for client in one.trainers}
    for member in one.committee:
        found[member] = {Role.MEMBER}
    for phase, role in zip((Phase.AGGREGATION, Phase.ELECTION), _PRIMARIES, strict=True):
        place = primary_place(one.seed, phase, 0, len(one.committee))
        found[one.committee[place]] = (found[one.committee[place]] - {Role.MEMBER}) | {role}
    return {client: frozenset(roles) for client, roles in found.items()}


def victims(
    cell: Cell,
    seats: Sequence[Seat],
    roles: dict[ClientId, frozenset[Role]],
    sizes: Parameters,
) -> list[Seat]:
    """Return the seats that a cell's fault can befall with the round still to be decided.

    No more members are faulty at once than are tolerated, and enough trainers are left to fill the
    next committee.

    Args:
        cell: fault and role.
        seats: all of them.
        roles: what each active client is.
        sizes: of the run.
    """
    found = []
    for seat in seats:
        mine = [roles[client] for client in seat.clients if client in roles]
        members = sum(Role.TRAINER not in its for its in mine)
        is_borne = members <= tolerated(sizes)
        is_borne &= len(mine) - members <= sizes.trainers - sizes.members
        is_it = members == 0 if cell.role is Role.TRAINER else True
        if is_borne and is_it and any(cell.role in its for its in mine):
            found.append(seat)
    return found


def tolerated(sizes: Parameters) -> int:
    """Return how many members may be silent.

    Args:
        sizes: of the run.
    """
    return sizes.members - 1 - sizes.replies


def seats_of_members(
    seats: Iterable[Seat], committee: Sequence[ClientId], count: int
) -> list[Seat]:
    """Return the fewest seats that host so many members, the fullest first.

    Args:
        seats: all of them.
        committee: of the round.
        count: how many members at least.
    """
    held = {seat.number: sum(c in committee for c in seat.clients) for seat in seats}
    chosen: list[Seat] = []
    for seat in sorted(seats, key=lambda seat: -held[seat.number]):
        if sum(held[one.number] for one in chosen) >= count:
            break
        chosen.append(seat)
    return chosen
