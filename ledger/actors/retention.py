"""Retention of a run's blobs: a machine's choice, and no part of the protocol.

Members vote by what they hold in memory or store, so heads are the same under every choice. What
changes is how much an audit can check afterwards: it says what is not there, and ends incomplete.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from ledger.protocol.errors import ConfigurationError

MAX_RETAINED_ROUNDS = 2**31 - 1
"""The largest number of rounds whose payloads can be asked for."""


class StoredBlobs(StrEnum):
    """The blobs that are written."""

    ALL = "all"
    ACCEPTED = "accepted"
    NOTHING = "nothing"


@dataclass(frozen=True, slots=True)
class RetentionPolicy:
    """The blobs that are retained.

    Attributes:
        stored: everything; of the payloads only those of S_a; or nothing, where the ledger itself
            ends with its process, so that no blob is ever read.
        rounds: number of newest rounds that keep their payloads; None for all rounds.
    """

    stored: StoredBlobs = StoredBlobs.ALL
    rounds: int | None = None


RETAIN_ALL = RetentionPolicy()
RETAIN_NOTHING = RetentionPolicy(StoredBlobs.NOTHING)


def retention_policy_of(setting: str | int) -> RetentionPolicy:
    """Return the choice that a setting asks for.

    Args:
        setting: "all", "accepted" (before a decision leaves, the payloads of its S_a are stored,
            and no others ever), or how many of the newest rounds keep their payloads.

    Raises:
        ConfigurationError: it is something else.
    """
    if isinstance(setting, bool) or not isinstance(setting, int):
        if setting in {StoredBlobs.ALL, StoredBlobs.ACCEPTED}:
            return RetentionPolicy(StoredBlobs(setting))
    elif 1 <= setting <= MAX_RETAINED_ROUNDS:
        return RetentionPolicy(rounds=setting)
    raise ConfigurationError(
        f"keep = {setting!r}: must be 'all', 'accepted', or a number of rounds from 1 to "
        f"{MAX_RETAINED_ROUNDS}"
    )
