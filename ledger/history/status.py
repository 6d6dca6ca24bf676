"""Enumerations of rounds and of queries for them, without further imports."""

from __future__ import annotations

from enum import StrEnum


class RoundStatus(StrEnum):
    """Status of a round."""

    OPEN = "open"
    DECIDED = "decided"
    ABANDONED = "abandoned"


class Order(StrEnum):
    """Which rounds come first."""

    NEWEST = "newest"
    OLDEST = "oldest"


class AskedRole(StrEnum):
    """What a client must have been or done in a round that is looked for."""

    ANY = "any"
    TRAINED = "trained"
    ACCEPTED = "accepted"
    NOT_ACCEPTED = "not_accepted"
    DROPPED_OUT = "dropped_out"
    MEMBER = "member"
    SERVED = "served"
    REFUSED = "refused"
    VOTED = "voted"
