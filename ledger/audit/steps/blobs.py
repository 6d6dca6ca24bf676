"""Step 5: every payload that a record counts is there, and opens its client's commitment."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from ledger.audit.codes import FindingKind
from ledger.audit.evidence import named_payloads
from ledger.audit.report import Finding
from ledger.audit.sentences import hexed
from ledger.audit.steps.objections import note
from ledger.protocol.doubts import judge_claims, judge_updates

if TYPE_CHECKING:
    from ledger.audit.evidence import RoundEvidence
    from ledger.audit.findings import AuditLog
    from ledger.protocol.types import ClientId, Digest


def check_record(found: RoundEvidence, log: AuditLog) -> None:
    """Judge what a record says of clients, commitments, signatures and updates.

    Args:
        found: of a decided round.
        log: where objections and equal payloads are written down.
    """
    record = found.record
    if record is None:
        return
    note(judge_claims(found.inputs, record), found, log)
    note(judge_updates(record, found.evidence), found, log)
    sharing: dict[Digest, list[ClientId]] = defaultdict(list)
    for client, payload in sorted(named_payloads(record).items()):
        sharing[payload].append(client)
    for payload, clients in sharing.items():
        if len(clients) > 1:
            log.find(
                Finding(
                    FindingKind.EQUAL_PAYLOADS,
                    found.event.round,
                    tuple(clients),
                    (hexed(payload),),
                    proven=True,
                )
            )
