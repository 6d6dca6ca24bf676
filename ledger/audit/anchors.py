"""The start of an audit: the chain's newest blocks, and an earlier report.

A chain file is read in one snapshot and takes nothing back. A node may answer from another branch
at every call. So a block that it has not called final when the audit begins proves nothing yet. If
even a final block is another one at the end, or cannot be read again, nothing is proven.

An audit that builds on an earlier one replays every transaction again: seeds, sampling, signatures
and heads. It takes records, blobs, distances and models of the earlier rounds from the report. A
report is not signed: to build on it is to trust it, and the new report states this.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Self

from ledger.audit.checks import chain as facts
from ledger.audit.report import (
    REPORT_VERSION,
    AnchoredHead,
    AuditOutcome,
    AuditReport,
    AuditStep,
    CheckResult,
    StepOutcome,
    TrustedEarlierAudit,
    contradicted,
    not_served,
    plain,
)
from ledger.chain.contract.ledger import CommitteeLedger
from ledger.chain.ports import Block, ChainDamagedError, ChainReader
from ledger.io.parsing import parse_json
from ledger.protocol import types
from ledger.protocol.canonical import other_version
from ledger.protocol.encoding import sha256, to_hex
from ledger.protocol.errors import ChainError, CmflError
from ledger.transparency.policy import CheckpointEvidence


@dataclass(frozen=True, slots=True)
class ChainAnchor:
    """A chain's newest block, and its newest final one, if it says, as an audit begins."""

    head: Block
    final: Block | None

    @classmethod
    def read(cls, chain: ChainReader) -> Self:
        head = chain.head()
        try:
            number = min(chain.finalized(), head.number)
            final = head if number == head.number else chain.block(number)
        except ChainDamagedError:
            raise
        except ChainError:
            final = None
        return cls(head, final)

    @property
    def final_number(self) -> int:
        """Number of the newest final block; -1 if the chain does not say."""
        return -1 if self.final is None else self.final.number

    def check_file(self, chain: ChainReader) -> Iterator[CheckResult]:
        """Let a chain that is a file check itself: a forger of one table has to forge them all."""
        if (verify := getattr(chain, "verify", None)) is not None:
            try:
                verify()
            except ChainDamagedError as error:
                yield contradicted(0, facts.CHAIN_FILE_DAMAGED, true=str(error))
            except ChainError as error:
                yield from not_served(0, facts.CHAIN_FILE_UNCHECKED, detail=str(error))
        if (acknowledged := getattr(chain, "acknowledged", None)) is None:
            return
        try:
            noted = acknowledged()
        except ChainError as error:
            yield from not_served(0, facts.HEAD_NOTE_UNREADABLE, detail=str(error))
            return
        if noted is not None:
            head = self.head.number
            block_hash = chain.block(noted.number).hash if noted.number <= head else None
            if block_hash != noted.hash:
                there = f"there it is {to_hex(block_hash)}" if block_hash else ""
                true = there or f"it ends with block {head}"
                yield contradicted(
                    0, facts.ROLLED_BACK, str(noted.number), to_hex(noted.hash), true
                )

    def changes(self, chain: ChainReader) -> Iterator[CheckResult]:
        """Yield why the chain may not have stayed as it was."""
        try:
            again = chain.block(self.head.number)
        except ChainDamagedError:
            return
        except ChainError as error:
            yield from not_served(self.head.number, facts.HEAD_BLOCK_UNAVAILABLE, detail=str(error))
            return
        if again.hash != self.head.hash:
            yield from not_served(self.head.number, facts.REORGANISED)

    def holds(self, chain: ChainReader) -> bool:
        if self.final is None:
            return False
        try:
            return chain.block(self.final.number).hash == self.final.hash
        except ChainDamagedError:
            return True  # it contradicts itself, but has not changed
        except ChainError:
            return False


MAX_REPORT_BYTES = 64_000_000
"""A report names at most `MAX_FINDINGS` findings, of some hundreds of bytes each."""


class EarlierReportError(CmflError):
    """An audit cannot build on a report; the message names the value and the rule."""


@dataclass(frozen=True, slots=True)
class EarlierAudit:
    """An audit that passed, as its report states; see `TrustedEarlierAudit`."""

    report: types.Digest
    chain_id: int
    genesis_hash: bytes
    address: str
    rounds: int
    head: types.Digest
    block: int
    block_hash: bytes
    remarks: int
    audits: int

    def require_of(self, ledger: CommitteeLedger, *, strict: bool) -> None:
        chain = ledger.chain
        for name, reported, found in (
            ("chain id", str(self.chain_id), str(chain.chain_id)),
            ("genesis block", to_hex(self.genesis_hash), to_hex(chain.genesis_hash)),
            ("contract", self.address, ledger.address),
        ):
            if reported != found:
                raise EarlierReportError(
                    f"the earlier report has {name} {reported}, and the audited run {found}"
                )
        if strict and self.remarks:
            raise EarlierReportError(
                f"the earlier report has {self.remarks} remarks, so a strict audit cannot extend it"
            )

    def built_on(self, rounds: int, *, found: bool) -> TrustedEarlierAudit:
        report, head = to_hex(self.report), to_hex(self.head)
        block = self.block, to_hex(self.block_hash)
        return TrustedEarlierAudit(report, head, *block, rounds, self.audits, found)


@dataclass(frozen=True, slots=True)
class PriorKnowledge:
    """The auditor's knowledge from before this audit; see `audit`."""

    head: types.Digest | None
    earlier: EarlierAudit | None
    checkpoints: CheckpointEvidence | None = None
    anchors: tuple[AnchoredHead, ...] = ()


def report_bytes(report: AuditReport) -> bytes:
    """Return a report as the file that an auditor keeps, and that a later audit builds on."""
    return (json.dumps(report.as_dict(), indent=1) + "\n").encode()


def read_report(data: bytes) -> EarlierAudit:
    """Return the audit behind a report as `cmfl audit --report` writes it."""
    if len(data) > MAX_REPORT_BYTES:
        raise EarlierReportError(f"the earlier report is longer than {MAX_REPORT_BYTES} bytes")
    try:
        report = parse_json(data)
    except ValueError as error:
        raise EarlierReportError(f"the earlier report is not JSON: {plain(str(error))}") from None
    version = _number(report, "version")
    if version != REPORT_VERSION:
        raise EarlierReportError(
            f"the earlier report has version {version}, and only version {REPORT_VERSION} can "
            "be extended; audit the whole run"
        )
    if (protocol := _number(report, "deployment", "protocol")) != types.PROTOCOL_VERSION:
        raise EarlierReportError(other_version("the earlier report", protocol))
    _require(report, "outcome", expected=str(AuditOutcome.PASSED))
    if _value(report, "kept_head") is not None:
        _require(report, "kept_head", "found", expected=True)
    steps = _value(report, "steps")
    if not isinstance(steps, list) or len(steps) != len(AuditStep):
        raise EarlierReportError(f"the earlier report: steps must be a list of {len(AuditStep)}")
    for number, step in zip(AuditStep, steps, strict=True):
        at = f"step {int(number)}"
        _require({at: step}, at, "number", expected=int(number))
        _require({at: step}, at, "outcome", expected=str(StepOutcome.PASSED))
        _require({at: step}, at, "contradictions", expected=0)
        _require({at: step}, at, "missing_count", expected=0)
    audits = 1
    if _value(report, "built_on") is not None:
        _require(report, "built_on", "found", expected=True)
        audits = _number(report, "built_on", "audits") + 1
    rounds, ends = _number(report, "rounds"), ("rounds decided", "rounds abandoned")
    parts = [_number(report, "counts", name, default=0) for name in ends]
    if rounds != sum(parts):
        raise EarlierReportError(
            f"the earlier report has {rounds} rounds, but counts {parts[0]} decided and "
            f"{parts[1]} abandoned ones"
        )
    return EarlierAudit(
        report=sha256(data),
        chain_id=_number(report, "deployment", "chain_id"),
        genesis_hash=_digest(report, "genesis_hash"),
        address=_text(report, "[0-9a-fA-F]{40}", "address"),
        rounds=rounds,
        head=_digest(report, "head"),
        block=_number(report, "deployment", "head_block"),
        block_hash=_digest(report, "head_block_hash"),
        remarks=_number(report, "remarks"),
        audits=audits,
    )


def _value(report: object, *place: str, default: int | None = None) -> object:
    """Return the value at a place of a report, named from the outermost key in."""
    value = report
    for depth, name in enumerate(place):
        where = "".join(f"{outer}, " for outer in place[:depth])
        if not isinstance(value, dict):
            raise EarlierReportError(f"the earlier report: {where or 'it '}must be a JSON object")
        if name not in value and default is None:
            raise EarlierReportError(f"the earlier report: {where}{name} is missing")
        value = value.get(name, default)
    return value


def _number(report: object, *place: str, default: int | None = None) -> int:
    value = _value(report, *place, default=default)
    if type(value) is not int or not 0 <= value < 2**64:
        raise _wrong(value, place, "a number of at least 0")
    return value


def _text(report: object, digits: str, name: str) -> str:
    """Return 0x-hex of a report's deployment."""
    value, form = _value(report, "deployment", name), f"0x{digits}"
    if not isinstance(value, str) or not re.fullmatch(form, value):
        raise _wrong(value, ("deployment", name), f"text of the form {form}")
    return value


def _digest(report: object, name: str) -> types.Digest:
    return types.Digest(bytes.fromhex(_text(report, types.BARE, name)[2:]))


def _require(report: object, *place: str, expected: str | int) -> None:
    value = _value(report, *place)
    if type(value) is not type(expected) or value != expected:
        raise _wrong(value, place, f"{expected} for an audit to build on it")


def _wrong(value: object, place: tuple[str, ...], rule: str) -> EarlierReportError:
    shown = plain(f"{value!r:.60}")
    return EarlierReportError(f"the earlier report: {', '.join(place)} is {shown}, must be {rule}")
