"""Step 5: every blob that the run names is there, and every payload opens its commitment."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from ledger.audit.checks.belonging import replayed
from ledger.audit.checks.objections import objected
from ledger.audit.codes import Fact, FindingKind, Need, Step
from ledger.audit.evidence.archive import BlobFailure
from ledger.audit.evidence.round_evidence import named_payloads
from ledger.audit.observations import DecidedRound, RunStart
from ledger.audit.report import Contradiction, Finding, MissingInput
from ledger.audit.sentences import hexed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ledger.audit.evidence.archive import UnavailableBlob
    from ledger.audit.evidence.round_evidence import RoundEvidence
    from ledger.audit.observations import Observation
    from ledger.audit.report import StepResult
    from ledger.protocol.types import ClientId, Digest

NUMBER = Step.BLOBS
TITLE = "blobs equal to their commitments"


def check(seen: Observation) -> Iterator[StepResult]:
    """Yield blobs that are missing or damaged, and payloads that open nothing or are shared.

    Args:
        seen: any observation.
    """
    yield from replayed(NUMBER, seen)
    match seen:
        case RunStart():
            for one in (seen.lost, seen.model.lost if seen.model is not None else None):
                yield from _lost(one)
        case DecidedRound():
            for one in (*seen.found.lost, seen.model.lost):
                yield from _lost(one)
            for one in seen.accusations.lost:
                # What nobody has signed may name anything; only what is there can be damaged.
                if one.loss is BlobFailure.DAMAGED:
                    yield from _lost(one)
            yield from objected(NUMBER, seen.found)
            yield from _shared(seen.found)
        case _:
            pass


def _lost(one: UnavailableBlob | None) -> Iterator[StepResult]:
    if one is None:
        return
    name = hexed(one.digest)
    if one.is_bad:
        values = str(one.kind), name, one.detail
        yield Contradiction(Fact.BLOB, one.round, one.clients, *values)
    elif one.loss is BlobFailure.MISSING:
        yield MissingInput(Need.BLOB, one.round, one.clients, one.kind, name)
    else:
        detail = f"{name} ({one.detail})"
        yield MissingInput(Need.BLOB_UNREADABLE, one.round, one.clients, one.kind, detail)


def _shared(found: RoundEvidence) -> Iterator[StepResult]:
    """Yield payloads to which several clients committed."""
    sharing: dict[Digest, list[ClientId]] = defaultdict(list)
    named = named_payloads(found.record) if found.record is not None else {}
    for client, payload in sorted(named.items()):
        sharing[payload].append(client)
    for payload, clients in sharing.items():
        if len(clients) > 1:
            evidence = (hexed(payload),)
            at, kind = found.event.round, FindingKind.EQUAL_PAYLOADS
            yield Finding(kind, at, tuple(clients), evidence, proven=True)
