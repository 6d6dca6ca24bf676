"""Which blobs stay is a machine's choice: what is written and when; the decision is the same."""

from __future__ import annotations

from dataclasses import replace

import pytest

from clients.adversaries.faults import MemberFault
from ledger.actors.driver import Driver
from ledger.actors.observer import Observer, PublishedBlobs
from ledger.actors.retention import (
    MAX_RETAINED_ROUNDS,
    RETAIN_ALL,
    RETAIN_NOTHING,
    PayloadRemover,
    RetentionPolicy,
    StoredBlobs,
    blobs_named_by_run,
    retention_policy_of,
)
from ledger.protocol.documents.record import decode_incidents, decode_record
from ledger.protocol.encoding import sha256, vector_bytes
from ledger.protocol.errors import ConfigurationError
from ledger.protocol.inputs import primary_seat
from ledger.protocol.ledger_state import RoundDecided
from ledger.protocol.types import ClientId, Digest, Phase
from ledger.storage.blobs import MemoryBlobs
from tests.actors.deployed import Deployed
from tests.actors.support import initial_model


class SyncedBlobs(MemoryBlobs):
    """Blobs that tell what was there at each sync."""

    def __init__(self) -> None:
        super().__init__()
        self.synced: list[set[Digest]] = []

    def sync(self) -> None:
        self.synced.append(set(self.digests()))


def played(deployed: Deployed, keep: RetentionPolicy) -> tuple[SyncedBlobs, RoundDecided]:
    """Play a round by a process with a store of its own, which holds the first model."""
    blobs, published = SyncedBlobs(), PublishedBlobs()
    blobs.put(vector_bytes(initial_model()))
    one = Deployed(replace(deployed.context, blobs=blobs), blobs)
    one.driver, one.observer = (
        Driver(one.context, published, keep),
        Observer(one.context, published),
    )
    decided = one.play()
    assert decided is not None
    assert sha256(one.observer.model().tobytes()) == decided.model
    return blobs, decided


def test_all_is_written_unless_less_is_asked_for(deployed: Deployed) -> None:
    blobs, decided = played(deployed, RETAIN_ALL)
    record = decode_record(blobs.get(decided.record))
    assert all(blobs.has(payload) for payload in record.payloads().values())
    assert blobs.has(decided.model)


def test_only_accepted_payloads_are_written_before_the_decision_leaves(deployed: Deployed) -> None:
    blobs, decided = played(deployed, RetentionPolicy(StoredBlobs.ACCEPTED))
    record = decode_record(blobs.get(decided.record))
    kept = {client for client, payload in record.payloads().items() if blobs.has(payload)}
    assert kept == set(decided.accepted)
    assert 0 < len(kept) < len(record.clients)
    assert blobs.has(decided.model)
    assert all(blobs.has(signed.scores.digest) for signed in record.scores)
    payloads = {record.payloads()[client] for client in decided.accepted}
    *earlier, last = blobs.synced
    assert last == set(blobs.digests()), "whatever is written is durable when the decision leaves"
    assert not any(payloads & synced for synced in earlier)


def test_nothing_is_written_for_a_ledger_in_memory(deployed: Deployed) -> None:
    blobs, _ = played(deployed, RETAIN_NOTHING)
    assert list(blobs.digests()) == [sha256(vector_bytes(initial_model()))]


def test_shared_mail_requires_every_blob_to_be_stored(deployed: Deployed) -> None:
    mailbox = deployed.context.mailbox
    mailbox.is_shared = True
    Driver(deployed.context, keep=RetentionPolicy(rounds=1))
    for keep in (RetentionPolicy(StoredBlobs.ACCEPTED), RETAIN_NOTHING):
        with pytest.raises(ValueError, match=f"keep = {keep.stored}: other processes"):
            Driver(deployed.context, keep=keep)


@pytest.mark.parametrize("setting", ["", "nothing", "2", 0, -1, MAX_RETAINED_ROUNDS + 1, True])
def test_another_setting_is_refused(setting: str | int) -> None:
    with pytest.raises(ConfigurationError, match=f"keep = {setting!r}: must be 'all', 'accepted'"):
        retention_policy_of(setting)


# Old payloads go, and nothing else does: neither what newer rounds share nor any document.


def play(deployed: Deployed, faults: dict[int, MemberFault] | None = None) -> RoundDecided:
    decided = deployed.play(faults)
    assert decided is not None
    return decided


def payloads_of(deployed: Deployed, decided: RoundDecided) -> dict[ClientId, Digest]:
    record = decode_record(deployed.blobs.get(decided.record))
    malformed = {d.client: d.payload for d in record.dropouts if d.payload is not None}
    return malformed | record.payloads()


def gone_of(deployed: Deployed, decided: RoundDecided) -> set[ClientId]:
    named = payloads_of(deployed, decided)
    return {client for client, digest in named.items() if not deployed.blobs.has(digest)}


def test_only_the_newest_rounds_keep_their_payloads(deployed: Deployed) -> None:
    old = PayloadRemover(deployed.context.ledger, deployed.context.blobs, 1)
    documents = {deployed.context.ledger.deployment().model}
    rounds: list[RoundDecided] = []
    for number in (1, 2, 3):
        rounds.append(play(deployed))
        documents |= {rounds[-1].model, rounds[-1].record}
        old.ended(number, ())
        assert gone_of(deployed, rounds[-1]) == set()
        for before in rounds[:-1]:
            assert gone_of(deployed, before) == payloads_of(deployed, before).keys()
    assert all(deployed.blobs.has(document) for document in documents)


def test_a_resumed_run_removes_what_a_killed_one_left(deployed: Deployed) -> None:
    first, second = play(deployed), play(deployed)
    third = play(deployed)
    left = next(iter(payloads_of(deployed, first).values()))
    deployed.blobs.remove(left)  # killed at its removal
    PayloadRemover(deployed.context.ledger, deployed.context.blobs, 1).ended(3, ())
    assert gone_of(deployed, first) == payloads_of(deployed, first).keys()
    assert gone_of(deployed, second) == payloads_of(deployed, second).keys()
    assert gone_of(deployed, third) == set()


def test_a_payload_shared_with_a_retained_round_stays(deployed: Deployed) -> None:
    trainers = deployed.chain_view().participants().active
    shared = deployed.payload(trainers[0])
    old = PayloadRemover(deployed.context.ledger, deployed.context.blobs, 1)
    first = play(deployed)
    old.ended(1, ())
    again = deployed.chain_view().participants().active[0]
    deployed.payloads = {again: shared}
    second = play(deployed)
    old.ended(2, ())
    assert payloads_of(deployed, second)[again] == sha256(shared)
    assert gone_of(deployed, first) == payloads_of(deployed, first).keys() - {trainers[0]}
    deployed.payloads = {}
    play(deployed)
    old.ended(3, ())
    assert not deployed.blobs.has(sha256(shared))


def test_publishing_a_copy_of_a_document_does_not_remove_it(deployed: Deployed) -> None:
    chain = deployed.chain_view()
    primary = primary_seat(chain.seed, Phase.AGGREGATION, 0, len(chain.committee))
    first = play(deployed, {primary: MemberFault.WRONG_PROPOSAL})
    incidents = decode_incidents(deployed.blobs.get(first.incidents)).incidents
    (accusing,) = [one.opening.record for one in incidents if one.opening is not None]
    score = decode_record(deployed.blobs.get(first.record)).scores[0].scores.digest
    deployment = deployed.context.ledger.deployment()
    models = [deployment.model, first.model]  # usable updates; the others are malformed
    copies = [*models, first.record, deployment.config, score, accusing]
    active = deployed.chain_view().participants()
    copying = (*active.trainers[:4], *active.members[:2])
    deployed.payloads = {
        client: deployed.blobs.get(copy) for client, copy in zip(copying, copies, strict=True)
    }
    second = play(deployed)
    assert set(copies) <= set(payloads_of(deployed, second).values())
    deployed.payloads = {}
    play(deployed)
    PayloadRemover(deployed.context.ledger, deployed.context.blobs, 1).ended(3, ())
    assert all(deployed.blobs.has(copy) for copy in copies)
    assert len(gone_of(deployed, second)) == 12 - len(copies)


def test_what_another_run_in_the_store_names_stays(deployed: Deployed) -> None:
    first = play(deployed)
    pinned = blobs_named_by_run(deployed.context.ledger, deployed.blobs)
    assert pinned >= {first.model, first.record, *payloads_of(deployed, first).values()}
    second = play(deployed)
    play(deployed)
    PayloadRemover(deployed.context.ledger, deployed.context.blobs, 1, pinned).ended(3, ())
    assert gone_of(deployed, first) == set()
    assert gone_of(deployed, second) == payloads_of(deployed, second).keys()


def test_an_abandoned_round_loses_the_payloads_published_here(deployed: Deployed) -> None:
    view = deployed.closed()
    deployed.publish(*view.inputs.participants.active)
    published = [sha256(deployed.payload(client)) for client in view.inputs.participants.active]
    old = PayloadRemover(deployed.context.ledger, deployed.context.blobs, 1)
    deployed.driver.abandon(deployed.chain_view())
    old.ended(1, published)
    assert all(deployed.blobs.has(payload) for payload in published)
    second = play(deployed)
    old.ended(2, payloads_of(deployed, second).values())
    assert not any(deployed.blobs.has(payload) for payload in published)
    assert gone_of(deployed, second) == set()


def test_where_a_record_is_gone_its_payloads_stay(deployed: Deployed) -> None:
    first, second = play(deployed), play(deployed)
    named = payloads_of(deployed, first)
    deployed.blobs.remove(first.record)
    PayloadRemover(deployed.context.ledger, deployed.context.blobs, 1).ended(2, ())
    assert all(deployed.blobs.has(payload) for payload in named.values())
    assert gone_of(deployed, second) == set()
    assert deployed.blobs.has(sha256(vector_bytes(initial_model())))
