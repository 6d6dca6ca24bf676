"""A contract's record of a round, and the proofs and bundles made of it."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields, replace
from functools import cache, cached_property

from ledger.audit.proofs import proof as parts
from ledger.audit.proofs.proof import ClientProof, HeadPath, RoundBasis, RoundBundle
from ledger.audit.replay import LOG_BATCH_BLOCKS
from ledger.chain.contract.codec import CommitCall
from ledger.chain.contract.deploy import code_violation
from ledger.chain.contract.ledger import CommitteeLedger
from ledger.chain.ports import LogQuery, UncheckableCreationError
from ledger.chain.round_ledger import ENDS, RecordedEvent
from ledger.protocol.canonical import MAX_DOCUMENT_BYTES
from ledger.protocol.documents.record import decode_record
from ledger.protocol.documents.run import decode_run
from ledger.protocol.encoding import UPDATE_LEAF, merkle_proof, to_canonical, word_client
from ledger.protocol.errors import BlobError, ChainError, ConfigurationError, EncodingError
from ledger.protocol.judgement import sets_of, update_leaves
from ledger.protocol.ledger_state import (
    Deployment,
    LedgerView,
    RoundAbandoned,
    RoundDecided,
    RoundStart,
    links_of,
    mined_commitments,
)
from ledger.protocol.types import Address, ClientId, Digest, Domain
from ledger.storage.blobs import BlobReader

_UNCLAIMED = parts.ClientStatement(
    parts.ClientVerdict.OPEN, parts.ProvenRole.NOT_SAMPLED, has_committed=False
)


@dataclass(frozen=True)
class RecordedRound:
    """A round as the contract's events record it."""

    opening: RoundStart | None  # how it began; None if it has not
    events: tuple[RecordedEvent, ...]  # those of the round up to its end, in the chain's order

    @classmethod
    def read(cls, ledger: CommitteeLedger, number: int) -> RecordedRound:
        opening = ledger.opening(number) if number > 0 else None
        events = () if opening is None else tuple(ledger.round_events(number))
        ends = (i for i, each in enumerate(events) if isinstance(each.event, ENDS))
        return cls(opening, events[: next(ends, len(events)) + 1])

    @property
    def end(self) -> RecordedEvent | None:
        return next((each for each in self.events[-1:] if isinstance(each.event, ENDS)), None)

    @property
    def decided(self) -> RoundDecided | None:
        event = None if self.end is None else self.end.event
        return event if isinstance(event, RoundDecided) else None

    @property
    def head(self) -> Digest | None:
        event = None if self.end is None else self.end.event
        return event.head if isinstance(event, RoundDecided | RoundAbandoned) else None

    @cached_property
    def committed(self) -> tuple[tuple[parts.RecordedCommitment, RecordedEvent], ...]:
        return tuple(
            (parts.RecordedCommitment(mined.client, mined.commitment), each)
            for each in self.events
            for mined in mined_commitments(each.event, each.block_number)
        )

    @property
    def commitments(self) -> tuple[parts.RecordedCommitment, ...]:
        return tuple(made for made, _ in self.committed)


@dataclass(frozen=True, slots=True)
class TrustedContract:
    """A round as a contract on a trusted chain reports it."""

    domain: Domain
    genesis_hash: bytes
    deployment: Deployment
    code_doubt: str  # why code or creation there are not the ledger's; empty if they are
    code_unchecked: str  # why the creation is not checkable; empty if it is
    round: RecordedRound
    bans: tuple[parts.RecordedBan, ...]  # from before the round opened, in the chain's order
    is_final: bool  # whether the chain cannot take any of this back


def read_trusted_contract(ledger: CommitteeLedger, round_number: int) -> TrustedContract:
    """Return a round as a contract reports it."""
    chain, domain = ledger.chain, ledger.domain()
    deployment, final = ledger.deployment(), chain.finalized()
    round_ = RecordedRound.read(ledger, round_number)
    newest = chain.head().number if round_.end is None else round_.end.block_number
    doubt, unchecked = "", ""
    try:
        doubt = code_violation(ledger, deployment, domain) or ""
    except UncheckableCreationError as error:
        unchecked = str(error)
    return TrustedContract(
        domain=domain,
        genesis_hash=chain.genesis_hash,
        deployment=deployment,
        code_doubt=doubt,
        code_unchecked=unchecked,
        round=round_,
        bans=_bans_before(ledger, round_number),
        is_final=newest <= final,
    )


def _bans_before(ledger: CommitteeLedger, round_number: int) -> tuple[parts.RecordedBan, ...]:
    bans = (parts.RecordedBan(event.round, event.client) for event in ledger.bans())
    return tuple(ban for ban in bans if ban.round < round_number)


def _location_of(recorded: RecordedEvent) -> parts.EventLocation:
    where = recorded.block_number, recorded.block_hash, recorded.transaction_hash
    return parts.EventLocation(*where, recorded.log_index)


class _Rounds:
    """The rounds of one proof or bundle, each read once."""

    def __init__(self, ledger: CommitteeLedger) -> None:
        self.deployment = ledger.deployment()
        self.find = cache(lambda number: RecordedRound.read(ledger, number))
        self._ledger = ledger

    def basis(self, blobs: BlobReader, round_number: int, *, whole: bool) -> RoundBasis:
        ledger, sizes = self._ledger, self.deployment
        opening = self.find(round_number).opening if round_number <= sizes.rounds else None
        if opening is None or len(opening.committee) < sizes.members:
            raise ConfigurationError(f"round {round_number} has not opened (T = {sizes.rounds})")
        configuration = blobs.get(sizes.config, MAX_DOCUMENT_BYTES)
        decode_run(configuration)
        first = max(1, round_number - 1)
        return RoundBasis(
            chain_id=ledger.chain.chain_id,
            address=Address(to_canonical(ledger.address)),
            deployed_after=ledger.deployment_parent_hash(),
            genesis_hash=ledger.chain.genesis_hash,
            round=round_number,
            configuration=configuration,
            path=self._whole_path() if whole else self.path(first, round_number),
            seed=opening.seed,
            committee=opening.committee,
            bans=_bans_before(ledger, round_number),
        )

    def _whole_path(self) -> HeadPath:
        ledger, newest = self._ledger, self._ledger.chain.head().number
        events = (
            recorded.event
            for first in range(ledger.from_block, newest + 1, LOG_BATCH_BLOCKS)
            for recorded in ledger.recorded_in(first, min(first + LOG_BATCH_BLOCKS - 1, newest))
        )
        view = LedgerView.at_deployment(self.deployment)
        return HeadPath(self.deployment.config, tuple(links_of(view, events)))

    def path(self, first: int, last: int) -> HeadPath:
        start = self.find(first - 1).head or self.deployment.config
        rounds = [self.find(number) for number in range(first, last + 1)]
        opening = rounds[0].opening
        assert opening is not None, "a round before one that has opened was opened"
        view = replace(LedgerView.at_deployment(self.deployment), head=start).started(opening)
        events = (each.event for round_ in rounds for each in round_.events)
        return HeadPath(start, tuple(links_of(view, events)))

    def decided_before(self, number: int) -> RoundDecided | None:
        decisions = (self.find(earlier).decided for earlier in range(number - 1, 0, -1))
        return next(filter(None, decisions), None)


def make_proof(
    ledger: CommitteeLedger,
    blobs: BlobReader,
    round_number: int,
    client: ClientId,
    *,
    whole: bool = False,
) -> ClientProof:
    """Return the proof of what became of a client in a round, as of the chain's present head.

    If `whole`, the path begins with the run and ends with the newest head: any later head proves
    it. Else the path covers the round and the one before.
    """
    rounds = _Rounds(ledger)
    basis = rounds.basis(blobs, round_number, whole=whole)
    clients = basis.deployment.clients
    if client >= clients:
        raise ConfigurationError(f"there is no client {client}; the run has {clients} clients")
    round_ = rounds.find(round_number)
    own = next((taken for taken in round_.committed if taken[0].client == client), None)
    decided = round_.decided
    proof = ClientProof(
        **basis.parts(),
        client=client,
        commitments=round_.commitments,
        decision=None if decided is None else _committed_part(decided, rounds.deployment),
        signature=None if own is None else _signature(ledger, *own),
        committed_at=None if own is None else _location_of(own[1]),
        ended_at=None if round_.end is None else _location_of(round_.end),
        statement=_UNCLAIMED,
    )
    if decided is not None:
        proof = _with_record(proof, decided, blobs)
    return replace(proof, statement=parts.derive_statement(proof))


def _committed_part(event: RoundDecided, sizes: Deployment) -> parts.CommittedDecision:
    is_drawn = len(sets_of(sizes, event.ranking).candidates) > sizes.members
    own = {field.name: getattr(event, field.name) for field in fields(parts.CommittedDecision)}
    own["next_seed"] = event.next_seed if is_drawn else None
    return parts.CommittedDecision(**own)


def _with_record(proof: ClientProof, event: RoundDecided, blobs: BlobReader) -> ClientProof:
    """Return the proof with the record's part: only the leaf of a ranked trainer."""
    try:
        data = blobs.get(event.record, MAX_DOCUMENT_BYTES)
        record = decode_record(data)
    except (BlobError, EncodingError):
        return proof  # a caveat names the missing record
    payloads = record.payloads()
    ranked = [word_client(word) for word in event.ranking]
    if proof.client in ranked and payloads.keys() >= set(ranked):
        leaves = update_leaves(event.ranking, event.accepted, payloads)
        siblings = merkle_proof(UPDATE_LEAF, leaves, leaves[ranked.index(proof.client)])
        return replace(proof, payload=payloads[proof.client], siblings=siblings)
    if proof.client not in proof.participants.active:
        return proof
    payload = record.named_payloads().get(proof.client)
    return replace(proof, record=data, payload=None if proof.commitment is None else payload)


def _signature(
    ledger: CommitteeLedger, own: parts.RecordedCommitment, recorded: RecordedEvent
) -> bytes | None:
    try:
        call = ledger.call_of(recorded.transaction_hash)
    except ChainError:  # nodes may drop the index of old transactions
        return None
    for signed in call.signed if isinstance(call, CommitCall) else ():
        if (signed.commitment.client, signed.commitment.commitment) == own:
            return signed.signature
    return None


def make_bundle(
    ledger: CommitteeLedger, blobs: BlobReader, round_number: int, *, whole: bool = False
) -> RoundBundle:
    """Return what the chain holds of a round, and of its beginning as in `make_proof`."""
    rounds, chain = _Rounds(ledger), ledger.chain
    basis, round_ = rounds.basis(blobs, round_number, whole=whole), rounds.find(round_number)
    if basis.path.ended(round_number) is None:
        raise ConfigurationError(f"round {round_number} has not ended, so it has no bundle")
    events = [rounds.decided_before(number) for number in parts.rounds_of_models(basis)]
    earlier = tuple(dict.fromkeys(event for event in events if event is not None))
    if not whole:
        first = 1 if None in events else min(event.round for event in earlier)
        basis = replace(basis, path=rounds.path(first, round_number))
    assert round_.opening is not None, "a round that has ended was opened"
    places = {(each.block_number, each.log_index) for each in round_.events}
    opened, last = round_.opening.opened_block, max(block for block, _ in places)
    found = chain.logs(LogQuery(ledger.address, [], opened, last))
    logs = tuple(log for log in found if (log.block_number, log.log_index) in places)
    if len(logs) != len(places):
        raise ChainError("the chain does not contain the events of a round that it returned")
    numbers = dict.fromkeys(log.block_number for log in logs)
    transactions = map(chain.transaction, dict.fromkeys(log.transaction_hash for log in logs))
    return RoundBundle(
        **basis.parts(),
        opened_block=opened,
        earlier=tuple(parts.EarlierDecision(**asdict(e.opening()), round=e.round) for e in earlier),
        blocks=tuple(replace(chain.block(number), timestamp=0) for number in numbers),
        transactions=tuple(replace(each, sender="", nonce=0) for each in transactions),
        logs=logs,
    )
