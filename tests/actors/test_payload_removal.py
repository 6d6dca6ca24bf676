"""Old payloads go, and nothing else does: neither what newer rounds share nor any document."""

from __future__ import annotations

from typing import TYPE_CHECKING

from clients.adversaries.faults import MemberFault
from ledger.actors.retention import PayloadRemover, blobs_named_by_run
from ledger.protocol.consensus import primary_seat
from ledger.protocol.documents.incidents import decode_incidents
from ledger.protocol.documents.record import decode_record
from ledger.protocol.encoding import sha256, vector_bytes
from ledger.protocol.types import Phase
from tests.actors.support import initial_model

if TYPE_CHECKING:
    from ledger.protocol.ledger_state import RoundDecided
    from ledger.protocol.types import ClientId, Digest
    from tests.actors.deployed import Deployed


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
    old = PayloadRemover(deployed.context, 1)
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
    PayloadRemover(deployed.context, 1).ended(3, ())
    assert gone_of(deployed, first) == payloads_of(deployed, first).keys()
    assert gone_of(deployed, second) == payloads_of(deployed, second).keys()
    assert gone_of(deployed, third) == set()


def test_a_payload_shared_with_a_retained_round_stays(deployed: Deployed) -> None:
    trainers = deployed.chain_view().participants().active
    shared = deployed.payload(trainers[0])
    old = PayloadRemover(deployed.context, 1)
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
    PayloadRemover(deployed.context, 1).ended(3, ())
    assert all(deployed.blobs.has(copy) for copy in copies)
    assert len(gone_of(deployed, second)) == 12 - len(copies)


def test_what_another_run_in_the_store_names_stays(deployed: Deployed) -> None:
    first = play(deployed)
    pinned = blobs_named_by_run(deployed.context.ledger, deployed.blobs)
    assert pinned >= {first.model, first.record, *payloads_of(deployed, first).values()}
    second = play(deployed)
    play(deployed)
    PayloadRemover(deployed.context, 1, pinned).ended(3, ())
    assert gone_of(deployed, first) == set()
    assert gone_of(deployed, second) == payloads_of(deployed, second).keys()


def test_an_abandoned_round_loses_the_payloads_published_here(deployed: Deployed) -> None:
    view = deployed.closed()
    deployed.publish(*view.inputs.participants.active)
    published = [sha256(deployed.payload(client)) for client in view.inputs.participants.active]
    old = PayloadRemover(deployed.context, 1)
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
    PayloadRemover(deployed.context, 1).ended(2, ())
    assert all(deployed.blobs.has(payload) for payload in named.values())
    assert gone_of(deployed, second) == set()
    assert deployed.blobs.has(sha256(vector_bytes(initial_model())))
