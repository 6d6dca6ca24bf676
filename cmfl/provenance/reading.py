"""The facts of a run, read from chain, blobs and mailbox as of the end of a round."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from cmfl.access.target import Target, opened_ledger
from cmfl.provenance.facts import PASSED, RepeatedUpdate, RunFacts
from cmfl.training_coverage import coverage_of
from ledger.audit.report import AuditStep, StepOutcome
from ledger.protocol.encoding import sha256, to_hex
from ledger.protocol.errors import ConfigurationError
from ledger.protocol.types import Digest

if TYPE_CHECKING:
    from ledger.chain.contract.committee_ledger import CommitteeLedger
    from ledger.chain.contract.event_logs import RecordedEvent
    from ledger.history.responses.training import TrainingCoverage


class RoundNotEndedError(ConfigurationError):
    """The chain has no final end of a round."""

    def __init__(self, number: int, newest: int) -> None:
        others = f"the newest that has is {newest}" if newest else "none has"
        super().__init__(f"round {max(number, 1)} has not ended in a final block: {others}")


def read_facts(
    target: Target,
    round_number: int | None = None,
    *,
    anchor: str | None = None,
    audit: Mapping[AuditStep, StepOutcome] = PASSED,
    auditors: Collection[str] = (),
    mailbox: str | None = None,
) -> RunFacts:
    """Return the facts of a run as of the end of a round.

    Args:
        round_number: t; None for the newest that has ended in a final block.
        anchor: head or model at the end of t, 0x-hex, which counts more than a number.
        auditors: addresses whose verdicts count alone; none for everybody's.
        mailbox: location of the attestations; None for that of the blobs.
    """
    from clients.datasets.files.extra import imported

    # The file of the model is derived without torch.
    imported("safetensors.numpy", "provenance", "documents about a model")
    from clients.models.model_file import encode_run_model
    from ledger.protocol.canonical import MAX_DOCUMENT_BYTES
    from ledger.protocol.documents.run import decode_run
    from ledger.protocol.encoding import vector_from_bytes

    with opened_ledger(target) as ledger:
        recorded = _recorded(ledger, round_number, anchor)
    blobs = target.published()
    document_bytes = blobs.get(recorded["configuration"], MAX_DOCUMENT_BYTES)
    document = decode_run(document_bytes)
    dimension = document.parameters.dimension
    number, ended_with = recorded["round"], recorded["head"]
    vector = vector_from_bytes(blobs.get(recorded["model"], 4 * dimension), dimension)
    coverage = coverage_of(target, (1, number), auditors, mailbox)
    return RunFacts(
        **recorded,
        document_bytes=document_bytes,
        document=document,
        model_file=encode_run_model(vector, document, number, ended_with),
        audit=audit,
        updates=len(coverage["updates"]),
        repeated=_repeated(coverage),
    )


def _recorded(ledger: CommitteeLedger, number: int | None, anchor: str | None) -> dict[str, Any]:
    """Return the facts that the chain alone has, by name; see `read_facts`."""
    fixed, chain = ledger.deployment(), ledger.chain
    ends = ledger.outcomes(fixed.rounds, descending=False, to_block=chain.finalized())
    number = len(ends) if number is None else number
    states = list(_states_after(ends, fixed.model))
    if anchor is not None:
        number = _round_of(states, anchor) or number
    if not 1 <= number <= len(ends):
        raise RoundNotEndedError(number, len(ends))
    opening = ledger.opening(1)
    assert opening is not None, "a round has ended"
    head, model, decided = states[number - 1]
    return {
        "chain_id": chain.chain_id,
        "genesis": chain.genesis_hash,
        "contract": ledger.address,
        "code": sha256(chain.code(ledger.address)),
        "configuration": fixed.config,
        "round": number,
        "newest": len(ends),
        "decided": decided,
        "head": head,
        "model": model,
        "started": chain.block(opening.opened_block).timestamp,
        "ended": chain.block(ends[number - 1].block_number).timestamp,
    }


def _round_of(states: Sequence[tuple[Digest, Digest, int]], anchor: str) -> int | None:
    """Return the newest round after which a head or a model held; None if none is."""
    for number in range(len(states), 0, -1):
        if anchor in map(to_hex, states[number - 1][:2]):
            return number
    return None


def _states_after(
    ends: Iterable[RecordedEvent], first: Digest
) -> Iterator[tuple[Digest, Digest, int]]:
    """Yield head, model and number of decided rounds after each round."""
    from ledger.protocol.ledger_state import RoundAbandoned, RoundDecided

    model, decided = first, 0
    for recorded in ends:
        event = recorded.event
        assert isinstance(event, RoundDecided | RoundAbandoned)
        if isinstance(event, RoundDecided):
            model, decided = event.model, decided + 1
        yield event.head, model, decided


def _repeated(coverage: TrainingCoverage) -> tuple[RepeatedUpdate, ...]:
    verdicts = {
        RepeatedUpdate(update["round"], update["client"], each["auditor"], each["verdict"])
        for update in coverage["updates"]
        for each in update["attestations"]
    }
    return tuple(sorted(verdicts))
