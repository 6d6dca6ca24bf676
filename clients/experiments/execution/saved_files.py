"""The files that are kept beside a row, held against the run played again and its audit."""

from __future__ import annotations

import json
import tomllib
from typing import TYPE_CHECKING, Any

from ledger.io.home import read_file
from ledger.protocol.encoding import PROTOCOL_VERSION
from ledger.protocol.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from clients.experiments.rows import ChainEvidence
    from ledger.audit.report import AuditReport

MAX_SAVED_BYTES = 1 << 24
"""Of a kept report or configuration; they take some ten kilobytes."""

_REPORTED = ("outcome", "rounds", "findings")
"""What a report says in every version of its form, beside the deployment's facts."""


def saved_file_differences(
    out: Path, evidence: ChainEvidence, configuration: str, report: AuditReport
) -> list[str]:
    """Return what the files that are kept beside a row say otherwise than the run does.

    The section `machine` may differ, which changes no result; of a report that is kept in an older
    form, what both forms know is compared.

    Args:
        out: folder of the rows.
        evidence: where the files are, as it was found by playing the cell again.
        configuration: of the run, as it would be kept.
        report: of its audit.

    Returns:
        A sentence for each difference; a file that is missing or unreadable is one.
    """
    told: list[str] = []
    kept = _parsed(out / evidence.configuration, tomllib.loads, told)
    if kept is not None:
        now = tomllib.loads(configuration)
        told += _differing(evidence.configuration, kept, now, (kept.keys() | now) - {"machine"})
    kept = _parsed(out / evidence.report, json.loads, told)
    if kept is not None:
        now = json.loads(json.dumps(report.as_dict()))
        told += _differing(evidence.report, kept, now, _REPORTED)
        parts = [one.get("deployment") for one in (kept, now)]
        then, found = (one if isinstance(one, dict) else {} for one in parts)
        names = then.keys() & found if then else found.keys()
        told += _differing(f"{evidence.report}: deployment", then, found, names)
    return told


def require_current_protocol(out: Path, evidence: ChainEvidence) -> None:
    """Refuse to repeat a cell that was played under another version of the protocol.

    A file that is missing or unreadable is told of once the cell has been played again.

    Args:
        out: folder of the rows.
        evidence: where the files of the cell are.

    Raises:
        ConfigurationError: seeds, and so heads, of that version cannot come again.
    """
    kept = _parsed(out / evidence.report, json.loads, [])
    deployment = None if kept is None else kept.get("deployment")
    if isinstance(deployment, dict) and deployment.get("protocol", 1) != PROTOCOL_VERSION:
        raise ConfigurationError(
            f"{evidence.report} is of protocol version {deployment.get('protocol', 1)!r:.20}, and "
            f"this program plays version {PROTOCOL_VERSION}, whose seeds and heads are others: "
            f"repeat it with the program of that version, or play the experiment again"
        )


def _parsed(path: Path, parse: Callable[[str], Any], told: list[str]) -> dict[str, Any] | None:
    """Return the document of a file, or say in `told` why there is none."""
    try:
        data = read_file(path, MAX_SAVED_BYTES)
        value = parse(data.decode()) if len(data) <= MAX_SAVED_BYTES else None
    except (OSError, ValueError, RecursionError) as error:
        told.append(f"{path.name} beside the row cannot be read: {type(error).__name__}")
        return None
    if not isinstance(value, dict):
        told.append(f"{path.name} beside the row is no document of at most {MAX_SAVED_BYTES} bytes")
        return None
    return value


def _differing(
    where: str, kept: dict[str, Any], now: dict[str, Any], names: Iterable[str]
) -> list[str]:
    return [
        f"{where}: {name}: {str(kept.get(name))[:80]}, and now {str(now.get(name))[:80]}"
        for name in sorted(names)
        if kept.get(name) != now.get(name)
    ]
