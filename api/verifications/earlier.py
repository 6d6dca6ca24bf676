"""The earlier verification that another builds on: only one that passed, of the same deployment."""

from __future__ import annotations

from typing import TYPE_CHECKING

from api.schemas.verifications import EarlierVerification
from ledger.audit.earlier_report import EarlierReportError, read_report

if TYPE_CHECKING:
    from api.schemas.verifications import Verification
    from api.verifications.verifications import Verifications
    from ledger.chain.contract.committee_ledger import CommitteeLedger


def read_earlier(
    kept: Verifications, entry: Verification, ledger: CommitteeLedger, *, strict: bool
) -> tuple[EarlierVerification, bytes]:
    """Return where an earlier verification ended, and its report.

    Args:
        kept: has the report.
        entry: the earlier verification.
        ledger: the contract that is to be audited.
        strict: whether the new one is strict.

    Raises:
        EarlierReportError: it has not passed, or is of another contract or chain.
        ReportsError: its report is not what was kept.
    """
    report = kept.report(entry)
    if report is None:
        raise EarlierReportError(f"verification {entry.verification} has no report")
    audit = read_report(report)
    audit.require_of(ledger, strict=strict)
    earlier = EarlierVerification(
        verification=entry.verification,
        report=f"0x{audit.report.hex()}",
        head=f"0x{audit.head.hex()}",
        block=audit.block,
        block_hash=f"0x{audit.block_hash.hex()}",
        rounds=audit.rounds,
    )
    return earlier, report
