"""Enumerations of rounds and of queries for them, without further imports."""

from __future__ import annotations

from enum import StrEnum


class RoundStatus(StrEnum):
    """Status of a round."""

    OPEN = "open"
    DECIDED = "decided"
    ABANDONED = "abandoned"


class Order(StrEnum):
    """Order of a list of rounds."""

    NEWEST = "newest"
    OLDEST = "oldest"


class AskedRole(StrEnum):
    """Filter for rounds by the part of a client in them."""

    ANY = "any"
    TRAINED = "trained"
    ACCEPTED = "accepted"
    NOT_ACCEPTED = "not_accepted"
    DROPPED_OUT = "dropped_out"
    MEMBER = "member"
    SERVED = "served"
    REFUSED = "refused"
    VOTED = "voted"
