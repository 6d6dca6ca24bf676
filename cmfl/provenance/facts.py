"""Everything that a provenance document states, derived from chain, blobs and mailbox alone.

So a verifier makes it again: no clock, no machine and no claim of the run's own files counts.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Any, NamedTuple

from clients.datasets.files.tables import imported
from clients.models.model import RECORDED_FILE
from cmfl.replaying import coverage_of
from cmfl.where import Target, opened_ledger
from ledger.audit.report import AuditStep, StepOutcome
from ledger.chain.contract.ledger import CommitteeLedger
from ledger.history.fields import time_of
from ledger.protocol.canonical import MAX_DOCUMENT_BYTES, decode
from ledger.protocol.documents.run import RunDocument, decode_run
from ledger.protocol.encoding import sha256, to_hex, vector_from_bytes
from ledger.protocol.errors import ConfigurationError
from ledger.protocol.ledger_state import RoundAbandoned, RoundDecided
from ledger.protocol.types import NO_DIGEST, PROTOCOL_VERSION, Digest

_BOUND = {
    "model_source": "code of the model",
    "frozen_state": "frozen tensors of the model",
    "data_root": "training samples of the clients",
}
"""Digests of the run document that are not the sha256 of one file: see the page on environments."""
PASSED = dict.fromkeys(AuditStep, StepOutcome.PASSED)  # of a run that a document is about


class RepeatedUpdate(NamedTuple):
    """An auditor's verdict on an update."""

    round: int
    client: int
    auditor: str
    verdict: str


@dataclass(frozen=True, slots=True)
class RunFacts:
    """A run as of the end of round t.

    `genesis` is the hash of block 0, and `code` the sha256 of the contract's code. `newest` is the
    newest round that has ended in a final block. `started` and `ended` are Unix seconds of blocks.
    `audit` is of the whole run as it is now. `updates` counts those up to t whose training can be
    repeated, and `repeated` has auditors' verdicts on them, ascending.
    """

    chain_id: int
    genesis: bytes
    contract: str
    code: Digest
    configuration: Digest
    document_bytes: bytes
    document: RunDocument
    round: int
    newest: int
    decided: int
    head: Digest
    model: Digest
    model_file: bytes
    started: int
    ended: int
    audit: Mapping[AuditStep, StepOutcome]
    updates: int
    repeated: tuple[RepeatedUpdate, ...]

    @property
    def account(self) -> str:
        """The contract as an account identifier of CAIP-10, which is a URI."""
        return f"eip155:{self.chain_id}:{self.contract}"

    @property
    def identity(self) -> str:
        """The run as of its round, as a URI."""
        return f"{self.account}#{self.head.hex()}"

    def run_block(self) -> dict[str, Any]:
        """Return what every document states of the run; numbers that may exceed 2^53 are text."""
        verdicts: dict[tuple[int, int], set[str]] = {}
        for each in self.repeated:
            verdicts.setdefault((each.round, each.client), set()).add(each.verdict)
        by_verdict = [
            next(iter(each)) if len(each) == 1 else "disputed" for each in verdicts.values()
        ]
        return {
            "protocol": PROTOCOL_VERSION,
            "chain": str(self.chain_id),
            "genesis": to_hex(self.genesis),
            "contract": self.contract,
            "code": to_hex(self.code),
            "configuration": to_hex(self.configuration),
            "round": self.round,
            "decided": self.decided,
            "abandoned": self.round - self.decided,
            "head": to_hex(self.head),
            "model": to_hex(self.model),
            "audit": {
                "outcome": "passed" if self.audit == PASSED else "failed",
                "steps": {step.name.lower(): str(outcome) for step, outcome in self.audit.items()},
            },
            "training": {
                "updates": self.updates,
                **{name: by_verdict.count(name) for name in ("same", "other", "disputed")},
                "none": self.updates - len(verdicts),
                "attestations": [each._asdict() for each in self.repeated],
            },
        }

    def settings(self) -> dict[str, Any]:
        recorded = decode(self.document_bytes)
        return {name: plain(recorded[name]) for name in ("parameters", "experiment")}

    def bound_inputs(self) -> Iterator[tuple[str, str, str]]:
        yield "run document", "sha256", self.configuration.hex()
        yield "initial model", "sha256", self.document.initial_model.hex()
        yield "contract code", "sha256", self.code.hex()
        for field, name in _BOUND.items():
            digest: Digest = getattr(self.document, field)
            if digest != NO_DIGEST:
                yield name, f"cmfl:{field}", digest.hex()
        options = self.described("model").get("options")
        for option, value in options.items() if isinstance(options, dict) else ():
            if isinstance(value, str) and value.startswith(RECORDED_FILE):
                digits = value.removeprefix(RECORDED_FILE)
                yield f"model.options.{option}", "cmfl:path", digits

    def described(self, part: str) -> dict[str, Any]:
        """Return the run document's entry of the model or the data; empty without one."""
        value = self.document.experiment.get(part)
        return value if isinstance(value, dict) else {}


def plain(value: Any) -> Any:
    """Return a value of a run document as JSON has it: bytes as 0x-hex, NaN as text."""
    match value:
        case float() if not isfinite(value):
            return str(value)
        case bytes():
            return to_hex(value)
        case dict():
            return {str(name): plain(item) for name, item in value.items()}
        case list() | tuple():
            return [plain(item) for item in value]
        case _:
            return value


def utc(seconds: int) -> str:
    """Return a time of the chain as RFC 3339, whose last one is at the end of the year 9999."""
    return time_of(seconds)["at"] or "9999-12-31T23:59:59Z"


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
    """Return the facts as of the end of a round, or of the newest that ended in a final block.

    `anchor` is a head or model at the end of the round, 0x-hex; it overrides the number. Without
    `auditors` all verdicts count. Without `mailbox` attestations are read where the blobs are.
    """
    # The file of the model is derived without torch.
    imported("safetensors.numpy", "provenance", "documents about a model")
    from clients.models.model_file import encode_model, run_facts

    with opened_ledger(target) as ledger:
        recorded = _recorded(ledger, round_number, anchor)
    blobs = target.published()
    document_bytes = blobs.get(recorded["configuration"], MAX_DOCUMENT_BYTES)
    document = decode_run(document_bytes)
    dimension = document.parameters.dimension
    number, ended_with = recorded["round"], recorded["head"]
    vector = vector_from_bytes(blobs.get(recorded["model"], 4 * dimension), dimension)
    coverage = coverage_of(target, (1, number), auditors, mailbox)
    verdicts = {
        RepeatedUpdate(update["round"], update["client"], each["auditor"], each["verdict"])
        for update in coverage["updates"]
        for each in update["attestations"]
    }
    return RunFacts(
        **recorded,
        document_bytes=document_bytes,
        document=document,
        model_file=encode_model(vector, document.layout, run_facts(document, number, ended_with)),
        audit=audit,
        updates=len(coverage["updates"]),
        repeated=tuple(sorted(verdicts)),
    )


def _recorded(ledger: CommitteeLedger, number: int | None, anchor: str | None) -> dict[str, Any]:
    """Return the facts that the chain alone has, by name; see `read_facts`."""
    fixed, chain = ledger.deployment(), ledger.chain
    ends = ledger.outcomes(fixed.rounds, descending=False, to_block=chain.finalized())
    number = len(ends) if number is None else number
    model, decided, states = fixed.model, 0, []
    for place, recorded in enumerate(ends, start=1):
        event = recorded.event
        assert isinstance(event, RoundDecided | RoundAbandoned)
        if isinstance(event, RoundDecided):
            model, decided = event.model, decided + 1
        states.append((event.head, model, decided))
        if anchor in {to_hex(event.head), to_hex(model)}:
            number = place  # the newest round with this head or model
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
