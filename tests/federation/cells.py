"""Which faults there are, whom they can befall, and what makes a cell of the matrix."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from clients.adversaries.faults import MemberFault, TrainerFault
from ledger.audit.checks.rounds import BAN, DROPOUT, EQUIVOCATION, FALSE_SCORES, WRONG_PROPOSAL
from ledger.history.round import HistoryRound
from ledger.protocol.inputs import primary_seat
from ledger.protocol.parameters import MAX_VIEWS, Parameters
from ledger.protocol.types import ClientId, Phase

if TYPE_CHECKING:
    from clients.testnet.network import WorkerSlot
    from clients.testnet.watch import WatchedRound


class Role(StrEnum):
    """What an active client of the victim's is in the round; a victim of trainers has no member."""

    TRAINER = "trainer"
    MEMBER = "member"
    FIRST_PRIMARY = "primary of phase 1"
    SECOND_PRIMARY = "primary of phase 2"
    EVERYBODY = "everybody"


class Fault(StrEnum):
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
"""Faults of who a client is: its worker is told of them as the round begins, for that round."""

BANS = frozenset({Fault.EQUIVOCATING, Fault.SELF_BAN})  # faults that end in a ban
PRIMARIES = (Role.FIRST_PRIMARY, Role.SECOND_PRIMARY)
_ALL = (Role.TRAINER, Role.MEMBER, *PRIMARIES)
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
    Fault.FALSE_SCORES: (Role.MEMBER, *PRIMARIES),
    Fault.WRONG_PROPOSAL: PRIMARIES,
    Fault.EQUIVOCATING: (Role.MEMBER, *PRIMARIES),
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
    fault: Fault
    role: Role


CELLS = tuple(Cell(fault, role) for fault, roles in BEFALLS.items() for role in roles)


def possible_cells(*, can_fill_disks: bool) -> tuple[Cell, ...]:
    return tuple(cell for cell in CELLS if can_fill_disks or cell.fault is not Fault.FULL_DISK)


def liars(fault: Fault, roles: dict[ClientId, frozenset[Role]]) -> frozenset[ClientId]:
    """Return which of a victim's active clients lie, once it has been told to."""
    if isinstance(LIES[fault], TrainerFault):
        return frozenset(roles)  # members train, too
    return frozenset(client for client, its in roles.items() if Role.TRAINER not in its)


def roles_of(one: HistoryRound) -> dict[ClientId, frozenset[Role]]:
    """Return what each active client is in a round; who was banned before it is nothing."""
    found: dict[ClientId, set[Role]] = {client: {Role.TRAINER} for client in one.trainers}
    for member in one.committee:
        found[member] = {Role.MEMBER}
    for phase, role in zip((Phase.AGGREGATION, Phase.ELECTION), PRIMARIES, strict=True):
        place = primary_seat(one.seed, phase, 0, len(one.committee))
        found[one.committee[place]] = (found[one.committee[place]] - {Role.MEMBER}) | {role}
    for banned in one.vacant_members:
        del found[banned]
    return {client: frozenset(roles) for client, roles in found.items()}


@dataclass(frozen=True, slots=True)
class Margin:
    """How many more clients may be faulty in a round that has still to be decided."""

    members: int
    trainers: int
    bans: int

    @property
    def is_kept(self) -> bool:
        return self.members >= 0 and self.trainers >= 0


def margin_of(one: HistoryRound, sizes: Parameters, away: Iterable[WorkerSlot]) -> Margin:
    """Return what a round bears beside its empty seats and those who have not recovered yet."""
    roles = roles_of(one)
    lost = [roles[client] for seat in away for client in seat.clients if client in roles]
    trainers = sum(Role.TRAINER in its for its in lost)
    most = tolerated(sizes)
    return Margin(
        members=most - len(one.vacant_members) - (len(lost) - trainers),
        trainers=sizes.trainers - sizes.members - trainers,
        bans=most,
    )


def is_drawn_for_nothing(one: HistoryRound, faulty: frozenset[ClientId], views: int = 3) -> bool:
    """Say whether chance let no other primary have its turn in one of the phases.

    Each view's primary is drawn anew, so that a faulty one among C is drawn k times in a row once
    in C^k rounds, however few are faulty. An empty seat's view takes no time.
    """
    size = len(one.committee)
    for phase in (Phase.AGGREGATION, Phase.ELECTION):
        drawn = (one.committee[primary_seat(one.seed, phase, v, size)] for v in range(MAX_VIEWS))
        seated = [client for client in drawn if not one.registry[client].banned_in]
        if seated and faulty.issuperset(seated[:views]):
            return True
    return False


def victims(
    cell: Cell, seats: Iterable[WorkerSlot], roles: dict[ClientId, frozenset[Role]], margin: Margin
) -> list[WorkerSlot]:
    """Return the seats that a cell's fault can befall with the round still to be decided.

    No more members are faulty at once than are tolerated, enough trainers are left to fill the
    next committee, and what is banned leaves no more empty seats there than are tolerated.
    """
    found = []
    for seat in seats:
        mine = {client: roles[client] for client in seat.clients if client in roles}
        members = sum(Role.TRAINER not in its for its in mine.values())
        is_borne = members <= margin.members or members == 0
        is_borne &= len(mine) - members <= margin.trainers
        if cell.fault in BANS:
            is_borne &= len(liars(cell.fault, mine)) <= margin.bans
        is_it = members == 0 if cell.role is Role.TRAINER else True
        if is_borne and is_it and any(cell.role in its for its in mine.values()):
            found.append(seat)
    return found


def tolerated(sizes: Parameters) -> int:
    return sizes.members - 1 - sizes.replies


def seats_of_members(
    seats: Iterable[WorkerSlot], members: Collection[ClientId], count: int
) -> list[WorkerSlot]:
    """Return the fewest seats that host so many members, the fullest first."""
    held = {seat.number: sum(c in members for c in seat.clients) for seat in seats}
    chosen: list[WorkerSlot] = []
    for seat in sorted(seats, key=lambda seat: -held[seat.number]):
        if sum(held[one.number] for one in chosen) >= count:
            break
        chosen.append(seat)
    return chosen


NAMED_BY = {
    Fault.FALSE_SCORES: frozenset({FALSE_SCORES}),
    Fault.WRONG_PROPOSAL: frozenset({WRONG_PROPOSAL}),
    Fault.EQUIVOCATING: frozenset({EQUIVOCATION, BAN}),
    Fault.NOT_FINITE: frozenset({DROPOUT}),
    Fault.TRUNCATED: frozenset({DROPOUT}),
    Fault.COPIED: frozenset({DROPOUT}),
    Fault.LATE: frozenset({DROPOUT}),
    Fault.SELF_BAN: frozenset({BAN}),
}
"""What an audit says of a liar whose lie had an effect."""


def effective(
    fault: Fault, liars: frozenset[ClientId], ended: WatchedRound, banned: frozenset[ClientId]
) -> frozenset[ClientId]:
    """Return who of the liars has got a lie onto the record of its round.

    Late is no effect of a payload that is wrong: who was late has shown none.
    """
    match fault:
        case Fault.LATE:
            return liars.intersection(ended.late)
        case Fault.NOT_FINITE | Fault.TRUNCATED:
            return liars.intersection(ended.malformed)
        case Fault.COPIED:
            return liars.intersection(set(ended.unusable) - set(ended.malformed))
        case Fault.FALSE_SCORES:
            return liars.intersection(ended.refused)
        case Fault.WRONG_PROPOSAL:
            return liars.intersection(ended.accused)
        case Fault.EQUIVOCATING | Fault.SELF_BAN:
            return liars & banned
        case _:
            raise ValueError(f"{fault} is no lie")
