"""Comparison of a row's published files with the repeated run and its audit."""

from __future__ import annotations

import json
import tomllib
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from clients.experiments.archive import read_stored
from ledger.protocol.encoding import PROTOCOL_VERSION
from ledger.protocol.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from clients.experiments.rows import ChainEvidence
    from ledger.audit.report import AuditReport

MAX_SAVED_BYTES = 1 << 24
"""Of a published report or configuration; they take some ten kilobytes."""

_REPORTED = ("outcome", "rounds", "findings")
"""The fields that every version of a report has, besides the deployment's."""


def saved_file_differences(
    out: Path, evidence: ChainEvidence, configuration: str, report: AuditReport
) -> list[str]:
    """Return the differences of a row's published files from the repeated run, as sentences.

    The section `machine` may differ, which changes no result. A report of an older form is compared
    in the fields that both forms have. A missing or unreadable file is a difference.

    Args:
        out: folder of the rows.
        evidence: names the files.
        configuration: of the run, as it would be saved.
        report: of its audit.
    """
    differences: list[str] = []
    saved = _parsed(out, evidence.configuration, tomllib.loads, differences)
    if saved is not None:
        now = tomllib.loads(configuration)
        sections = (saved.keys() | now) - {"machine"}
        differences += _differing(evidence.configuration, saved, now, sections)
    saved = _parsed(out, evidence.report, json.loads, differences)
    if saved is not None:
        now = json.loads(json.dumps(report.as_dict()))
        differences += _differing(evidence.report, saved, now, _REPORTED)
        deployments = [document.get("deployment") for document in (saved, now)]
        before, after = (facts if isinstance(facts, dict) else {} for facts in deployments)
        names = before.keys() & after if before else after.keys()
        differences += _differing(f"{evidence.report}: deployment", before, after, names)
    return differences


def require_current_protocol(out: Path, evidence: ChainEvidence) -> None:
    """Refuse to repeat a cell of another protocol version.

    A missing or unreadable file is reported after the repetition.

    Raises:
        ConfigurationError: seeds and heads of that version cannot be reproduced.
    """
    saved = _parsed(out, evidence.report, json.loads, [])
    deployment = None if saved is None else saved.get("deployment")
    if isinstance(deployment, dict) and deployment.get("protocol", 1) != PROTOCOL_VERSION:
        raise ConfigurationError(
            f"{evidence.report} is of protocol version {deployment.get('protocol', 1)!r:.20}, and "
            f"this program plays version {PROTOCOL_VERSION}, whose seeds and heads are others: "
            f"repeat it with the program of that version, or play the experiment again"
        )


def _parsed(
    out: Path, name: str, parse: Callable[[str], Any], differences: list[str]
) -> dict[str, Any] | None:
    """Return the document of a file, or append to `differences` why there is none."""
    file_name = PurePosixPath(name).name
    try:
        data = read_stored(out, name, MAX_SAVED_BYTES)
        value = parse(data.decode()) if len(data) <= MAX_SAVED_BYTES else None
    except (OSError, ValueError, RecursionError) as error:
        differences.append(f"{file_name} of the row cannot be read: {type(error).__name__}")
        return None
    if not isinstance(value, dict):
        differences.append(
            f"{file_name} of the row is not a document of at most {MAX_SAVED_BYTES} bytes"
        )
        return None
    return value


def _differing(
    where: str, saved: dict[str, Any], now: dict[str, Any], names: Iterable[str]
) -> list[str]:
    return [
        f"{where}: {name}: {str(saved.get(name))[:80]}, and now {str(now.get(name))[:80]}"
        for name in sorted(names)
        if saved.get(name) != now.get(name)
    ]
