"""Step 5: every blob that the run names is there, and every payload opens its commitment."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from ledger.audit.codes import Fact, FindingKind, Need, Step
from ledger.audit.evidence.archive import Loss
from ledger.audit.evidence.round import named_payloads
from ledger.audit.observations import DecidedRound, RunStart
from ledger.audit.report import Contradiction, Finding, Missing
from ledger.audit.sentences import hexed
from ledger.audit.steps.belonging import replayed
from ledger.audit.steps.objections import objected

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ledger.audit.evidence.archive import Lost
    from ledger.audit.evidence.round import RoundEvidence
    from ledger.audit.observations import Observation
    from ledger.audit.report import Said
    from ledger.protocol.types import ClientId, Digest

NUMBER = Step.BLOBS
TITLE = "blobs equal to their commitments"


def check(seen: Observation) -> Iterator[Said]:
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
                if one.loss is Loss.DAMAGED:
                    yield from _lost(one)
            yield from objected(NUMBER, seen.found)
            yield from _shared(seen.found)
        case _:
            pass


def _lost(one: Lost | None) -> Iterator[Said]:
    if one is None:
        return
    name = hexed(one.digest)
    if one.is_bad:
        values = str(one.kind), name, one.detail
        yield Contradiction(Fact.BLOB, one.round, one.clients, *values)
    elif one.loss is Loss.MISSING:
        yield Missing(Need.BLOB, one.round, one.clients, one.kind, name)
    else:
        detail = f"{name} ({one.detail})"
        yield Missing(Need.BLOB_UNREADABLE, one.round, one.clients, one.kind, detail)


def _shared(found: RoundEvidence) -> Iterator[Said]:
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
