"""The audit of one round from a bundle, and the export of bundles.

The round's beginning - model, seed, committee, bans, head - follows from the path of heads, or from
the contract that is trusted; from there on the same replay, checker and steps judge as in `audit`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Never

from eth_utils.address import to_checksum_address

from ledger.audit import report
from ledger.audit.checks import rounds
from ledger.audit.engine import AuditLog
from ledger.audit.evidence import ReplayedRound, RunStart
from ledger.audit.proofs.container import BundleFile, write_container
from ledger.audit.proofs.documents import manifest_bytes
from ledger.audit.proofs.proof import RoundBundle, rounds_of_models
from ledger.audit.proofs.recorded import TrustedContract, make_bundle, read_trusted_contract
from ledger.audit.proofs.verification import (
    Caveat,
    StepName,
    Trusted,
    VerificationStep,
    caveats_of_trust,
    compare,
    final_trust,
    location_value,
    verify_basis,
)
from ledger.audit.replay import ReadingEndedError, Replay
from ledger.audit.round_checker import EvidenceReader, RoundChecker, RoundTask
from ledger.audit.run_reader import check_beginning
from ledger.chain.contract.ledger import CommitteeLedger
from ledger.chain.ports import Block, ChainBase, Log, LogQuery, NotServedError, Receipt, Transaction
from ledger.distances import fast_distances, usable_cores
from ledger.io.user_code import use_rules
from ledger.protocol.encoding import aggregation_result, to_hex
from ledger.protocol.errors import BlobError, BlobMissingError
from ledger.protocol.ledger_state import LedgerStage, LedgerState
from ledger.protocol.types import NO_DIGEST, Digest
from ledger.storage.blobs import MAX_BLOB_BYTES, BlobReader

_SENTENCES: dict[report.AuditOutcome, str] = {
    report.AuditOutcome.PASSED: "PASSED: every check of round {} passed",
    report.AuditOutcome.FAILED: "FAILED: round {} contradicts itself, the "
    "recomputed values or the trusted input",
    report.AuditOutcome.INCOMPLETE: "INCOMPLETE: no contradiction was found, but not all "
    "of round {} could be checked",
}


@dataclass(frozen=True, slots=True)
class UncheckedField(report.Reported):
    """A field of `bundle.json` that can change, at least partly, without a contradiction."""

    field: str  # names from the outermost to the innermost, with dots; of lists, each entry's
    reason: str


@dataclass(frozen=True, slots=True)
class RoundVerification:
    """The result of checking one round."""

    round: int
    steps: tuple[VerificationStep, ...]  # whether start and places are those of the trusted run
    audit: tuple[report.StepReport, ...]
    findings: tuple[report.Finding, ...]
    counts: dict[str, int]
    caveats: tuple[Caveat, ...]  # what is not proven, whatever the steps show
    unchecked: tuple[UncheckedField, ...]

    @property
    def outcome(self) -> report.AuditOutcome:
        return report.outcome_of((*self.steps, *self.audit))

    @property
    def sentence(self) -> str:
        return _SENTENCES[self.outcome].format(self.round)

    def as_dict(self) -> dict[str, Any]:
        head = {"round": self.round, "outcome": str(self.outcome), "sentence": self.sentence}
        parts = ("steps", "audit", "findings", "counts", "caveats", "unchecked")
        return head | {name: report.shown(getattr(self, name)) for name in parts}


def verify_bundle(
    bundle: RoundBundle,
    blobs: BlobReader,
    trusted: Trusted | None = None,
    rules: tuple[str, ...] = (),
) -> RoundVerification:
    """Return the result of checking a round; without anything trusted nothing is proven."""
    if rules:
        # Before anything else: a round without a decision computes no rule.
        use_rules(bundle.document.parameters, rules)
    trusted = final_trust(bundle, trusted)
    steps, preimages = [*verify_basis(bundle, trusted)], {one.round: one for one in bundle.earlier}
    for link in bundle.needed():
        voted, opened = to_hex(link.result), to_hex(aggregation_result(preimages[link.round]))
        steps.append(compare(StepName.EARLIER_RESULT, voted, opened))
    if isinstance(trusted, TrustedContract):
        round_, is_final = trusted.round, trusted.is_final
        block = None if round_.opening is None else round_.opening.opened_block
        events, logs = (tuple(map(location_value, own)) for own in (round_.events, bundle.logs))
        steps += [
            compare(StepName.OPENED_BLOCK, block, bundle.opened_block, is_final=is_final),
            compare(StepName.EVENT_PLACES, events, logs, is_final=is_final),
        ]
    noting = RecordingBlobs(blobs)
    noting.read.add(bundle.config)
    log, head = _audited(
        bundle, trusted, RoundChecker(noting, fast_distances(usable_cores()), rules=rules)
    )
    expected = bundle.path.heads[bundle.links_to_end]
    steps.append(compare(StepName.REPLAYED_HEAD, to_hex(expected), to_hex(head)))
    if isinstance(blobs, BundleFile):
        vain = tuple(to_hex(digest) for digest in blobs.digests() if digest not in noting.read)
        steps.append(compare(StepName.PARTS, (), vain))
    return RoundVerification(
        round=bundle.round,
        steps=tuple(steps),
        audit=tuple(log.steps.values()),
        findings=tuple(log.findings),
        counts={str(count): n for count, n in sorted(log.counts.items()) if n},
        caveats=caveats_of_trust(trusted, Caveat.PLACES_UNPROVEN, Caveat.CLOSING_CERTIFIED),
        unchecked=tuple(_unchecked(bundle, trusted, steps)),
    )


class BundleChain(ChainBase):
    """The chain that a bundle describes; anything else is not served."""

    def __init__(self, bundle: RoundBundle) -> None:
        self.chain_id = bundle.chain_id
        self.genesis_hash: bytes = bundle.genesis_hash
        self._bundle = bundle
        self._blocks = {block.number: block for block in bundle.blocks}
        self._transactions = {transaction.hash: transaction for transaction in bundle.transactions}

    def head(self) -> Block:
        return self._bundle.blocks[-1]

    def block(self, number: int) -> Block:
        if number not in self._blocks:
            raise NotServedError(f"block {number} is not in the bundle")
        return self._blocks[number]

    def finalized(self) -> int:
        return self.head().number

    def logs(self, query: LogQuery) -> list[Log]:
        return query.of(self._bundle.logs)

    def transaction(self, transaction_hash: bytes) -> Transaction:
        if transaction_hash not in self._transactions:
            raise NotServedError(f"transaction 0x{transaction_hash.hex()} is not in the bundle")
        return self._transactions[transaction_hash]

    def receipt(self, transaction_hash: bytes) -> Receipt | None:
        _not_served(f"the receipt of 0x{transaction_hash.hex()}")

    def call(self, to: str, data: bytes, block_number: int | None = None) -> bytes:  # noqa: ARG002 - the port's
        _not_served(f"a call of {to}")

    def code(self, address: str) -> bytes:
        _not_served(f"the code at {address}")


def _not_served(what: str) -> Never:
    raise NotServedError(f"{what} is not in a bundle, which contains one round without state")


def _audited(
    bundle: RoundBundle, trusted: Trusted | None, checker: RoundChecker
) -> tuple[AuditLog, Digest]:
    """Audit one round from where it began; return the results, and the head after the round.

    If a contract is trusted, it states what was deployed. A head that is trusted commits to the
    configuration, and the replay recomputes all that the contract's code does.
    """
    facts = trusted if isinstance(trusted, TrustedContract) else None
    log, is_final = AuditLog(), facts is None or facts.is_final
    start = RunStart(
        block=bundle.opened_block,
        domain=bundle.domain,
        address=to_checksum_address(bundle.address),
        recorded=bundle.deployment if facts is None else facts.deployment,
        document=bundle.document,
        deployment=bundle.deployment,
        code="" if facts is None else facts.code_doubt,
    )
    ledger = CommitteeLedger(BundleChain(bundle), start.address, bundle.opened_block)
    replay = Replay(ledger, _state_of(bundle))
    for result in _results(bundle, start, replay, checker, log):
        log.take(result, is_final=is_final)
    return log, replay.position.state.head


def _results(
    bundle: RoundBundle, start: RunStart, replay: Replay, checker: RoundChecker, log: AuditLog
) -> Iterator[report.CheckResult]:
    """Replay the round's transactions; yield the results of every step, and count the blobs."""
    reader, models = EvidenceReader(start), rounds_of_models(bundle)
    reader.ended = bundle.round - 1
    yield from check_beginning(start)
    try:
        for item in replay.observe(bundle.blocks[-1].number):
            if isinstance(item, report.CheckResult):
                yield item
            for each in reader.read(item) if isinstance(item, ReplayedRound) else ():
                if isinstance(each, RoundTask):
                    origin = bundle.model_at(models[1]) if len(models) > 1 else None
                    checked = checker.check(replace(each, origin=origin))
                    log.counts["blobs"] += checked.blobs_read
                    log.counts["bytes"] += checked.bytes_read
                    yield from checked.results
                else:
                    yield each
    except ReadingEndedError as ended:
        yield from ended.results


def _state_of(bundle: RoundBundle) -> LedgerState:
    place = bundle.path_to_end.end_of(bundle.round - 1)
    return LedgerState(
        deployment=bundle.deployment,
        domain=bundle.domain,
        stage=LedgerStage.OPEN,
        round=bundle.round,
        opened_block=bundle.opened_block,
        seed=bundle.seed,
        committee=bundle.committee,
        model=bundle.model_at(bundle.round),
        head=bundle.path.heads[0 if place is None else place + 1],
        registry_rest=NO_DIGEST,
        registry=bundle.registry,
    )


_FIELDS = {
    StepName.HEAD: "path.links",
    StepName.CONFIGURATION: "configuration",
    StepName.SEED: "seed",
    StepName.COMMITTEE: "committee",
    StepName.BANS: "bans",
    StepName.OPENED_BLOCK: "opened_block",
    StepName.EVENT_PLACES: "logs",
}
"""The field of each step whose expected value may be unknown."""

_PLACES = (
    *("genesis_hash", "opened_block", "blocks.number", "blocks.hash"),
    *("transactions.hash", "transactions.block_number"),
    *("logs.block_number", "logs.block_hash", "logs.transaction_hash", "logs.log_index"),
)


def _unchecked(
    bundle: RoundBundle, trusted: Trusted | None, steps: list[VerificationStep]
) -> Iterator[UncheckedField]:
    for step in steps:
        if step.is_ok is None and step.name in _FIELDS:
            yield UncheckedField(_FIELDS[step.name], "no trusted input contains its value")
    heads, end, reached = bundle.path.heads, bundle.links_to_end, 0
    links = len(bundle.path.links)
    if isinstance(trusted, TrustedContract):
        reached = end if heads[end] == trusted.round.head else 0
    elif trusted is not None and trusted.head in heads[end:]:
        reached = heads.index(trusted.head, end)
    if reached < links:
        after = f"the last {links - reached} of {links} come after the trusted head"
        yield UncheckedField("path.links", after)
    if not isinstance(trusted, TrustedContract):
        for field in _PLACES:
            yield UncheckedField(field, "compared with other fields only: a head has no places")
    yield UncheckedField("blocks.parent_hash", "compared only if the bundle has the previous block")
    yield UncheckedField("transactions.input", "compared only in the bytes that the contract reads")


class RecordingBlobs:
    """A blob store that notes which blobs are read."""

    def __init__(self, blobs: BlobReader) -> None:
        self.read: set[Digest] = set()
        self._blobs = blobs

    def get(self, digest: Digest, limit: int = MAX_BLOB_BYTES) -> bytes:
        data = self._blobs.get(digest, limit)
        self.read.add(digest)
        return data

    def has(self, digest: Digest) -> bool:
        return self._blobs.has(digest)


_LACKING = {
    rounds.BLOB_MISSING,
    rounds.BLOB_UNREADABLE,
    rounds.MODEL_BEFORE_UNKNOWN,
    rounds.DISPLACEMENT_UNKNOWN,
}
"""What a step lacks if a blob is unavailable that the check of the round needs."""


@dataclass(frozen=True, slots=True)
class RoundExport:
    """A round as it was exported, and the check of it against the chain that it was read from."""

    manifest: bytes
    blobs: RecordingBlobs
    verification: RoundVerification


def export_bundle(
    ledger: CommitteeLedger, blobs: BlobReader, round_number: int, path: Path
) -> RoundVerification:
    """Write a round's bundle into a file, whole or not at all; return the check of the round."""
    export = prepare_export(ledger, blobs, round_number)
    write_container(path, export.manifest, export.blobs.read, export.blobs)
    return export.verification


def prepare_export(
    ledger: CommitteeLedger, blobs: BlobReader, round_number: int, *, whole: bool = True
) -> RoundExport:
    """Return a round's bundle before it is written, with all blobs that the check of it reads."""
    noting = RecordingBlobs(blobs)
    bundle = make_bundle(ledger, noting, round_number, whole=whole)
    verification = verify_bundle(bundle, noting, read_trusted_contract(ledger, round_number))
    for step in verification.audit:
        if step.contradiction is not None and step.contradiction.fact is rounds.BLOB_DAMAGED:
            lost = f"round {round_number} cannot be exported: {step.contradiction.sentence}"
            raise BlobError(lost)
        for lacking in step.missing:
            if lacking.need in _LACKING:
                raise BlobMissingError(
                    f"round {round_number} cannot be exported: {lacking.sentence}"
                )
    return RoundExport(manifest_bytes(bundle), noting, verification)
