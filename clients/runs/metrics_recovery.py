"""Recovery of a resumed run's metrics, compared with its chain.

A row has the head of the ledger after its round, so that rows reveal a chain that was rolled back
or replaced.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clients.runs.run_folder import RunFolder, line_of
from ledger.chain.ports import ChainRolledBackError
from ledger.chain.round_ledger import RoundHistory, ends_after
from ledger.claims import warn_of_doubled_rows
from ledger.io.parsing import parse_json
from ledger.protocol.encoding import vector_from_bytes
from ledger.protocol.errors import BlobError, EncodingError
from ledger.protocol.ledger_state import RoundAbandoned, RoundDecided
from ledger.protocol.types import Digest
from ledger.storage.blobs import BlobReader

if TYPE_CHECKING:
    from clients.runs.metrics import Measure

    End = RoundDecided | RoundAbandoned


@dataclass(frozen=True, slots=True)
class CheckedRows:
    """Lines of a metrics file, by comparison with the chain."""

    borne_out: dict[int, bytes]
    strange: list[tuple[int, str]]


def restore_metrics(
    folder: RunFolder,
    measure: Measure,
    ledger: RoundHistory,
    blobs: BlobReader,
    *,
    accept_rollback: bool = False,
) -> tuple[int, ...]:
    """Make the rows agree with the chain: a run may have been killed before it wrote one.

    Args:
        accept_rollback: continue if the chain lacks rounds of the rows; these are set aside.
    """
    ends = ends_after(ledger, 0)
    lines = folder.metrics_lines()
    rows = _sorted_out(folder.paths.metrics, lines, ends)
    if rows.strange:
        if not accept_rollback:
            raise ChainRolledBackError(_sentence(folder, rows.strange, ends))
        folder.keep_metrics_aside(lines)
    restored: list[bytes] = []
    missing: list[int] = []
    model = ledger.deployment().model
    for end in ends:
        model = end.model if isinstance(end, RoundDecided) else model
        line = rows.borne_out.get(end.round) or _made(measure, ledger, blobs, end.round, model)
        if line is None:
            missing.append(end.round)
        else:
            restored.append(line)
    if restored != lines:
        folder.write_metrics(restored)
    return tuple(missing)


def require_rows(folder: RunFolder, ledger: RoundHistory) -> None:
    """Reject a chain without a round of the rows; see `restore_metrics`."""
    ends = ends_after(ledger, 0)
    if strange := _sorted_out(folder.paths.metrics, folder.metrics_lines(), ends).strange:
        raise ChainRolledBackError(_sentence(folder, strange, ends))


def _sorted_out(path: Path, lines: Sequence[bytes], ends: Sequence[End]) -> CheckedRows:
    heads = {f"0x{end.head.hex()}": end.round for end in ends}
    rows, doubled = CheckedRows({}, []), list[int]()
    for line in lines:
        row = _row(line)
        if row is None:
            continue  # cut off or damaged: it tells nothing, and is made again
        number, head = row
        if head not in heads:
            rows.strange.append((number, head))
        elif number in rows.borne_out:
            doubled.append(number)
        elif heads[head] == number:
            rows.borne_out[number] = line
    warn_of_doubled_rows(path, doubled)
    return rows


def _row(line: bytes) -> tuple[int, str] | None:
    """Return round and head of a row; None if the line is invalid."""
    try:
        row: Any = parse_json(line) if line.endswith(b"\n") else None
    except (ValueError, RecursionError):
        return None
    if not isinstance(row, dict):
        return None
    number, head = row.get("round"), row.get("head")
    return (number, head) if type(number) is int and isinstance(head, str) else None


def _made(
    measure: Measure, ledger: RoundHistory, blobs: BlobReader, number: int, model: Digest
) -> bytes | None:
    if not measure.gauge.is_due(number):
        return line_of(measure.row(ledger, number, None))
    dimension = measure.parameters.dimension
    try:
        vector = vector_from_bytes(blobs.get(model, 4 * dimension), dimension)
    except (BlobError, EncodingError):
        return None
    return line_of(measure.row(ledger, number, vector))


def _sentence(folder: RunFolder, strange: Sequence[tuple[int, str]], ends: Sequence[End]) -> str:
    number, head = strange[0]
    has = f"0x{ends[number - 1].head.hex()}" if 0 < number <= len(ends) else "no such round"
    return (
        f"{folder.paths.metrics} has round {number} with head {head[:66]}, the chain {has} "
        f"({len(ends)} rounds have ended there): a restored copy, a damaged file or a "
        f"reorganisation has taken rounds back, or it is another chain. Put back the newest copy, "
        f"or go on from here with --accept-rollback, which plays these rounds again and keeps the "
        f"rows in {folder.paths.metrics_before_rollback().name}"
    )
