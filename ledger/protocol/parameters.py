"""The parameters of a deployment and the invariants that they keep."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from math import isfinite

from ledger.protocol.errors import ParametersError
from ledger.protocol.selection import MILLION, accepted_size, rounded_share
from ledger.protocol.types import Beacon, Scoring, Strategy

MIN_MEMBERS = 3
MAX_CLIENTS = 12_288
MAX_TRAINERS = 256
MAX_MEMBERS = 160
MAX_ROUNDS = 2**32 - 1
MAX_DIMENSION = 2**28
MAX_DEADLINE_BLOCKS = 2**32 - 1


@dataclass(frozen=True, slots=True)
class Parameters:
    """What a run's rounds are made of; immutable from deployment on.

    Attributes:
        clients: K, registered clients.
        active_rate: share of the clients that are active in a round.
        committee_rate: ω, share of the active clients on the committee.
        aggregation_rate: α, share of the ranked trainers that strategies I and II accept.
        rounds: T, the last round.
        dimension: d, number of the model's parameters.
        strategy: how S_a follows from the ranking.
        scoring: how distances to the members become one.
        server_rate: η, the global learning rate.
        scores_checked: members leave out score vectors that they find false.
        beacon: what else flows into the next seed.
        deadline_blocks: blocks after which an undecided round may be abandoned.
    """

    clients: int
    active_rate: float
    committee_rate: float
    aggregation_rate: float
    rounds: int
    dimension: int
    strategy: Strategy = Strategy.NEAREST
    scoring: Scoring = Scoring.MEAN
    server_rate: float = 1.0
    scores_checked: bool = True
    beacon: Beacon = Beacon.NONE
    deadline_blocks: int = 64

    def __post_init__(self) -> None:
        """Refuse settings that break an invariant.

        Raises:
            ParametersError: names the value and the rule.
        """
        self._require_ranges()
        if self.members < MIN_MEMBERS:
            raise ParametersError(
                f"the committee has C = {self.members} members, and needs at least {MIN_MEMBERS} "
                f"(K = {self.clients}, active_rate = {self.active_rate}, "
                f"committee_rate = {self.committee_rate})"
            )
        if self.trainers < self.members:
            raise ParametersError(
                f"n = {self.trainers} trainers are fewer than C = {self.members} members: "
                f"the ranking cannot fill the next committee (lower committee_rate)"
            )
        for name, value, bound in (
            ("members", self.members, MAX_MEMBERS),
            ("trainers", self.trainers, MAX_TRAINERS),
        ):
            if value > bound:
                raise ParametersError(f"{name} = {value} is over the contract's bound of {bound}")

    @property
    def active(self) -> int:
        """Clients that train or serve in a round: floor(active_rate · K + 1/2)."""
        return rounded_share(parts_per_million("active_rate", self.active_rate), self.clients)

    @property
    def members(self) -> int:
        """C = floor(ω · active + 1/2)."""
        return rounded_share(parts_per_million("committee_rate", self.committee_rate), self.active)

    @property
    def trainers(self) -> int:
        """The number n of training clients in a round."""
        return self.active - self.members

    @property
    def aggregation_ppm(self) -> int:
        """α in parts per million, as the contract keeps it."""
        return parts_per_million("aggregation_rate", self.aggregation_rate)

    @property
    def accepted(self) -> int:
        """The number m of accepted updates when all n trainers are ranked."""
        return accepted_size(self.aggregation_ppm, self.trainers)

    def _require_ranges(self) -> None:
        whole = {
            "clients": (self.clients, MAX_CLIENTS),
            "rounds": (self.rounds, MAX_ROUNDS),
            "dimension": (self.dimension, MAX_DIMENSION),
            "deadline_blocks": (self.deadline_blocks, MAX_DEADLINE_BLOCKS),
        }
        for name, (value, bound) in whole.items():
            if not 1 <= value <= bound:
                raise ParametersError(f"{name} = {value} is not in [1, {bound}]")
        if not (isfinite(self.server_rate) and self.server_rate > 0):
            raise ParametersError(f"server_rate = {self.server_rate} is not a positive number")
        # No share is over 1, so that m <= n and K >= C + n follow.
        for name in ("active_rate", "committee_rate", "aggregation_rate"):
            parts_per_million(name, getattr(self, name))


def parts_per_million(name: str, rate: float) -> int:
    """Return a rate as a whole number of millionths, so that contract and Python agree exactly.

    Args:
        name: what the rate is called in the error.
        rate: a share in [0, 1] with at most six decimals.

    Returns:
        rate · 10⁶.

    Raises:
        ParametersError: the rate is outside [0, 1] or has more than six decimals.
    """
    if not 0 <= rate <= 1:
        raise ParametersError(f"{name} = {rate} is not in [0, 1]")
    exact = Decimal(repr(float(rate))) * MILLION
    if exact != int(exact):
        raise ParametersError(f"{name} = {rate} has more than six decimals")
    return int(exact)
