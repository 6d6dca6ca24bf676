"""A transaction's events as the specification makes them, against the logs, byte by byte."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING

from ledger.audit.observations import (
    EventCountMismatch,
    EventFieldMismatch,
    EventKindMismatch,
    MalformedEvent,
)
from ledger.chain.contract.event_logs import decode_log, encode_log
from ledger.protocol.errors import ChainError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ledger.audit.observations import Observation
    from ledger.audit.replay.transactions import RecordedTransaction
    from ledger.chain.ports import Log
    from ledger.protocol.ledger_state import Event


def compare_events(
    events: tuple[Event, ...], transaction: RecordedTransaction, at: int | None
) -> Iterator[Observation]:
    """Compare what the contract must have logged with the logs.

    Args:
        events: as its transaction makes them.
        transaction: with its logs.
        at: the round that was open.

    Yields:
        Each difference.
    """
    number, recorded = transaction.block_number, len(transaction.logs)
    if len(events) != recorded:
        yield EventCountMismatch(number, at, transaction.hash, events, recorded)
    for event, log in zip(events, transaction.logs, strict=False):
        if encode_log(event) != (log.topics, log.data):
            yield from _differences(event, log, at)


def _differences(event: Event, log: Log, at: int | None) -> Iterator[Observation]:
    number, kind = log.block_number, type(event)
    try:
        found = decode_log(log).event
    except ChainError as error:
        yield MalformedEvent(number, at, kind, str(error))
        return
    if type(found) is not kind:
        yield EventKindMismatch(number, at, kind, type(found))
        return
    names = tuple(f.name for f in fields(kind) if getattr(event, f.name) != getattr(found, f.name))
    if not names:
        yield MalformedEvent(number, at, kind, "its bytes are others")
    for name in names:
        values = getattr(found, name), getattr(event, name)
        yield EventFieldMismatch(number, at, kind, name, *values, is_made=True)
