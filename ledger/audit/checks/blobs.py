"""Steps 5 and 9: every blob is there and opens its commitment, and the model follows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

import numpy as np

from ledger.audit.checks.common import UPDATES_MISSING, contradictions_of
from ledger.audit.evidence import (
    Accusations,
    BlobFailure,
    ModelStep,
    RoundEvidence,
    UnavailableBlob,
)
from ledger.audit.report import (
    Contradiction,
    Fact,
    Finding,
    FindingKind,
    MissingInput,
    Need,
    StepResult,
)
from ledger.protocol.encoding import to_hex
from ledger.protocol.types import ClientId, Digest
from ledger.protocol.validation import ViolationCode

BLOB_DAMAGED = Fact("blob", "the {subject} is blob {recorded}", "it is not: {true}")
OPENS_NO_COMMITMENT = Fact(
    "opens no commitment",
    "the payload opens its commitment on the chain",
    "it opens no commitment that its client made in time",
)
BLOB_MISSING = Need("blob", "the {subject} {detail} is missing")
BLOB_UNREADABLE = Need("blob unreadable", "the {subject} cannot be had: {detail}")
EQUAL_PAYLOADS = FindingKind("equal payloads", "they committed to one and the same payload")

VIOLATIONS = {ViolationCode.OPENS_NO_COMMITMENT: OPENS_NO_COMMITMENT}


def check_blobs(
    evidence: RoundEvidence, model: ModelStep, accusations: Accusations
) -> Iterator[StepResult]:
    """Yield blobs that are missing or damaged, and payloads that open nothing or are shared."""
    # What nobody has signed may name anything; only what is there can be damaged.
    accused = [blob for blob in accusations.lost if blob.loss is BlobFailure.DAMAGED]
    yield from unavailable_blobs(*evidence.lost, model.lost, *accused)
    yield from contradictions_of(evidence, VIOLATIONS)
    yield from _shared(evidence)


def unavailable_blobs(*blobs: UnavailableBlob | None) -> Iterator[StepResult]:
    """Yield what blobs that are not to be had contradict or leave open."""
    for blob in filter(None, blobs):
        name, about = to_hex(blob.digest), (blob.round, blob.clients)
        if blob.is_bad:
            yield Contradiction(BLOB_DAMAGED, *about, str(blob.kind), name, blob.detail)
        elif blob.loss is BlobFailure.MISSING:
            yield MissingInput(BLOB_MISSING, *about, blob.kind, name)
        else:
            yield MissingInput(BLOB_UNREADABLE, *about, blob.kind, f"{name} ({blob.detail})")


def _shared(evidence: RoundEvidence) -> Iterator[StepResult]:
    """Yield usable payloads to which several clients committed.

    A malformed one shows no copying: in form q8 whoever diverges publishes the same byte.
    """
    clients_by_payload: dict[Digest, list[ClientId]] = defaultdict(list)
    payloads = evidence.record.payloads() if evidence.record is not None else {}
    for client, payload in sorted(payloads.items()):
        clients_by_payload[payload].append(client)
    for payload, clients in clients_by_payload.items():
        if len(clients) > 1:
            digests = (to_hex(payload),)
            at = evidence.event.round
            yield Finding(EQUAL_PAYLOADS, at, tuple(clients), digests, proven=True)


MODEL_DIFFERS = Fact("model", "the model is {recorded}", "the accepted updates make it {true}")
MODEL_MALFORMED = Fact("model malformed", "blob {recorded} is a model", "it is not: {true}")
MODEL_NOT_FINITE = Fact("model not finite", "the model is usable", "it is not finite")
MODEL_BEFORE_UNKNOWN = Need("model before", "the model before it is not known")


def check_model(step: ModelStep, at: int) -> Iterator[StepResult]:
    """Yield whether the model that round `at` recorded follows, is well formed, and is finite."""
    if not step.is_known_before:
        yield MissingInput(MODEL_BEFORE_UNKNOWN, at)
    elif step.computed is None or step.digest is None:
        yield MissingInput(UPDATES_MISSING, at, step.lacking)
    elif step.digest != step.recorded:
        values = to_hex(step.recorded), to_hex(step.digest)
        yield Contradiction(MODEL_DIFFERS, at, (), "", *values)
    elif not np.isfinite(step.computed).all():
        yield Contradiction(MODEL_NOT_FINITE, at)
    if step.malformed:
        recorded = to_hex(step.recorded)
        yield Contradiction(MODEL_MALFORMED, at, recorded=recorded, true=step.malformed)
