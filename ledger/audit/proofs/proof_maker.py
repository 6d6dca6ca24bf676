"""Makes the proof of what became of a client, from the chain and what was published."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace

from ledger.audit.proofs.proof import (
    ClientProof,
    ClientStatement,
    ClientVerdict,
    CommittedDecision,
    HeadPath,
    ProvenRole,
    RoundBasis,
    derive_statement,
)
from ledger.audit.proofs.trust import bans_before, commitments_of, end_of, location_of, until_end
from ledger.chain.addresses import to_canonical
from ledger.chain.contract.codec import CommitCall
from ledger.chain.contract.ledger import CommitteeLedger
from ledger.chain.round_ledger import RecordedEvent
from ledger.protocol import merkle
from ledger.protocol.canonical import MAX_DOCUMENT_BYTES
from ledger.protocol.documents.record import decode_record
from ledger.protocol.documents.run import decode_run
from ledger.protocol.encoding import word_client
from ledger.protocol.errors import BlobError, ChainError, ConfigurationError, EncodingError
from ledger.protocol.fold import LedgerView, RoundStart, links_of
from ledger.protocol.judgement import sets_of, update_leaves
from ledger.protocol.ledger_state import (
    Deployment,
    Event,
    RoundAbandoned,
    RoundDecided,
    UpdatesCommitted,
)
from ledger.protocol.types import Address, ClientId
from ledger.storage.blobs import BlobReader

LOG_BATCH_BLOCKS = 512
_UNCLAIMED = ClientStatement(ClientVerdict.OPEN, ProvenRole.NOT_SAMPLED, has_committed=False)


@dataclass(frozen=True, slots=True)
class _Round:
    """The events of a round that has opened."""

    opening: RoundStart
    recorded: list[RecordedEvent]

    @property
    def end(self) -> RecordedEvent | None:
        """The decision or abandonment; None while it is open."""
        return end_of(self.recorded)


class _Rounds:
    """The rounds that one proof speaks of, each read once."""

    def __init__(self, ledger: CommitteeLedger) -> None:
        self.deployment = ledger.deployment()
        self._ledger = ledger
        self._known: dict[int, _Round | None] = {}

    def find(self, number: int) -> _Round | None:
        """Return what the chain holds of a round, None if it has not opened."""
        if number not in self._known:
            opening = self._opening(number)
            events = [] if opening is None else self._ledger.round_events(number)
            self._known[number] = None if opening is None else _Round(opening, events)
        return self._known[number]

    def _opening(self, number: int) -> RoundStart | None:
        before = self._known.get(number - 1)
        if before is not None and before.end is not None:
            return RoundStart.of(before.end.event, before.end.block_number)
        return self._ledger.opening(number) if number > 0 else None


def make_proof(
    ledger: CommitteeLedger,
    blobs: BlobReader,
    round_number: int,
    client: ClientId,
    *,
    whole: bool = False,
) -> ClientProof:
    """Return the proof of what became of a client in a round, as of the chain's present head.

    Args:
        whole: let the path begin with the run and end with the newest head, so that any later
            head that somebody kept will do; it is then as long as the run. Else it is as long as
            the round and the one before.
    """
    rounds = _Rounds(ledger)
    basis = _basis(ledger, rounds, blobs, round_number, whole=whole)
    clients = basis.deployment.clients
    if client >= clients:
        raise ConfigurationError(f"there is no client {client}: the run has {clients}")
    round_ = rounds.find(round_number)
    assert round_ is not None, "there is no basis of a round that has not opened"
    recorded_at = _commitment_of(round_, client)
    end = round_.end
    decided = end.event if end is not None and isinstance(end.event, RoundDecided) else None
    proof = ClientProof(
        **{field.name: getattr(basis, field.name) for field in fields(RoundBasis)},
        client=client,
        commitments=commitments_of(until_end(round_.recorded))[0],
        decision=None if decided is None else _decision_of(decided, rounds.deployment),
        record=None,
        payload=None,
        siblings=None,
        signature=None if recorded_at is None else _signature(ledger, recorded_at, client),
        committed_at=None if recorded_at is None else location_of(recorded_at),
        ended_at=None if end is None else location_of(end),
        statement=_UNCLAIMED,
    )
    if decided is not None:
        proof = _with_record(proof, decided, blobs)
    return replace(proof, statement=derive_statement(proof))


def make_basis(
    ledger: CommitteeLedger, blobs: BlobReader, round_number: int, *, whole: bool = False
) -> RoundBasis:
    """Return the basis of a round, as of the chain's present head."""
    return _basis(ledger, _Rounds(ledger), blobs, round_number, whole=whole)


def _basis(
    ledger: CommitteeLedger, rounds: _Rounds, blobs: BlobReader, round_number: int, *, whole: bool
) -> RoundBasis:
    """Return the basis of a round; see `make_basis`."""
    sizes = rounds.deployment
    round_ = rounds.find(round_number) if 0 < round_number <= sizes.rounds else None
    if round_ is None or len(round_.opening.committee) < sizes.members:
        raise ConfigurationError(f"round {round_number} has not opened (T = {sizes.rounds})")
    configuration = blobs.get(sizes.config, MAX_DOCUMENT_BYTES)
    decode_run(configuration)
    first = max(1, round_number - 1)
    path = _whole_path(ledger, sizes) if whole else _path_between(rounds, first, round_number)
    return RoundBasis(
        chain_id=ledger.chain.chain_id,
        contract=Address(to_canonical(ledger.address)),
        deployment_parent_hash=ledger.deployment_parent_hash(),
        genesis_hash=ledger.chain.genesis_hash,
        round=round_number,
        configuration=configuration,
        path=path,
        seed=round_.opening.seed,
        committee=round_.opening.committee,
        bans=bans_before(ledger, round_number),
    )


def path_between(ledger: CommitteeLedger, first: int, last: int) -> HeadPath:
    """Return the way from the head that a round opened with to the end of a later one."""
    return _path_between(_Rounds(ledger), first, last)


def _path_between(rounds: _Rounds, first: int, last: int) -> HeadPath:
    before, start = rounds.find(first - 1), rounds.deployment.config
    if before is not None and before.end is not None:
        event = before.end.event
        assert isinstance(event, RoundDecided | RoundAbandoned), "no other event ends a round"
        start = event.head
    candidates = map(rounds.find, range(first, last + 1))
    opened = [round_ for round_ in candidates if round_ is not None]
    events = [each.event for round_ in opened for each in until_end(round_.recorded)]
    view = replace(LedgerView.at_deployment(rounds.deployment), head=start)
    return HeadPath(start, tuple(links_of(view.started(opened[0].opening), events)))


def _decision_of(event: RoundDecided, sizes: Deployment) -> CommittedDecision:
    derived = sets_of(sizes, event.ranking)
    is_drawn = len(derived.candidates) > sizes.members
    return CommittedDecision(
        ranking=event.ranking,
        model=event.model,
        updates_root=event.updates_root,
        scores_root=event.scores_root,
        reveal=event.reveal,
        record=event.record,
        views=event.views,
        signers=event.signers,
        incidents=event.incidents,
        next_seed=event.next_seed if is_drawn else None,
    )


def _with_record(proof: ClientProof, event: RoundDecided, blobs: BlobReader) -> ClientProof:
    """Return the proof with what only the record says: of a ranked trainer its leaf alone."""
    try:
        data = blobs.get(event.record, MAX_DOCUMENT_BYTES)
        record = decode_record(data)
    except (BlobError, EncodingError):
        return proof  # which says that it lacks the record
    payloads = record.payloads()
    ranked = [word_client(word) for word in event.ranking]
    if proof.client in ranked and payloads.keys() >= set(ranked):
        leaves = update_leaves(event.ranking, event.accepted, payloads)
        leaf = leaves[ranked.index(proof.client)]
        siblings = merkle.proof(merkle.UPDATE_LEAF, leaves, leaf)
        return replace(proof, payload=payloads[proof.client], siblings=siblings)
    payload = record.named_payloads().get(proof.client)
    if proof.client not in proof.participants.active:
        return proof
    return replace(proof, record=data, payload=None if proof.commitment is None else payload)


def _whole_path(ledger: CommitteeLedger, deployment: Deployment) -> HeadPath:
    links = links_of(LedgerView.at_deployment(deployment), _events(ledger))
    return HeadPath(deployment.config, tuple(links))


def _events(ledger: CommitteeLedger) -> Iterator[Event]:
    newest = ledger.chain.head().number
    for first in range(ledger.from_block, newest + 1, LOG_BATCH_BLOCKS):
        for recorded in ledger.recorded_in(first, min(first + LOG_BATCH_BLOCKS - 1, newest)):
            yield recorded.event


def _commitment_of(found: _Round, client: ClientId) -> RecordedEvent | None:
    """Return the event with a client's commitment; None if the contract took none."""
    for recorded in found.recorded:
        if isinstance(recorded.event, UpdatesCommitted) and client in recorded.event.clients:
            return recorded
    return None


def _signature(ledger: CommitteeLedger, recorded: RecordedEvent, client: ClientId) -> bytes | None:
    """Return the client's signature out of call data; None where they do not say it."""
    event = recorded.event
    assert isinstance(event, UpdatesCommitted), "only a commitment is signed like this"
    commitment = event.commitments[event.clients.index(client)]
    try:
        call = ledger.call_of(recorded.transaction_hash)
    except ChainError:  # nodes may drop the index of old transactions
        return None
    for signed in call.signed if isinstance(call, CommitCall) else ():
        promised = signed.commitment
        if (promised.client, promised.commitment) == (client, commitment):
            return signed.signature
    return None
