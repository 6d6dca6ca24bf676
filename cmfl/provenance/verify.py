"""Verification of a provenance document: every field derived again from chain and blobs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

from cmfl.provenance.documents import (
    Difference,
    DocumentKind,
    ProvenanceDocument,
    crate_differences,
    crate_files,
    differences,
)
from cmfl.provenance.facts import PASSED, RoundNotEndedError, RunFacts, read_facts
from cmfl.provenance.signatures import (
    SignatureMismatchError,
    anchor_of,
    folder_differences,
    require_public_key,
    require_signed_envelope,
    require_signed_folder,
)
from cmfl.where import Target
from ledger.audit.report import AuditOutcome, AuditReport
from ledger.protocol.encoding import to_hex
from ledger.protocol.errors import BlobError, ChainError

_MOST_NAMED = 50


class ProvenanceState(StrEnum):
    """The result of a verification in a word; passed if current or stale, else as it is said."""

    CURRENT = "current"
    STALE = "stale"
    FOREIGN = "foreign"
    FALSE = "false"
    UNCONFIRMED = "unconfirmed"
    """No field is false, but something could not be derived."""


@dataclass(frozen=True, slots=True)
class DocumentVerification:
    """The result of a verification.

    Attributes:
        notes: what else is to be known, in sentences.
        round: that the document is about; None where it names none.
    """

    kind: DocumentKind
    state: ProvenanceState
    differences: tuple[Difference, ...]
    notes: tuple[str, ...]
    round: int | None

    @property
    def outcome(self) -> AuditOutcome:
        """Passed if every field is the run's, else failed, or incomplete if that is unknown."""
        if self.state is ProvenanceState.UNCONFIRMED:
            return AuditOutcome.INCOMPLETE
        is_false = self.state in {ProvenanceState.FOREIGN, ProvenanceState.FALSE}
        return AuditOutcome.FAILED if is_false else AuditOutcome.PASSED

    @property
    def sentence(self) -> str:
        """The result in a sentence."""
        after = "" if self.round is None else f" after round {self.round}"
        text = {
            ProvenanceState.CURRENT: f"every field is what the run leads to{after}",
            ProvenanceState.STALE: f"every field is what the run led to{after}, and it has gone on",
            ProvenanceState.FOREIGN: "it is about another contract or chain",
            ProvenanceState.FALSE: "it is not what the run leads to",
            ProvenanceState.UNCONFIRMED: "not every field could be derived",
        }
        return f"{str(self.outcome).upper()}, {self.state}: {self.kind}: {text[self.state]}"

    def as_dict(self) -> dict[str, Any]:
        """Return it as plain data for JSON."""
        return {
            "outcome": str(self.outcome),
            "state": str(self.state),
            "kind": str(self.kind),
            "round": self.round,
            "differences": [each.as_dict() for each in self.differences],
            "notes": list(self.notes),
            "sentence": self.sentence,
        }


def verify_document(
    document: ProvenanceDocument,
    target: Target,
    audit: Callable[[], AuditReport],
    mailbox: str | None = None,
    public_key: Path | None = None,
) -> DocumentVerification:
    """Return whether every field of a document is what a run leads to.

    Args:
        mailbox: location of the attestations; None for that of the blobs.
        public_key: PEM file of the key that must have signed it; None to check no signature.
    """
    if foreign := list(_identity_differences(document, target)):
        return _result(document, ProvenanceState.FOREIGN, foreign)
    violation = signature_violation(document, public_key)
    report = audit()
    failures = [
        step.contradiction.sentence for step in report.steps if step.contradiction is not None
    ]
    try:
        facts = _facts(document, target, report, mailbox)
    except (RoundNotEndedError, ChainError, BlobError) as error:
        if isinstance(error, ChainError) and report.outcome is AuditOutcome.PASSED:
            raise
        # A node may lag behind; a chain file may not.
        is_cut_off = isinstance(error, RoundNotEndedError) and target.rpc_url is None
        is_false = is_cut_off or bool(failures)
        state = ProvenanceState.FALSE if is_false else ProvenanceState.UNCONFIRMED
        return _result(document, state, [], [str(error), *failures])
    wrong = list(_differences(document, replace(facts, repeated=document.repeated())))
    if violation is not None:
        wrong.append(Difference("signature", "", "of the key that was named", violation))
    known_before = [each.sentence for each in (report.kept, report.witnessed) if each is not None]
    notes = [*failures, *known_before, *_attestation_notes(document, facts)]
    if failures or wrong:
        return _result(document, ProvenanceState.FALSE, wrong, notes, facts.round)
    lacks = list(_lacks(document, report, facts.round, public_key))
    is_whole = not lacks and report.outcome is AuditOutcome.PASSED
    if not is_whole or set(document.repeated()) - set(facts.repeated):
        return _result(document, ProvenanceState.UNCONFIRMED, [], [*notes, *lacks], facts.round)
    if facts.round < facts.newest:
        notes.insert(0, f"the newest round that has ended is {facts.newest}")
        return _result(document, ProvenanceState.STALE, [], notes, facts.round)
    return _result(document, ProvenanceState.CURRENT, [], notes, facts.round)


def _lacks(
    document: ProvenanceDocument, report: AuditReport, number: int, public_key: Path | None
) -> Iterator[str]:
    """Yield why a document without a false field may still be one."""
    for step in report.steps:
        yield from (each.sentence for each in step.missing[:1])
    if document.is_signed and public_key is None:
        yield "it is signed, and the signature was not checked: --key names the public key"
    if number > report.rounds:
        yield f"round {number} has ended since the audit began: verify once more"


def _result(
    document: ProvenanceDocument,
    state: ProvenanceState,
    wrong: list[Difference],
    notes: list[str] | None = None,
    number: int | None = None,
) -> DocumentVerification:
    first = tuple(sorted(wrong, key=lambda each: each.field)[:_MOST_NAMED])
    about = document.round if number is None else number
    return DocumentVerification(document.kind, state, first, tuple(notes or ()), about)


def signature_violation(document: ProvenanceDocument, public_key: Path | None) -> str | None:
    """Return why a document is not signed by a key; None if it is, or no key is named."""
    if public_key is None:
        return None
    require_public_key(public_key)
    try:
        if document.kind is DocumentKind.MODEL:
            assert document.folder is not None
            require_signed_folder(document.folder, public_key)
        elif document.envelope is not None:
            require_signed_envelope(document.envelope, public_key)
        else:
            return "is missing"
    except SignatureMismatchError as error:
        return f"does not hold: {error}"
    return None


def _identity_differences(document: ProvenanceDocument, target: Target) -> Iterator[Difference]:
    """Yield the claims about chain and contract that are not those of the target."""
    with target.reader() as chain:
        ledger = target.ledger(chain)
        identity = {
            "chain": str(chain.chain_id),
            "genesis": to_hex(chain.genesis_hash),
            "contract": ledger.address,
        }
    for name, value in identity.items():
        claimed = document.claim(name)
        # A field that is missing is named with all others.
        yield from differences(value if claimed is None else claimed, value, name)


def _facts(
    document: ProvenanceDocument, target: Target, report: AuditReport, mailbox: str | None
) -> RunFacts:
    """Return the facts as of the round whose head the document names, or of the round itself."""
    # What could not be checked is no field of a document: none is written then.
    is_failed = report.outcome is AuditOutcome.FAILED
    outcomes = {step.number: step.outcome for step in report.steps} if is_failed else PASSED
    anchor = document.claim("head")
    if document.kind is DocumentKind.MODEL:
        assert document.folder is not None
        anchor = anchor_of(document.folder, read_facts(target, mailbox=mailbox).document.layout)
    return read_facts(
        target,
        document.round,
        anchor=anchor if isinstance(anchor, str) else None,
        audit=outcomes,
        mailbox=mailbox,
    )


def _differences(document: ProvenanceDocument, facts: RunFacts) -> Iterator[Difference]:
    yield from differences(document.value, document.kind.derive(facts))
    if document.folder is not None:
        is_model = document.kind is DocumentKind.MODEL
        for name, reason in (
            folder_differences(document.folder, facts)
            if is_model
            else crate_differences(document.folder, crate_files(facts))
        ):
            yield Difference(name, "", "the run's", reason)


def _attestation_notes(document: ProvenanceDocument, facts: RunFacts) -> Iterator[str]:
    listed, there = set(document.repeated()), set(facts.repeated)
    if missing := sorted(listed - there):
        first = missing[0]
        yield (
            f"training: {len(missing)} attestations that it lists are not in the mailbox, the "
            f"first by {first.auditor:.42} of client {first.client} in round {first.round}"
        )
    if others := there - listed:
        verdicts = [each.verdict for each in others]
        yield (
            f"training: the mailbox has {len(others)} attestations that it does not list: "
            f"{verdicts.count('same')} same, {verdicts.count('other')} other"
        )
