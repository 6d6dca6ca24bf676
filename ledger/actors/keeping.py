"""Which blobs of a run stay where it stores them: a machine's choice, and no part of the protocol.

Members vote by what they hold, wherever that lies, so heads are the same under every choice. What
changes is how much an audit can check afterwards: it says what is not there, and ends incomplete.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from ledger.protocol.errors import ConfigurationError

MOST_ROUNDS = 2**31 - 1
"""The largest number of rounds whose payloads can be asked for."""


class Stored(StrEnum):
    """What is written at all."""

    ALL = "all"
    ACCEPTED = "accepted"
    NOTHING = "nothing"


@dataclass(frozen=True, slots=True)
class Keep:
    """Which blobs stay.

    Attributes:
        stored: everything; of the payloads only those of S_a; or nothing, where the ledger itself
            ends with its process and nobody can ever read a blob.
        rounds: of so many of the newest rounds the payloads stay; None for all rounds.
    """

    stored: Stored = Stored.ALL
    rounds: int | None = None


KEEP_ALL = Keep()
KEEP_NOTHING = Keep(Stored.NOTHING)


def keep_named(setting: str | int) -> Keep:
    """Return the choice that a setting asks for.

    Args:
        setting: "all", "accepted" (before a decision leaves, the payloads of its S_a are stored,
            and no others ever), or how many of the newest rounds keep their payloads.

    Raises:
        ConfigurationError: it is something else.
    """
    if isinstance(setting, bool) or not isinstance(setting, int):
        if setting in {Stored.ALL, Stored.ACCEPTED}:
            return Keep(Stored(setting))
    elif 1 <= setting <= MOST_ROUNDS:
        return Keep(rounds=setting)
    raise ConfigurationError(
        f"keep = {setting!r}: must be 'all', 'accepted', or a number of rounds from 1 to "
        f"{MOST_ROUNDS}"
    )
