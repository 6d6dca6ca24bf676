"""The words that all facts are made of."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from math import isfinite
from typing import TYPE_CHECKING, Any

from ledger.chain.addresses import checksum
from ledger.protocol.types import Phase

if TYPE_CHECKING:
    from enum import IntEnum

    from ledger.history.documents import Documents
    from ledger.history.round import Round
    from ledger.history.source import HistorySource
    from ledger.protocol.types import ClientId

Facts = dict[str, Any]
"""Plain data: what JSON can hold."""

_LAST_SECOND = 253_402_300_799
"""Of the year 9999; RFC 3339 has no later one, and a node may say anything."""


@dataclass(frozen=True, slots=True)
class Told:
    """One round, and what it is told with.

    Attributes:
        history: of the deployment.
        one: the round.
        documents: its documents.
    """

    history: HistorySource
    one: Round
    documents: Documents

    @staticmethod
    def of(history: HistorySource, one: Round) -> Told:
        """Return a round with its documents."""
        return Told(history, one, history.documents(one))

    @property
    def is_recorded(self) -> bool:
        """Whether nothing is missing that the round's record should tell."""
        return self.one.decided is None or self.documents.record is not None

    def heading(self) -> Facts:
        """Return what all facts about a round begin with."""
        return {"round": self.one.round, "status": self.one.status.value}

    def record(self) -> Facts | None:
        """Return the pointer to the round's record; None where there is none."""
        decided = self.one.decided
        if decided is None:
            return None
        return {"digest": hexed(decided.record), "available": self.is_recorded}

    def incidents(self) -> Facts | None:
        """Return the pointer to the incidents document; None if the decision names none."""
        decided = self.one.decided
        if decided is None or not self.documents.names_incidents:
            return None
        return {"digest": hexed(decided.incidents), "available": self.documents.has_incidents}

    def address(self, client: ClientId) -> str:
        """Return a client's address."""
        return checksum(self.one.registry[client].address)


def hexed(data: bytes) -> str:
    """Return bytes as 0x-hex."""
    return f"0x{data.hex()}"


def hexed_or_none(data: bytes | None) -> str | None:
    """Return bytes as 0x-hex, None for none."""
    return None if data is None else hexed(data)


def coded(code: IntEnum) -> Facts:
    """Return a code as programs compare it: its number, and its stable name."""
    return {"code": int(code), "name": code.name.lower()}


def finite(number: float) -> float | None:
    """Return a number that JSON has; None for an infinity, and for what is no number."""
    return number if isfinite(number) else None


def phase_name(phase: Phase) -> str:
    """Return the name of a phase."""
    return "aggregation" if phase is Phase.AGGREGATION else "election"


def moment(seconds: int) -> Facts:
    """Return a time as Unix seconds and as RFC 3339, which has none after the year 9999."""
    told = None
    if seconds <= _LAST_SECOND:
        told = f"{datetime.fromtimestamp(seconds, UTC).replace(tzinfo=None).isoformat()}Z"
    return {"time": seconds, "at": told}


def ended_facts(history: HistorySource, one: Round) -> Facts | None:
    """Return where and when a round ended; None while it is open."""
    if one.ended is None:
        return None
    return {
        "number": one.ended.block_number,
        "hash": hexed(one.ended.block_hash),
        "transaction": hexed(one.ended.transaction_hash),
        **moment(history.time_of(one.ended.block_number)),
    }
