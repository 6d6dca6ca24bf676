"""The audit of one round from a bundle, and the export of bundles.

The round's beginning - model, seed, committee, bans, head - follows from the path of heads, or from
the contract that is trusted; from there on the same replay, checker and steps judge as in `audit`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from eth_utils.address import to_checksum_address

from ledger.audit.bundles.bundle import (
    BundleChain,
    EarlierDecision,
    RoundBundle,
    manifest_bytes,
    rounds_of_models,
)
from ledger.audit.bundles.container import BundleFile, write_container
from ledger.audit.checks.all_checks import run_checks
from ledger.audit.checks.blobs import BLOB_MISSING, BLOB_UNREADABLE, MODEL_BEFORE_UNKNOWN
from ledger.audit.checks.scores import DISPLACEMENT_UNKNOWN
from ledger.audit.observations import Observation, ReplayedRound, RunStart
from ledger.audit.proofs.proof_maker import make_basis, path_between
from ledger.audit.proofs.trust import (
    Caveat,
    StepName,
    Trusted,
    TrustedContract,
    TrustedHead,
    VerificationStep,
    compare,
    compare_with_chain,
    end_of,
    final_trust,
    location_value,
    log_location,
    outcome_of,
    read_trusted_contract,
    verify_basis,
)
from ledger.audit.replay import ReadingEndedError, Replay
from ledger.audit.report import AuditOutcome, Finding, Reported, StepOutcome, StepReport, shown
from ledger.audit.result_log import AuditLog
from ledger.audit.round_checker import EvidenceReader, RoundChecker, RoundTask
from ledger.chain.contract.codec import decode_log
from ledger.chain.contract.ledger import CommitteeLedger
from ledger.chain.ports import Log, LogQuery
from ledger.distances.fast import fast_distances, usable_cores
from ledger.io.user_code import use_rules
from ledger.protocol.encoding import aggregation_result, to_hex
from ledger.protocol.errors import BlobMissingError, ChainError, ConfigurationError
from ledger.protocol.ledger_state import (
    ClientBanned,
    LedgerStage,
    LedgerState,
    RoundAbandoned,
    RoundDecided,
    UpdatesCommitted,
)
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
        outcomes = {outcome_of(self.steps), *(_OUTCOMES[step.outcome] for step in self.audit)}
        order = AuditOutcome.FAILED, AuditOutcome.INCOMPLETE, AuditOutcome.PASSED
        return next(outcome for outcome in order if outcome in outcomes)

    @property
    def sentence(self) -> str:
        return _SENTENCES[self.outcome].format(self.round)

    def as_dict(self) -> dict[str, Any]:
        """Return it as plain data for JSON."""
        head = {"round": self.round, "outcome": str(self.outcome), "sentence": self.sentence}
        parts = ("steps", "audit", "findings", "counts", "caveats", "unchecked")
        return head | {name: shown(getattr(self, name)) for name in parts}


_OUTCOMES = {
    StepOutcome.PASSED: AuditOutcome.PASSED,
    StepOutcome.FAILED: AuditOutcome.FAILED,
    StepOutcome.NOT_CHECKABLE: AuditOutcome.INCOMPLETE,
}


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
        use_rules(bundle.basis.document.parameters, rules)
    trusted = final_trust(bundle.basis, trusted)
    steps = [*verify_basis(bundle.basis, trusted), *_of_earlier(bundle)]
    if isinstance(trusted, TrustedContract):
        steps += _of_places(bundle, trusted)
    noting = RecordingBlobs(blobs)
    noting.read.add(bundle.basis.config)
    compute = distances or fast_distances(usable_cores())
    audit = _RoundAudit(bundle, trusted, RoundChecker(noting, compute, rules=rules))
    audit.read()
    end = bundle.basis.path.end_of(bundle.basis.round)
    assert end is not None, "a bundle is of a round that has ended"
    head = bundle.basis.path.heads[end + 1]
    steps.append(compare(StepName.REPLAYED_HEAD, to_hex(head), to_hex(audit.head)))
    if isinstance(blobs, BundleFile):
        vain = tuple(to_hex(digest) for digest in blobs.digests() if digest not in noting.read)
        steps.append(compare(StepName.PARTS, (), vain))
    return RoundVerification(
        round=bundle.basis.round,
        steps=tuple(steps),
        audit=audit.log.steps(),
        findings=tuple(audit.log.findings),
        counts={str(count): n for count, n in sorted(audit.log.counts.items()) if n},
        caveats=tuple(_caveats(trusted)),
        unchecked=tuple(_unchecked(bundle, trusted, steps)),
    )


class _RoundAudit:
    """The audit of one round, from where it began.

    Attributes:
        head: of the ledger, after the round's transactions.
    """

    def __init__(self, bundle: RoundBundle, trusted: Trusted | None, checker: RoundChecker) -> None:
        self.log = AuditLog()
        self._bundle = bundle
        self._is_final = not isinstance(trusted, TrustedContract) or trusted.is_final
        self._start = _start_of(bundle, trusted)
        self._reader = EvidenceReader(self._start)
        self._reader.ended = bundle.basis.round - 1
        self._checker = checker
        self._state = _state_of(bundle)
        self.head = self._state.head

    def read(self) -> None:
        """Replay the round's transactions, and let every step judge what they did."""
        ledger = CommitteeLedger(
            BundleChain(self._bundle), self._start.address, self._bundle.opened_block
        )
        replay = Replay(ledger, self._state)
        self._judge(self._start)
        try:
            for observation in replay.observe(self._bundle.blocks[-1].number):
                if isinstance(observation, ReplayedRound):
                    self._check(observation)
                else:
                    self._judge(observation)
        except ReadingEndedError as ended:
            self._judge(ended.observed)
        self.head = replay.state.head

    def _check(self, replayed: ReplayedRound) -> None:
        for item in self._reader.observe(replayed, is_trusted=False):
            if not isinstance(item, RoundTask):
                self._judge(item)
                continue
            task = replace(item, origin=self._origin())
            checked = self._checker.check(task)
            for step, result in checked.results:
                self.log.take(step, result, is_final=self._is_final)
            self.log.counts["blobs"] += checked.blobs_read
            self.log.counts["bytes"] += checked.bytes_read

    def _origin(self) -> Digest | None:
        rounds = rounds_of_models(self._bundle.basis)
        return self._bundle.model_at(rounds[1]) if len(rounds) > 1 else None

    def _judge(self, seen: Observation) -> None:
        for step, result in run_checks(seen):
            self.log.take(step, result, is_final=self._is_final)


def _start_of(bundle: RoundBundle, trusted: Trusted | None) -> RunStart:
    """Return what the run starts from; what was deployed is what the contract says, if one does.

    Where a head is trusted it commits to the configuration, and the replay recomputes all that the
    contract's code does.
    """
    basis = bundle.basis
    facts = trusted if isinstance(trusted, TrustedContract) else None
    return RunStart(
        block=bundle.opened_block,
        domain=basis.domain,
        address=to_checksum_address(basis.contract),
        recorded=basis.deployment if facts is None else facts.deployment,
        document=basis.document,
        lost=None,
        malformed="",
        deployment=basis.deployment,
        is_possible=True,
        code="" if facts is None else facts.code_doubt,
        model=None,
    )


def _state_of(bundle: RoundBundle) -> LedgerState:
    """Return the contract's state as the round opened."""
    basis = bundle.basis
    place = basis.path_to_end.end_of(basis.round - 1)
    opening = 0 if place is None else place + 1
    return LedgerState(
        deployment=basis.deployment,
        domain=basis.domain,
        stage=LedgerStage.OPEN,
        round=basis.round,
        opened_block=bundle.opened_block,
        seed=basis.seed,
        committee=basis.committee,
        model=bundle.model_at(basis.round),
        head=basis.path.heads[opening],
        registry_rest=NO_DIGEST,
        registry=basis.registry,
        committed=frozenset(),
        commitments=NO_DIGEST,
    )


def _of_earlier(bundle: RoundBundle) -> Iterator[VerificationStep]:
    """Yield whether the models that came before are those that were voted for."""
    preimages = {one.round: one.opening for one in bundle.earlier}
    for link in bundle.needed():
        opened = aggregation_result(preimages[link.round])
        yield compare(StepName.EARLIER_RESULT, to_hex(link.result), to_hex(opened))


def _of_places(bundle: RoundBundle, facts: TrustedContract) -> Iterator[VerificationStep]:
    """Yield whether the chain that is trusted holds every event where the bundle says."""
    opened = None if facts.opening is None else facts.opening.opened_block
    yield compare_with_chain(StepName.OPENED_BLOCK, opened, bundle.opened_block, facts)
    expected = tuple(map(location_value, facts.places))
    computed = tuple(location_value(log_location(log)) for log in bundle.logs)
    yield compare_with_chain(StepName.EVENT_PLACES, expected, computed, facts)


def _caveats(trusted: Trusted | None) -> Iterator[Caveat]:
    match trusted:
        case None:
            yield Caveat.NOTHING_TRUSTED
        case TrustedHead():
            yield Caveat.PLACES_UNPROVEN
            yield Caveat.CLOSING_CERTIFIED
        case TrustedContract():
            if not trusted.is_final:
                yield Caveat.NOT_FINAL


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
    "genesis_hash",
    "opened_block",
    "blocks.number",
    "blocks.hash",
    "transactions.hash",
    "transactions.block_number",
    "logs.block_number",
    "logs.block_hash",
    "logs.transaction_hash",
    "logs.log_index",
)


def _unchecked(
    bundle: RoundBundle, trusted: Trusted | None, steps: list[VerificationStep]
) -> Iterator[UncheckedField]:
    """Yield the fields that could be different in a bundle with the same outcome."""
    for step in steps:
        if step.is_ok is None and step.name in _FIELDS:
            yield UncheckedField(_FIELDS[step.name], "nothing that is trusted contains its value")
    links, reached = len(bundle.basis.path.links), _reached(bundle, trusted)
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
    path = bundle.basis.path
    end = path.end_of(bundle.basis.round)
    assert end is not None, "a bundle is of a round that has ended"
    match trusted:
        case TrustedContract(ended=ended):
            return end + 1 if path.heads[end + 1] == ended else 0
        case TrustedHead(head):
            later = path.heads[end + 1 :]
            return end + 1 + later.index(head) if head in later else 0
        case None:
            return 0


class RecordingBlobs:
    """A blob store that is read through."""

    def __init__(self, blobs: BlobReader) -> None:
        self.read: set[Digest] = set()
        self._blobs = blobs

    def get(self, digest: Digest, limit: int = MAX_BLOB_BYTES) -> bytes:
        """Return the blob with this digest, verified, and note that it was there.

        Args:
            digest: sha256 of the blob.
            limit: largest size that is accepted, in bytes.

        Returns:
            The bytes.
        """
        data = self._blobs.get(digest, limit)
        self.read.add(digest)
        return data

    def has(self, digest: Digest) -> bool:
        return self._blobs.has(digest)


_LACKING = {BLOB_MISSING, BLOB_UNREADABLE, MODEL_BEFORE_UNKNOWN, DISPLACEMENT_UNKNOWN}
"""What is said to be missing where a blob is not to be had that the round's truth rests on."""
_OF_A_ROUND = (UpdatesCommitted, ClientBanned, RoundDecided, RoundAbandoned)


@dataclass(frozen=True, slots=True)
class RoundExport:
    """A round as it was exported.

    Attributes:
        manifest: the bytes of `bundle.json`.
        verification: the result of checking it against the chain that it was read from.
    """

    manifest: bytes
    blobs: RecordingBlobs
    verification: RoundVerification


def export_bundle(
    ledger: CommitteeLedger, blobs: BlobReader, round_number: int, path: Path
) -> RoundVerification:
    """Write a round's bundle into a file: whole, or not at all.

    Args:
        path: of the file; one of that name is replaced.

    Returns:
        The result of checking the round against the chain that it was read from.
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


def make_bundle(
    ledger: CommitteeLedger, blobs: BlobReader, round_number: int, *, whole: bool = False
) -> RoundBundle:
    """Return what the chain holds of a round, and what its beginning follows from.

    Args:
        whole: let the path begin with the run and end with the newest head, so that any later
            head that somebody kept will do. Else it reaches back to the models that are needed.
    """
    basis = make_basis(ledger, blobs, round_number, whole=whole)
    if basis.path.ended(round_number) is None:
        raise ConfigurationError(f"round {round_number} has not ended: there is no bundle of it")
    events = [_decided_before(ledger, number) for number in rounds_of_models(basis)]
    earlier = tuple(dict.fromkeys(event for event in events if event is not None))
    if not whole:
        first = 1 if None in events else min(event.round for event in earlier)
        path = path_between(ledger, first, round_number)
        basis = replace(basis, path=path)
    opening = ledger.opening(round_number)
    assert opening is not None, "a round that has ended was opened"
    logs = _logs(ledger, round_number, opening.opened_block)
    chain = ledger.chain
    numbers = dict.fromkeys(log.block_number for log in logs)
    hashes = dict.fromkeys(log.transaction_hash for log in logs)
    return RoundBundle(
        basis=basis,
        opened_block=opening.opened_block,
        earlier=tuple(EarlierDecision(event.round, event.opening()) for event in earlier),
        blocks=tuple(replace(chain.block(number), timestamp=0) for number in numbers),
        transactions=tuple(
            replace(chain.transaction(transaction_hash), sender="", nonce=0)
            for transaction_hash in hashes
        ),
        logs=logs,
    )


def _decided_before(ledger: CommitteeLedger, number: int) -> RoundDecided | None:
    """Return the newest decision before a round, None if there is none."""
    for earlier in range(number - 1, 0, -1):
        for recorded in ledger.round_events(earlier):
            if isinstance(recorded.event, RoundDecided):
                return recorded.event
    return None


def _logs(ledger: CommitteeLedger, number: int, opened_block: int) -> tuple[Log, ...]:
    """Return the logs of a round's events up to its end, as the chain has them."""
    recorded = ledger.round_events(number)
    last = end_of(recorded) or recorded[-1]
    end = (last.block_number, last.log_index)
    logs = tuple(
        log
        for log in ledger.chain.logs(LogQuery(ledger.address, [], opened_block, last.block_number))
        if (log.block_number, log.log_index) <= end
        and isinstance(event := decode_log(log).event, _OF_A_ROUND)
        and event.round == number
    )
    if not logs:
        raise ChainError(f"the chain does not hold the events of round {number}")
    return logs
