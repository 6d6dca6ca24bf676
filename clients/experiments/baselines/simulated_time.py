"""Accuracy against time, as in the paper's figures 8 and 9: computation plus transmission.

Computation is measured: the seconds that a cell's parts took here, divided by how many clients did
them, since all of them work side by side. Transmission is computed, by one of three models. The
authors' curves are constants a round (train .05, score .026, aggregate .025 or .04 s) times a round
number; nothing of theirs is taken over.

Transmission is T = s / r (section IV-B), every client with one link of rate r. In units of |w| / r,
the time of one model, with a committee of C and n training clients:

    per round       text        authors     counted
    typical FL      2           2           bytes of the busiest link, as `traffic` has them
    CMFL            C + n       C + 1
    BrainTorrent    n           n
    GossipFL        n - 1       n - 1

`text` is what section IV-B says: an upload to every member, then a download that the primary sends
to n clients. `authors` is the script behind their figures 8 and 9, where the download is one. So
the paper's "CMFL is always better than the other two" holds by the script alone: by its own text,
43 + 65 = 108 transfers are more than BrainTorrent's 65.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from itertools import accumulate
from math import isfinite
from statistics import fmean
from typing import TYPE_CHECKING

from ledger.protocol.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from clients.experiments.rows import CellRow


RATES = (1.0, 10.0, 100.0)
"""Mbit/s of one client: the paper's 1, 10 and 100 "Mps"."""

_BITS = 8

_MEGA = 1_000_000


@dataclass(frozen=True, slots=True)
class Computation:
    """Seconds of computation on the critical path of a round.

    Attributes:
        training: of one client; twice that in BrainTorrent, where the initiator trains again.
        scoring: of one member, who checks the scores of all; at the server, its aggregation rule;
            of one participant without a server, its merge.
        ledger: of all actors of a CMFL round together: one process plays them all, so that this is
            more than any of them would take.
    """

    training: float
    scoring: float = 0.0
    ledger: float = 0.0


def computation_of(row: CellRow, training: float | None = None) -> Computation:
    """Return what an average round of a cell computes.

    Args:
        row: of the cell; `extra` has `committee` and `trainers`, and `participants` where another
            number of clients trains.
        training: seconds of one client's training (`solo_training_seconds`); the row's own if None.

    Raises:
        ConfigurationError: it has no system of `System`, or its training was not timed.
    """
    system, sizes = _system(row), _sizes(row)
    if row.seconds.training is None:
        raise ConfigurationError(f"cell {row.cell}: its training was not timed")
    active = sizes.committee + sizes.trainers
    participants = _number(row, "participants", default=_trained(system, sizes))
    in_turn = _in_turn(system)
    trainings = participants + in_turn - 1
    scorers = active if system is System.GOSSIP else 1
    each = row.seconds.training / (row.rounds * trainings) if training is None else training
    return Computation(
        training=each * in_turn,
        scoring=(row.seconds.scoring or 0.0) / (row.rounds * scorers),
        ledger=(row.seconds.ledger or 0.0) / row.rounds,
    )


def transmission_of(row: CellRow, transmission: Transmission, rate: float) -> tuple[float, ...]:
    """Return how long each round of a cell is on the wire, in seconds."""
    if transmission is Transmission.COUNTED:
        return tuple(seconds_on_wire(size, rate) for size in _by_round(row))
    units = transfers(_system(row), transmission, _sizes(row))
    return (seconds_on_wire(units * _model_bytes(row), rate),) * row.rounds


def solo_training_seconds(rows: Iterable[CellRow]) -> float | None:
    """Return the training seconds of one client that trains alone.

    Clients that start from one model train together here, several of them in each step, and so take
    less each than any of them would on its own machine; participants with models of their own do
    not. Methods that are compared take the same time to train: this one, given to `time_axis`.
    """
    seconds = [
        computation_of(row).training / _in_turn(_system(row))
        for row in rows
        if row.kind in {System.BRAIN_TORRENT, System.GOSSIP} and row.seconds.training is not None
    ]
    return fmean(seconds) if seconds else None


def time_axis(
    row: CellRow,
    transmission: Transmission,
    rate: float,
    *,
    training: float | None = None,
    with_ledger: bool = False,
) -> tuple[float, ...]:
    """Return the simulated time at the end of each round, in seconds: ascending."""
    computed = computation_of(row, training)
    each = computed.training + computed.scoring + (computed.ledger if with_ledger else 0.0)
    return tuple(accumulate(wire + each for wire in transmission_of(row, transmission, rate)))


def _system(row: CellRow) -> System:
    try:
        return System(row.kind)
    except ValueError as error:
        raise ConfigurationError(f"cell {row.cell}: kind {row.kind!r} sends nothing") from error


def _sizes(row: CellRow) -> TransmissionSizes:
    return TransmissionSizes(_number(row, "committee"), _number(row, "trainers"))


def _in_turn(system: System) -> int:
    """Return how often a client trains in a round: BrainTorrent's initiator once more, alone."""
    return 2 if system is System.BRAIN_TORRENT else 1


def _trained(system: System, sizes: TransmissionSizes) -> int:
    """Return how many clients train in a round, where a row does not say otherwise."""
    if system is System.FEDERATED:
        return sizes.trainers
    return sizes.committee + sizes.trainers


def _number(row: CellRow, name: str, default: int | None = None) -> int:
    """Return one of a row's sizes."""
    value = row.extra.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ConfigurationError(f"cell {row.cell}: extra.{name} = {value!r}: at least 1")
    return value


def _model_bytes(row: CellRow) -> int:
    size = row.bytes.get("model")
    if not isinstance(size, int):
        raise ConfigurationError(f"cell {row.cell}: its bytes were not counted")
    return size


def _by_round(row: CellRow) -> Sequence[int]:
    sizes = row.bytes.get("by_round")
    if not isinstance(sizes, list) or len(sizes) != row.rounds:
        raise ConfigurationError(f"cell {row.cell}: its bytes were not counted in every round")
    return sizes


class Transmission(StrEnum):
    """A model of a round's transfers."""

    TEXT = "text"
    AUTHORS = "authors"
    COUNTED = "counted"


class System(StrEnum):
    """Whose rounds they are: the kinds of method that an experiment knows."""

    FEDERATED = "federated"
    COMMITTEE = "cmfl"
    BRAIN_TORRENT = "brain-torrent"
    GOSSIP = "gossip"


@dataclass(frozen=True, slots=True)
class TransmissionSizes:
    """Numbers of clients in the formulas.

    Attributes:
        committee: C.
        trainers: n, also for systems without a committee: the paper charges them for n clients.
    """

    committee: int
    trainers: int

    def __post_init__(self) -> None:
        """Check the sizes."""
        if self.committee < 1 or self.trainers < 1:
            raise ConfigurationError(
                f"committee = {self.committee}, trainers = {self.trainers}: at least 1 of each"
            )


def transfers(system: System, transmission: Transmission, sizes: TransmissionSizes) -> int:
    """Return how many models, one after the other, a round takes on the wire by a formula.

    Args:
        system: whose round.
        transmission: `text` or `authors`.
        sizes: C and n.

    Raises:
        ValueError: there is no formula for what is counted.
    """
    if transmission is Transmission.COUNTED:
        raise ValueError("what is counted follows from bytes, not from a formula")
    match system:
        case System.FEDERATED:
            return 2
        case System.COMMITTEE:
            download = sizes.trainers if transmission is Transmission.TEXT else 1
            return sizes.committee + download
        case System.BRAIN_TORRENT:
            return sizes.trainers
        case System.GOSSIP:
            return sizes.trainers - 1


def seconds_on_wire(size: float, rate: float) -> float:
    """Return how long bytes take on one link: s = 8 * bytes, T = s / r."""
    if not (isfinite(rate) and rate > 0):
        raise ConfigurationError(f"rate = {rate} Mbit/s: must be above 0")
    return _BITS * size / (_MEGA * rate)
