"""The audit of one round from a bundle, and the export of bundles.

The round's beginning - model, seed, committee, bans, head - follows from the path of heads, or from
the contract that is trusted; from there on the same replay, checker and steps judge as in `audit`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Never

from eth_utils.address import to_checksum_address

from ledger.audit.checks.common import CheckResult
from ledger.audit.checks.published import (
    BLOB_MISSING,
    BLOB_UNREADABLE,
    DISPLACEMENT_UNKNOWN,
    MODEL_BEFORE_UNKNOWN,
)
from ledger.audit.engine import AuditLog
from ledger.audit.evidence import ReplayedRound, RunStart
from ledger.audit.proofs.container import BundleFile, write_container
from ledger.audit.proofs.documents import manifest_bytes
from ledger.audit.proofs.proof import RoundBundle, rounds_of_models
from ledger.audit.proofs.recorded import (
    TrustedContract,
    make_bundle,
    read_trusted_contract,
)
from ledger.audit.proofs.verification import (
    Caveat,
    StepName,
    Trusted,
    TrustedHead,
    VerificationStep,
    caveats_of_trust,
    compare,
    final_trust,
    location_value,
    verify_basis,
)
from ledger.audit.replay import ReadingEndedError, Replay
from ledger.audit.report import (
    AuditOutcome,
    Finding,
    Reported,
    StepReport,
    outcome_of,
    shown,
)
from ledger.audit.round_checker import EvidenceReader, RoundChecker, RoundTask
from ledger.audit.run_reader import check_beginning
from ledger.chain.contract.ledger import CommitteeLedger
from ledger.chain.ports import Block, ChainBase, Log, LogQuery, NotServedError, Receipt, Transaction
from ledger.distances import fast_distances, usable_cores
from ledger.io.user_code import use_rules
from ledger.protocol.encoding import aggregation_result, to_hex
from ledger.protocol.errors import BlobMissingError
from ledger.protocol.ledger_state import LedgerStage, LedgerState
from ledger.protocol.rules.distance import Distances
from ledger.protocol.types import NO_DIGEST, Digest
from ledger.storage.blobs import MAX_BLOB_BYTES, BlobReader

_SENTENCES: dict[AuditOutcome, str] = {
    AuditOutcome.PASSED: "PASSED: round {} was checked whole, and is true",
    AuditOutcome.FAILED: "FAILED: round {} contradicts itself, the truth, or what is trusted",
    AuditOutcome.INCOMPLETE: "INCOMPLETE: nothing contradicts, but not all of round {} could be "
    "checked",
}


@dataclass(frozen=True, slots=True)
class UncheckedField(Reported):
    """A field of `bundle.json` that may be changed without a contradiction.

    Attributes:
        field: names from the outermost to the innermost, with dots; of lists, each entry's.
        reason: why it is not checked, or which part of it.
    """

    field: str
    reason: str


@dataclass(frozen=True, slots=True)
class RoundVerification:
    """The result of checking one round.

    Attributes:
        steps: whether its beginning and its places are those of the run that is trusted.
        findings: who was caught at what, or failed to deliver.
        caveats: what is not proven, however all this ends.
        unchecked: fields of the bundle that were not checked, or not whole.
    """

    round: int
    steps: tuple[VerificationStep, ...]
    audit: tuple[StepReport, ...]
    findings: tuple[Finding, ...]
    counts: dict[str, int]
    caveats: tuple[Caveat, ...]
    unchecked: tuple[UncheckedField, ...]

    @property
    def outcome(self) -> AuditOutcome:
        """Failed if something contradicts, else incomplete if something could not be checked."""
        return outcome_of((*self.steps, *self.audit))

    @property
    def sentence(self) -> str:
        return _SENTENCES[self.outcome].format(self.round)

    def as_dict(self) -> dict[str, Any]:
        """Return it as plain data for JSON."""
        head = {"round": self.round, "outcome": str(self.outcome), "sentence": self.sentence}
        parts = ("steps", "audit", "findings", "counts", "caveats", "unchecked")
        return head | {name: shown(getattr(self, name)) for name in parts}


def verify_bundle(
    bundle: RoundBundle,
    blobs: BlobReader,
    trusted: Trusted | None = None,
    distances: Distances | None = None,
    rules: tuple[str, ...] = (),
) -> RoundVerification:
    """Return the result of checking a round.

    Args:
        blobs: those of the bundle, or of any other store.
        trusted: what the caller takes for true; None for nothing, which proves nothing.
        distances: how true distances are computed; None for the fastest that is here.
        rules: files or packages of the run's own rules, which are run if their digests are the
            document's.
    """
    if rules:
        # Before anything else: a round without a decision computes no rule.
        use_rules(bundle.document.parameters, rules)
    trusted = final_trust(bundle, trusted)
    steps = [*verify_basis(bundle, trusted), *_of_earlier(bundle)]
    if isinstance(trusted, TrustedContract):
        steps += _of_places(bundle, trusted)
    noting = RecordingBlobs(blobs)
    noting.read.add(bundle.config)
    compute = distances or fast_distances(usable_cores())
    audit = _RoundAudit(bundle, trusted, RoundChecker(noting, compute, rules=rules))
    audit.read()
    head = bundle.path.heads[bundle.links_to_end]
    steps.append(compare(StepName.REPLAYED_HEAD, to_hex(head), to_hex(audit.head)))
    if isinstance(blobs, BundleFile):
        vain = tuple(to_hex(digest) for digest in blobs.digests() if digest not in noting.read)
        steps.append(compare(StepName.PARTS, (), vain))
    return RoundVerification(
        round=bundle.round,
        steps=tuple(steps),
        audit=audit.log.steps(),
        findings=tuple(audit.log.findings),
        counts={str(count): n for count, n in sorted(audit.log.counts.items()) if n},
        caveats=caveats_of_trust(trusted, Caveat.PLACES_UNPROVEN, Caveat.CLOSING_CERTIFIED),
        unchecked=tuple(_unchecked(bundle, trusted, steps)),
    )


class BundleChain(ChainBase):
    """The chain that a bundle tells of; what it does not hold is not served."""

    def __init__(self, bundle: RoundBundle) -> None:
        self._bundle = bundle
        self._blocks = {block.number: block for block in bundle.blocks}
        self._transactions = {transaction.hash: transaction for transaction in bundle.transactions}

    @property
    def chain_id(self) -> int:
        return self._bundle.chain_id

    @property
    def genesis_hash(self) -> bytes:
        return self._bundle.genesis_hash

    def head(self) -> Block:
        """Return the block that ended the round."""
        return self._bundle.blocks[-1]

    def block(self, number: int) -> Block:
        """Return one block of the round."""
        if number not in self._blocks:
            raise NotServedError(f"block {number} is not in the bundle")
        return self._blocks[number]

    def finalized(self) -> int:
        """Return the number of the block that ended the round."""
        return self.head().number

    def logs(self, query: LogQuery) -> list[Log]:
        return query.of(self._bundle.logs)

    def transaction(self, transaction_hash: bytes) -> Transaction:
        """Return a transaction of the round."""
        if transaction_hash not in self._transactions:
            raise NotServedError(f"transaction 0x{transaction_hash.hex()} is not in the bundle")
        return self._transactions[transaction_hash]

    def receipt(self, transaction_hash: bytes) -> Receipt | None:
        """Refuse: a bundle has no receipts."""
        _not_served(f"the receipt of 0x{transaction_hash.hex()}")

    def call(self, to: str, data: bytes, block_number: int | None = None) -> bytes:  # noqa: ARG002 - the port's
        """Refuse: a bundle has no state."""
        _not_served(f"a call of {to}")

    def code(self, address: str) -> bytes:
        """Refuse: a bundle has no state."""
        _not_served(f"the code at {address}")


def _not_served(what: str) -> Never:
    raise NotServedError(f"{what} is not in a bundle, which holds one round and no state")


class _RoundAudit:
    """The audit of one round, from where it began; `head` is the ledger's after the round."""

    def __init__(self, bundle: RoundBundle, trusted: Trusted | None, checker: RoundChecker) -> None:
        self.log = AuditLog()
        self._bundle = bundle
        self._is_final = not isinstance(trusted, TrustedContract) or trusted.is_final
        self._start = _start_of(bundle, trusted)
        self._reader = EvidenceReader(self._start)
        self._reader.ended = bundle.round - 1
        self._checker = checker
        self._state = _state_of(bundle)
        self.head = self._state.head

    def read(self) -> None:
        """Replay the round's transactions, and let every step judge what they did."""
        ledger = CommitteeLedger(
            BundleChain(self._bundle), self._start.address, self._bundle.opened_block
        )
        replay = Replay(ledger, self._state)
        self._take(check_beginning(self._start))
        try:
            for item in replay.observe(self._bundle.blocks[-1].number):
                if isinstance(item, ReplayedRound):
                    self._check(item)
                elif isinstance(item, CheckResult):
                    self._take([item])
        except ReadingEndedError as ended:
            self._take(ended.results)
        self.head = replay.position.state.head

    def _check(self, replayed: ReplayedRound) -> None:
        for item in self._reader.read(replayed, is_trusted=False):
            if isinstance(item, RoundTask):
                checked = self._checker.check(replace(item, origin=self._origin()))
                self._take(checked.results)
                self.log.counts["blobs"] += checked.blobs_read
                self.log.counts["bytes"] += checked.bytes_read
            else:
                self._take([item])

    def _origin(self) -> Digest | None:
        rounds = rounds_of_models(self._bundle)
        return self._bundle.model_at(rounds[1]) if len(rounds) > 1 else None

    def _take(self, results: Iterable[CheckResult]) -> None:
        for result in results:
            self.log.take(result, is_final=self._is_final)


def _start_of(bundle: RoundBundle, trusted: Trusted | None) -> RunStart:
    """Return what the run starts from; what was deployed is what the contract says, if one does.

    Where a head is trusted it commits to the configuration, and the replay recomputes all that the
    contract's code does.
    """
    facts = trusted if isinstance(trusted, TrustedContract) else None
    return RunStart(
        block=bundle.opened_block,
        domain=bundle.domain,
        address=to_checksum_address(bundle.address),
        recorded=bundle.deployment if facts is None else facts.deployment,
        document=bundle.document,
        lost=None,
        malformed="",
        deployment=bundle.deployment,
        is_possible=True,
        code="" if facts is None else facts.code_doubt,
        model=None,
    )


def _state_of(bundle: RoundBundle) -> LedgerState:
    """Return the contract's state as the round opened."""
    place = bundle.path_to_end.end_of(bundle.round - 1)
    opening = 0 if place is None else place + 1
    return LedgerState(
        deployment=bundle.deployment,
        domain=bundle.domain,
        stage=LedgerStage.OPEN,
        round=bundle.round,
        opened_block=bundle.opened_block,
        seed=bundle.seed,
        committee=bundle.committee,
        model=bundle.model_at(bundle.round),
        head=bundle.path.heads[opening],
        registry_rest=NO_DIGEST,
        registry=bundle.registry,
    )


def _of_earlier(bundle: RoundBundle) -> Iterator[VerificationStep]:
    """Yield whether the models that came before are those that were voted for."""
    preimages = {one.round: one for one in bundle.earlier}
    for link in bundle.needed():
        opened = aggregation_result(preimages[link.round])
        yield compare(StepName.EARLIER_RESULT, to_hex(link.result), to_hex(opened))


def _of_places(bundle: RoundBundle, facts: TrustedContract) -> Iterator[VerificationStep]:
    """Yield whether the chain that is trusted holds every event where the bundle says."""
    opened = None if facts.round.opening is None else facts.round.opening.opened_block
    yield compare(StepName.OPENED_BLOCK, opened, bundle.opened_block, is_final=facts.is_final)
    expected = tuple(map(location_value, facts.round.events))
    computed = tuple(map(location_value, bundle.logs))
    yield compare(StepName.EVENT_PLACES, expected, computed, is_final=facts.is_final)


_FIELDS = {
    StepName.HEAD: "path.links",
    StepName.CONFIGURATION: "configuration",
    StepName.SEED: "seed",
    StepName.COMMITTEE: "committee",
    StepName.BANS: "bans",
    StepName.OPENED_BLOCK: "opened_block",
    StepName.EVENT_PLACES: "logs",
}
"""The field behind each step that may have nothing to compare with."""

_PLACES = (
    *("genesis_hash", "opened_block", "blocks.number", "blocks.hash"),
    *("transactions.hash", "transactions.block_number"),
    *("logs.block_number", "logs.block_hash", "logs.transaction_hash", "logs.log_index"),
)


def _unchecked(
    bundle: RoundBundle, trusted: Trusted | None, steps: list[VerificationStep]
) -> Iterator[UncheckedField]:
    """Yield the fields that could be different in a bundle with the same outcome."""
    for step in steps:
        if step.is_ok is None and step.name in _FIELDS:
            yield UncheckedField(_FIELDS[step.name], "nothing that is trusted contains its value")
    links, reached = len(bundle.path.links), _reached(bundle, trusted)
    if reached < links:
        after = f"the last {links - reached} of {links} come after what is trusted"
        yield UncheckedField("path.links", after)
    if not isinstance(trusted, TrustedContract):
        for field in _PLACES:
            yield UncheckedField(field, "only against other fields: a head has no places")
    yield UncheckedField("blocks.parent_hash", "only where the bundle holds the block before")
    yield UncheckedField("transactions.input", "only the bytes that the contract reads")


def _reached(bundle: RoundBundle, trusted: Trusted | None) -> int:
    """Return how many links of the path lead to what is trusted; 0 if none is known to."""
    heads, end = bundle.path.heads, bundle.links_to_end
    match trusted:
        case TrustedContract(round=round_):
            return end if heads[end] == round_.head else 0
        case TrustedHead(head):
            return heads.index(head, end) if head in heads[end:] else 0
        case None:
            return 0


class RecordingBlobs:
    """A blob store that is read through."""

    def __init__(self, blobs: BlobReader) -> None:
        self.read: set[Digest] = set()
        self._blobs = blobs

    def get(self, digest: Digest, limit: int = MAX_BLOB_BYTES) -> bytes:
        """Return the blob with this digest, verified, and note that it was there."""
        data = self._blobs.get(digest, limit)
        self.read.add(digest)
        return data

    def has(self, digest: Digest) -> bool:
        return self._blobs.has(digest)


_LACKING = {BLOB_MISSING, BLOB_UNREADABLE, MODEL_BEFORE_UNKNOWN, DISPLACEMENT_UNKNOWN}
"""What is said to be missing where a blob is not to be had that the round's truth rests on."""


@dataclass(frozen=True, slots=True)
class RoundExport:
    """A round as it was exported, and the check of it against the chain that it was read from."""

    manifest: bytes
    blobs: RecordingBlobs
    verification: RoundVerification


def export_bundle(
    ledger: CommitteeLedger, blobs: BlobReader, round_number: int, path: Path
) -> RoundVerification:
    """Write a round's bundle into a file, whole or not at all; return the check of the round.

    A file of that name is replaced.
    """
    export = prepare_export(ledger, blobs, round_number)
    write_container(path, export.manifest, export.blobs.read, export.blobs)
    return export.verification


def prepare_export(
    ledger: CommitteeLedger, blobs: BlobReader, round_number: int, *, whole: bool = True
) -> RoundExport:
    """Return a round's bundle, of which nothing is written yet.

    What belongs to it is what checking it reads, so that nothing can be forgotten.

    Args:
        whole: let the path begin with the run and end with the newest head; see `make_bundle`.
    """
    noting = RecordingBlobs(blobs)
    bundle = make_bundle(ledger, noting, round_number, whole=whole)
    verification = verify_bundle(bundle, noting, read_trusted_contract(ledger, round_number))
    for step in verification.audit:
        for lacking in step.missing:
            if lacking.need in _LACKING:
                raise BlobMissingError(
                    f"round {round_number} cannot be exported: {lacking.sentence}"
                )
    return RoundExport(manifest_bytes(bundle), noting, verification)
