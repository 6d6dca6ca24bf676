"""Values that several responses contain, and the round with its documents."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from enum import IntEnum
from math import isfinite
from typing import TYPE_CHECKING

from ledger.chain.addresses import checksum
from ledger.history.documents import Documents
from ledger.protocol.encoding import to_hex
from ledger.protocol.types import ClientId, Phase

if TYPE_CHECKING:
    from ledger.history.history import FoldedHistory
    from ledger.history.responses.fields import Code, PhaseName, Time
    from ledger.history.responses.rounds import (
        EndBlock,
        IncidentsPointer,
        RecordPointer,
        RoundHeading,
    )
    from ledger.history.round import HistoryRound

_LAST_SECOND = 253_402_300_799
"""Of the year 9999; RFC 3339 has no later one, and a node may send any number."""


@dataclass(frozen=True, slots=True)
class DocumentedRound:
    """One round with its documents, and the history that they come from."""

    history: FoldedHistory
    round: HistoryRound
    documents: Documents

    @staticmethod
    def of(history: FoldedHistory, round_: HistoryRound) -> DocumentedRound:
        return DocumentedRound(history, round_, history.documents(round_))

    @property
    def has_record(self) -> bool:
        """True if the record is available, or the round has none."""
        return self.round.decided is None or self.documents.record is not None

    def heading(self) -> RoundHeading:
        """Return the first fields of every response about a round."""
        return {"round": self.round.round, "status": self.round.status}

    def record(self) -> RecordPointer | None:
        """Return the pointer to the round's record; None where there is none."""
        decided = self.round.decided
        if decided is None:
            return None
        return {"digest": to_hex(decided.record), "available": self.has_record}

    def incidents(self) -> IncidentsPointer | None:
        """Return the pointer to the incidents document; None if the decision names none."""
        decided = self.round.decided
        if decided is None or not self.documents.names_incidents:
            return None
        return {"digest": to_hex(decided.incidents), "available": self.documents.has_incidents}

    def address(self, client: ClientId) -> str:
        return checksum(self.round.registry[client].address)


def to_hex_or_none(data: bytes | None) -> str | None:
    """Return bytes as 0x-hex, None for None."""
    return None if data is None else to_hex(data)


def code_of(code: IntEnum) -> Code:
    """Return a code as programs compare it: its number and its stable name."""
    return {"code": int(code), "name": code.name.lower()}


def finite(number: float) -> float | None:
    """Return a number that JSON can express; None for an infinity or NaN."""
    return number if isfinite(number) else None


def phase_name(phase: Phase) -> PhaseName:
    """Return the name of a phase."""
    return "aggregation" if phase is Phase.AGGREGATION else "election"


def time_of(seconds: int) -> Time:
    """Return a time as Unix seconds and as RFC 3339, which ends with the year 9999."""
    text = None
    if seconds <= _LAST_SECOND:
        text = f"{datetime.fromtimestamp(seconds, UTC).replace(tzinfo=None).isoformat()}Z"
    return {"time": seconds, "at": text}


def end_block(history: FoldedHistory, round_: HistoryRound) -> EndBlock | None:
    """Return the block in which a round ended; None while it is open."""
    ended = round_.ended
    if ended is None:
        return None
    return {
        "number": ended.block_number,
        "hash": to_hex(ended.block_hash),
        "transaction": to_hex(ended.transaction_hash),
        **time_of(history.time_of(ended.block_number)),
    }
