"""Simulated transmission time of a round, by three models.

The paper's T = s / r (section IV-B), every client with one link of rate r. In units of |w| / r, the
time of one model, with a committee of C and n training clients:

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
from math import isfinite

from ledger.protocol.errors import ConfigurationError

RATES = (1.0, 10.0, 100.0)
"""Mbit/s of one client: the paper's 1, 10 and 100 "Mps"."""

_BITS = 8
_MEGA = 1_000_000


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
