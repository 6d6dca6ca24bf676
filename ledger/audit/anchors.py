"""What an audit starts from: the chain's newest blocks, and an earlier report.

A chain file is read in one snapshot and takes nothing back. A node may answer from another branch
at every call: what it has not called final when the audit begins proves nothing yet, and if even
what it called final is another at the end, or cannot be looked at again, nothing does.

Of the rounds that the earlier one has checked, the new one replays every transaction again, and
with them seeds, sampling, signatures and heads; records, blobs, distances and models it takes from
the report. A report is not signed: to build on it is to trust it, and the new one says so.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from ledger.audit.checks import chain as facts
from ledger.audit.checks.common import REORGANISED, CheckResult, contradicted, not_served
from ledger.audit.report import (
    REPORT_VERSION,
    AuditOutcome,
    AuditReport,
    AuditStep,
    StepOutcome,
    TrustedEarlierAudit,
    plain,
)
from ledger.chain.ports import Block, ChainDamagedError, ChainReader
from ledger.io.parsing import parse_json
from ledger.protocol import types
from ledger.protocol.canonical import other_version
from ledger.protocol.encoding import sha256, to_hex
from ledger.protocol.errors import ChainError, CmflError
from ledger.protocol.types import PROTOCOL_VERSION, Digest
from ledger.transparency.policy import CheckpointEvidence

if TYPE_CHECKING:
    from ledger.chain.contract.ledger import CommitteeLedger


@dataclass(frozen=True, slots=True)
class ChainAnchor:
    """A chain's newest block, and its newest final one, if it says, as an audit begins."""

    head: Block
    final: Block | None

    @classmethod
    def read(cls, chain: ChainReader) -> Self:
        """Return a chain's head and its final block."""
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

    def is_final(self, block: int) -> bool:
        """Say whether nothing up to a block can be taken back."""
        return block <= self.final_number

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
        """Yield what keeps one from saying that the chain stayed as it was."""
        try:
            again = chain.block(self.head.number)
        except ChainDamagedError:
            return
        except ChainError as error:
            yield from not_served(self.head.number, facts.HEAD_BLOCK_UNAVAILABLE, detail=str(error))
            return
        if again.hash != self.head.hash:
            yield from not_served(self.head.number, REORGANISED)

    def holds(self, chain: ChainReader) -> bool:
        """Say whether what was final still is there."""
        if self.final is None:
            return False
        try:
            return chain.block(self.final.number).hash == self.final.hash
        except ChainDamagedError:
            return True  # it contradicts itself, which is no change of mind
        except ChainError:
            return False


MAX_REPORT_BYTES = 64_000_000
"""A report names at most `MOST_FINDINGS` findings, of some hundreds of bytes each."""

_DIGEST = re.compile(types.PREFIXED)
_ADDRESS = re.compile("0x[0-9a-fA-F]{40}")
_LARGEST = 2**64


class EarlierReportError(CmflError):
    """A report is none that an audit can build on; the message names the value and the rule."""


@dataclass(frozen=True, slots=True)
class EarlierAudit:
    """An audit that passed, as its report tells.

    Attributes:
        report: sha256 of the report's bytes.
        address: of the contract, EIP-55.
        block: number of the newest block that it read.
        audits: how many audits it builds on, its own included.
    """

    report: Digest
    chain_id: int
    genesis_hash: bytes
    address: str
    rounds: int
    head: Digest
    block: int
    block_hash: bytes
    remarks: int
    audits: int

    def require_of(self, ledger: CommitteeLedger, *, strict: bool) -> None:
        """Accept the report for an audit of a contract."""
        chain = ledger.chain
        for name, reported, found in (
            ("chain id", str(self.chain_id), str(chain.chain_id)),
            ("genesis block", to_hex(self.genesis_hash), to_hex(chain.genesis_hash)),
            ("contract", self.address, ledger.address),
        ):
            if reported != found:
                raise EarlierReportError(
                    f"the earlier report is of {name} {reported}, and what is audited has {found}"
                )
        if strict and self.remarks:
            raise EarlierReportError(
                f"the earlier report has {self.remarks} remarks, so strictly it is incomplete: a "
                f"strict audit builds on none that has any"
            )

    def built_on(self, rounds: int, *, found: bool) -> TrustedEarlierAudit:
        """Return what a new report says of this one."""
        report, head = to_hex(self.report), to_hex(self.head)
        block = self.block, to_hex(self.block_hash)
        return TrustedEarlierAudit(report, head, *block, rounds, self.audits, found)


@dataclass(frozen=True, slots=True)
class PriorKnowledge:
    """The auditor's knowledge from before this audit.

    Attributes:
        head: a head that was kept; None for none.
        earlier: the audit that this one builds on; None for none.
        checkpoints: what logs and witnesses said of the run just before; None if nobody asked.
    """

    head: Digest | None
    earlier: EarlierAudit | None
    checkpoints: CheckpointEvidence | None = None


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
        raise EarlierReportError(f"the earlier report is no JSON: {plain(str(error))}") from None
    whole = _Fields(report, "")
    version = whole.number("version")
    if version != REPORT_VERSION:
        raise EarlierReportError(
            f"the earlier report has version {version}, and only one of version {REPORT_VERSION} "
            f"can be built on: audit the whole run"
        )
    facts = whole.fields("deployment")
    if (protocol := facts.number("protocol")) != PROTOCOL_VERSION:
        raise EarlierReportError(other_version("the earlier report", protocol))
    _require_passed(whole)
    if whole.value("built_on") is None:
        audits = 1
    else:
        before = whole.fields("built_on")
        before.require("found", expected=True)
        audits = before.number("audits") + 1
    return EarlierAudit(
        report=sha256(data),
        chain_id=facts.number("chain_id"),
        genesis_hash=facts.digest("genesis_hash"),
        address=facts.text("address", _ADDRESS),
        rounds=_rounds(whole),
        head=facts.digest("head"),
        block=facts.number("head_block"),
        block_hash=facts.digest("head_block_hash"),
        remarks=whole.number("remarks"),
        audits=audits,
    )


def _require_passed(whole: _Fields) -> None:
    """Refuse an audit whose verdict is not passed, in words or by its steps."""
    whole.require("outcome", expected=str(AuditOutcome.PASSED))
    if whole.value("kept_head") is not None:
        whole.fields("kept_head").require("found", expected=True)
    steps = whole.value("steps")
    if not isinstance(steps, list) or len(steps) != len(AuditStep):
        raise EarlierReportError(f"the earlier report: steps must be a list of {len(AuditStep)}")
    for number, step in zip(AuditStep, steps, strict=True):
        fields = _Fields(step, f"step {int(number)}, ")
        fields.require("number", expected=int(number))
        fields.require("outcome", expected=str(StepOutcome.PASSED))
        fields.require("contradictions", expected=0)
        fields.require("missing_count", expected=0)


def _rounds(whole: _Fields) -> int:
    """Return how many rounds had ended, if the report says so wherever it does."""
    rounds, counts = whole.number("rounds"), whole.fields("counts")
    parts = [counts.number(name, 0) for name in ("rounds decided", "rounds abandoned")]
    if rounds != sum(parts):
        raise EarlierReportError(
            f"the earlier report: rounds is {rounds}, but {parts[0]} decided and {parts[1]} "
            f"abandoned ones are counted"
        )
    return rounds


class _Fields:
    """The fields of a JSON object, each of which must be there and be what it should be."""

    def __init__(self, value: object, place: str) -> None:
        if not isinstance(value, dict):
            raise EarlierReportError(f"the earlier report: {place or 'it '}must be a JSON object")
        self._values: Mapping[str, Any] = value
        self._place = place

    def value(self, name: str) -> object:
        if name not in self._values:
            raise EarlierReportError(f"the earlier report: {self._place}{name} is missing")
        return self._values[name]

    def number(self, name: str, default: int | None = None) -> int:
        value = self._values.get(name, default) if default is not None else self.value(name)
        if type(value) is not int or not 0 <= value < _LARGEST:
            raise self._wrong(name, "a number of at least 0")
        return value

    def text(self, name: str, form: re.Pattern[str]) -> str:
        value = self.value(name)
        if not isinstance(value, str) or not form.fullmatch(value):
            raise self._wrong(name, f"text of the form {form.pattern}")
        return value

    def digest(self, name: str) -> Digest:
        return Digest(bytes.fromhex(self.text(name, _DIGEST)[2:]))

    def fields(self, name: str) -> _Fields:
        return _Fields(self.value(name), f"{self._place}{name}, ")

    def require(self, name: str, *, expected: str | int) -> None:
        value = self.value(name)
        if type(value) is not type(expected) or value != expected:
            raise self._wrong(name, f"{expected} for an audit to build on it")

    def _wrong(self, name: str, rule: str) -> EarlierReportError:
        shown = plain(f"{self._values[name]!r:.60}")
        return EarlierReportError(
            f"the earlier report: {self._place}{name} is {shown}, must be {rule}"
        )
