"""The parameters of a deployment and the invariants that they keep."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from decimal import Decimal
from math import isfinite, prod

from ledger.protocol.errors import ParametersError
from ledger.protocol.payloads import PAYLOAD_FORMS, PayloadForm
from ledger.protocol.rules.distance import (
    DIRECTION,
    SQUARED,
    DistanceRule,
    Layout,
    OwnRuleName,
    distance_named,
    distance_sentence,
)
from ledger.protocol.types import AcceptanceForm, Beacon, Quorum

MILLION = 1_000_000
MIN_MEMBERS = 3
MIN_ACTIVE = 2 * MIN_MEMBERS  # each member of the next committee is one of this round's trainers
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
MAX_VIEWS = 32  # a committee gives up; the last would begin after 2^32 times `view_seconds`
COMMIT_BLOCKS = 4  # this one and the next two are defaults
DEADLINE_BLOCKS = 64
VIEW_SECONDS = 10
STRATEGIES = {1: "I", 2: "II", 3: "III"}  # the paper's two, and ours, with names

RANGES = {  # smallest and largest value of each whole number
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


@dataclass(frozen=True, slots=True)
class Parameters:
    """The parameters of a run's rounds; immutable from deployment on."""

    clients: int
    active_ppm: int  # share of the clients that are active in a round, in millionths
    committee_ppm: int  # ω, share of the active clients on the committee, in millionths
    aggregation_ppm: int  # α, share of the ranked trainers that strategies I and II accept
    rounds: int
    dimension: int
    strategy: int = 1  # determines distance, score, selection, weights, clip and election
    distance: str = SQUARED.name  # or a user's own: `file.py:function@sha256:DIGEST`
    quorum: Quorum = Quorum.PAPER
    server_rate: float = 1.0
    beacon: Beacon = Beacon.NONE  # a further input of the next seed
    commit_blocks: int = COMMIT_BLOCKS  # after the opening one, in which commitments are taken
    deadline_blocks: int = DEADLINE_BLOCKS  # after which an undecided round may be abandoned
    view_seconds: int = VIEW_SECONDS  # length of view 0; each later one lasts twice as long
    payload: str = "float32"

    def __post_init__(self) -> None:
        # One block to decide in after the window, before the one that may abandon.
        deadline = {"deadline_blocks": (self.commit_blocks + 2, MAX_BLOCKS)}
        for name, (least, most) in (RANGES | deadline).items():
            is_within = least <= getattr(self, name) <= most
            self._require(name, is_within, f" is not in [{least}, {most}]")
        is_positive = isfinite(self.server_rate) and self.server_rate > 0
        self._require("server_rate", is_positive, " is not a positive number")
        self._require_listed("strategy", STRATEGIES)
        self._require_listed("payload", PAYLOAD_FORMS)
        if self.distance != SQUARED.name:
            rule = " cannot be set with strategy 3, which compares directions; omit it"
            self._require("distance", not self.compares_directions, rule)
            rule = f" is neither {SQUARED.name} nor a function, file.py:function@sha256:DIGEST"
            self._require("distance", OwnRuleName.of(self.distance) is not None, rule)
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
    def distance_rule(self) -> DistanceRule:
        return DIRECTION if self.compares_directions else distance_named(self.distance)

    @property
    def distance_sentence(self) -> str:
        return DIRECTION.sentence if self.compares_directions else distance_sentence(self.distance)

    @property
    def compares_directions(self) -> bool:
        """True for strategy 3, whose distances depend on all of a round's updates."""
        return self.form is AcceptanceForm.BELOW_TWO

    @property
    def payload_form(self) -> PayloadForm:
        return PAYLOAD_FORMS[self.payload]

    @property
    def form(self) -> AcceptanceForm:
        return AcceptanceForm(self.strategy)

    def _require_sizes(self) -> None:
        least = f"; {MINIMUM_FEDERATION}" if self.active < MIN_ACTIVE else ""
        self._require(
            "committee_ppm",
            self.members >= MIN_MEMBERS,
            f": the committee has C = {self.members} members, and needs at least "
            f"{MIN_MEMBERS} (K = {self.clients}, {self.active} active{least})",
        )
        self._require(
            "committee_ppm",
            self.trainers >= self.members,
            f": n = {self.trainers} trainers are fewer than C = {self.members} members; "
            f"the ranking cannot fill the next committee{least}",
        )
        for name, bound in (("members", MAX_MEMBERS), ("trainers", MAX_TRAINERS)):
            value = getattr(self, name)
            rule = f": {name} = {value} is over the contract's bound of {bound}"
            self._require("active_ppm", value <= bound, rule)

    def _require_listed(self, name: str, listed: Collection[object]) -> None:
        choices = ", ".join(map(str, listed))
        self._require(name, getattr(self, name) in listed, f" is none of {choices}")

    def _require(self, name: str, holds: bool, rule: str) -> None:
        if not holds:
            raise ParametersError(rule, name, getattr(self, name))


def parts_per_million(name: str, rate: float) -> int:
    """Return floor(10⁶ · rate + 1/2) of a rate's shortest decimal; `name` is for the error."""
    if not 0 <= rate <= 1:
        raise ParametersError(" is not in [0, 1]", name, rate)
    return int(Decimal(repr(float(rate))) * MILLION + Decimal("0.5"))


def rounded_share(ppm: int, whole: int) -> int:
    """Return floor(rate · whole + 1/2), exactly."""
    return (2 * ppm * whole + MILLION) // (2 * MILLION)


def accepted_size(aggregation_ppm: int, ranked: int) -> int:
    """Return m for the number of trainers that remain in the ranking, at least 1."""
    return max(1, rounded_share(aggregation_ppm, ranked))


def replies_needed(members: int, quorum: Quorum) -> int:
    """Return the number of equal replies from members other than the primary that decide.

    For `bft` they are, with the request, a Byzantine quorum: ceil((C + f + 1) / 2), where f is
    floor((C - 1) / 3).
    """
    if quorum is Quorum.PAPER:
        return majority(members)
    faulty = (members - 1) // 3
    return (members + faulty + 2) // 2 - 1


def majority(members: int) -> int:
    """Return floor(C/2) + 1: the score vectors that must count before anything is decided."""
    return members // 2 + 1


def require_layout(layout: Layout, dimension: int) -> None:
    """Refuse a layout that is not one of a model with d parameters."""
    names = [name for name, _ in layout]
    if len(set(names)) != len(names):
        raise ParametersError("layout: a tensor's name is repeated")
    size = sum(prod(shape) for _, shape in layout)
    if size != dimension:
        raise ParametersError(f"layout: its tensors have {size} numbers, and d = {dimension}")
