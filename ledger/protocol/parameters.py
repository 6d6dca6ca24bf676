"""The parameters of a deployment and the invariants that they keep."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from math import isfinite, prod
from typing import TYPE_CHECKING

from ledger.protocol.consensus import replies_needed
from ledger.protocol.errors import ParametersError
from ledger.protocol.payload_forms import PAYLOAD_FORMS, PayloadForm
from ledger.protocol.rules import registry
from ledger.protocol.rules.own import OwnRuleName
from ledger.protocol.types import AcceptanceForm, Beacon, Election, Quorum

if TYPE_CHECKING:
    from ledger.protocol.rules.distance import Layout
    from ledger.protocol.rules.reference import DirectionWeight, ReferenceRule
    from ledger.protocol.rules.selection import SelectionRule

MILLION = 1_000_000
MIN_MEMBERS = 3
MIN_ACTIVE = 2 * MIN_MEMBERS
"""Each member of the next committee is one of this round's trainers."""
MINIMUM_FEDERATION = (
    f"the least federation has {MIN_ACTIVE} active clients, {MIN_MEMBERS} members and "
    f"{MIN_ACTIVE - MIN_MEMBERS} trainers"
)
MAX_CLIENTS = 12_288
MAX_TRAINERS = 256
MAX_MEMBERS = 160
MAX_ROUNDS = 2**32 - 1
MAX_DIMENSION = 2**28
MAX_BLOCKS = 2**32 - 1
MAX_VIEW_SECONDS = 2**20

COMMIT_BLOCKS = 4
DEADLINE_BLOCKS = 64
VIEW_SECONDS = 10
"""Defaults."""

_OWN = ("distance", "scoring")
"""Rules that a user's own function may be, named with the digest of its code."""

RANGES = {
    "clients": (1, MAX_CLIENTS),
    "rounds": (1, MAX_ROUNDS),
    "dimension": (1, MAX_DIMENSION),
    "active_ppm": (0, MILLION),
    "committee_ppm": (0, MILLION),
    # No share is over 1, so that m <= n and K >= C + n follow.
    "aggregation_ppm": (0, MILLION),
    "commit_blocks": (1, MAX_BLOCKS),
    "deadline_blocks": (3, MAX_BLOCKS),
    "view_seconds": (1, MAX_VIEW_SECONDS),
}
"""Smallest and largest value of each whole number."""


@dataclass(frozen=True, slots=True)
class Parameters:
    """The parameters of a run's rounds; immutable from deployment on.

    Attributes:
        clients: K, registered clients.
        active_ppm: share of the clients that are active in a round, in millionths.
        committee_ppm: ω, share of the active clients on the committee, in millionths.
        aggregation_ppm: α, share of the ranked trainers that strategies I and II accept.
        rounds: T, the last round.
        dimension: d, number of the model's parameters.
        strategy: number of the selection rule.
        scoring: name of the rule by which distances to the members become one; an own one's is
            `file.py:function@sha256:DIGEST`.
        distance: name of the rule by which a member scores an update, likewise.
        reference: name of the rule for what a member holds updates against.
        threshold: name of the rule behind strategy III's threshold, "none" for I and II.
        quorum: how many equal replies decide.
        server_rate: η, the global learning rate.
        scores_checked: members leave out score vectors that they find false.
        beacon: what else flows into the next seed.
        commit_blocks: blocks after the opening one in which commitments are taken.
        deadline_blocks: blocks after which an undecided round may be abandoned.
        view_seconds: how long view 0 lasts; every later one lasts twice as long.
        payload: name of the form in which updates are published.
        clip: name of the rule by which long accepted updates are shortened.
        election: how the next committee follows from the ranking.
    """

    clients: int
    active_ppm: int
    committee_ppm: int
    aggregation_ppm: int
    rounds: int
    dimension: int
    strategy: int = 1
    scoring: str = "mean"
    distance: str = "squared"
    reference: str = "own"
    threshold: str = "none"
    quorum: Quorum = Quorum.PAPER
    server_rate: float = 1.0
    scores_checked: bool = True
    beacon: Beacon = Beacon.NONE
    commit_blocks: int = COMMIT_BLOCKS
    deadline_blocks: int = DEADLINE_BLOCKS
    view_seconds: int = VIEW_SECONDS
    payload: str = "float32"
    clip: str = "none"
    election: Election = Election.MIDDLE

    def __post_init__(self) -> None:
        """Refuse settings that break an invariant.

        Raises:
            ParametersError: names the value and the rule.
        """
        self._require_ranges()
        self._require_rules()
        self._require_sizes()

    @property
    def active(self) -> int:
        """Clients that train or serve in a round: floor(active_rate · K + 1/2)."""
        return rounded_share(self.active_ppm, self.clients)

    @property
    def members(self) -> int:
        """C = floor(ω · active + 1/2)."""
        return rounded_share(self.committee_ppm, self.active)

    @property
    def trainers(self) -> int:
        """The number n of training clients in a round."""
        return self.active - self.members

    @property
    def accepted(self) -> int:
        """The number m of accepted updates when all n trainers are ranked."""
        return accepted_size(self.aggregation_ppm, self.trainers)

    @property
    def replies(self) -> int:
        """Equal replies from others than the primary that decide."""
        return replies_needed(self.members, self.quorum)

    @property
    def selection(self) -> SelectionRule:
        """The rule behind the strategy's number."""
        return registry.SELECTIONS[self.strategy]

    @property
    def direction_weight(self) -> DirectionWeight | None:
        """Weight of the server direction in the members' references; None if it has none."""
        return self.reference_rule.direction_weight

    @property
    def reference_rule(self) -> ReferenceRule:
        """The rule behind the reference's name."""
        return registry.REFERENCES[self.reference]

    @property
    def payload_form(self) -> PayloadForm:
        """The form of the payloads."""
        return PAYLOAD_FORMS[self.payload]

    @property
    def elects_by_lot(self) -> bool:
        """True if the next committee is drawn among S_a (strategy III)."""
        return self.form is AcceptanceForm.BELOW_TWO

    @property
    def form(self) -> AcceptanceForm:
        """Form from which the contract derives S_a."""
        return self.selection.form

    def _require_ranges(self) -> None:
        # One block to decide in after the window, before the one that may abandon.
        deadline = {"deadline_blocks": (self.commit_blocks + 2, MAX_BLOCKS)}
        for name, (least, most) in (RANGES | deadline).items():
            value = getattr(self, name)
            if not least <= value <= most:
                raise ParametersError(f" is not in [{least}, {most}]", name, value)
        if not (isfinite(self.server_rate) and self.server_rate > 0):
            raise ParametersError(" is not a positive number", "server_rate", self.server_rate)

    def _require_rules(self) -> None:
        for name, value, listed in (
            ("strategy", self.strategy, registry.SELECTIONS),
            ("scoring", self.scoring, registry.SCORINGS),
            ("distance", self.distance, registry.DISTANCES),
            ("reference", self.reference, registry.REFERENCES),
            ("threshold", self.threshold, registry.THRESHOLDS),
            ("payload", self.payload, PAYLOAD_FORMS),
            ("clip", self.clip, registry.CLIPS),
        ):
            is_own = name in _OWN and OwnRuleName.of(str(value)) is not None
            if value not in listed and not is_own:
                choices = ", ".join(str(choice) for choice in listed)
                raise ParametersError(f" is none of {choices}", name, value)
        threshold = registry.THRESHOLDS[self.threshold]
        if self.selection.needs_threshold != threshold.is_certified:
            need = "needs a" if self.selection.needs_threshold else "has no"
            fault = f": strategy {self.strategy} {need} threshold"
            raise ParametersError(fault, "threshold", self.threshold)
        for name, rule in (
            ("threshold", threshold),
            ("reference", self.reference_rule),
        ):
            if rule.distance not in {None, self.distance}:
                fault = f" goes with distance = {rule.distance}, not with {self.distance}"
                raise ParametersError(fault, name, rule.name)

    def _require_sizes(self) -> None:
        least = f"; {MINIMUM_FEDERATION}" if self.active < MIN_ACTIVE else ""
        if self.members < MIN_MEMBERS:
            raise ParametersError(
                f": the committee has C = {self.members} members, and needs at least "
                f"{MIN_MEMBERS} (K = {self.clients}, {self.active} active{least})",
                "committee_ppm",
                self.committee_ppm,
            )
        if self.trainers < self.members:
            raise ParametersError(
                f": n = {self.trainers} trainers are fewer than C = {self.members} members; "
                f"the ranking cannot fill the next committee{least}",
                "committee_ppm",
                self.committee_ppm,
            )
        for name, value, bound in (
            ("members", self.members, MAX_MEMBERS),
            ("trainers", self.trainers, MAX_TRAINERS),
        ):
            if value > bound:
                fault = f": {name} = {value} is over the contract's bound of {bound}"
                raise ParametersError(fault, "active_ppm", self.active_ppm)


def parts_per_million(name: str, rate: float) -> int:
    """Return floor(10⁶ · rate + 1/2), so that contract and Python agree exactly.

    The rate, called `name` in the error, is read as its shortest decimal.

    Raises:
        ParametersError: the rate is outside [0, 1].
    """
    if not 0 <= rate <= 1:
        raise ParametersError(" is not in [0, 1]", name, rate)
    return int(Decimal(repr(float(rate))) * MILLION + Decimal("0.5"))


def rounded_share(ppm: int, whole: int) -> int:
    """Return floor(rate · whole + 1/2), exactly."""
    return (2 * ppm * whole + MILLION) // (2 * MILLION)


def accepted_size(aggregation_ppm: int, ranked: int) -> int:
    """Return m for the number of trainers that remain in the ranking, at least 1."""
    return max(1, rounded_share(aggregation_ppm, ranked))


def require_layout(layout: Layout, dimension: int) -> None:
    """Refuse a layout that is not one of a model with d parameters.

    Raises:
        ParametersError: the tensors do not add up to d, or a name is repeated.
    """
    names = [name for name, _ in layout]
    if len(set(names)) != len(names):
        raise ParametersError("layout: a tensor's name is repeated")
    size = sum(prod(shape) for _, shape in layout)
    if size != dimension:
        raise ParametersError(f"layout: its tensors have {size} numbers, and d = {dimension}")
