"""What a process hashed itself is not read again; what anybody else says is, and is verified."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ledger.actors.driver import Driver
from ledger.actors.observer import OVERSIZED_BYTES, Observer, PublishedBlobs
from ledger.actors.participants import Trainer
from ledger.actors.view import RoundView
from ledger.protocol.documents.envelope import Envelope, PublishedPayload
from ledger.protocol.encoding import sha256
from ledger.protocol.payloads import Payload
from ledger.protocol.types import ClientId, Digest
from ledger.storage.blobs import MemoryBlobs
from tests.actors.deployed import Deployed
from tests.actors.support import payload_of, signers


class Process:
    """One process: a driver and an observer that share what it has published."""

    def __init__(self, deployed: Deployed, blobs: MemoryBlobs) -> None:
        context = replace(deployed.context, blobs=blobs)
        self.deployed = deployed
        self.published = PublishedBlobs()
        self.driver = Driver(context, self.published)
        self.observer = Observer(context, self.published)

    def publish(self, view: RoundView, *clients: ClientId) -> None:
        for client in clients:
            payload = Payload.of(self.deployed.payload(client))
            self.driver.apply(Trainer(client, signers()[client], payload).publish(view))

    def say(self, view: RoundView, client: ClientId, digest: Digest) -> None:
        """Announce whatever as a client's payload."""
        envelope = Envelope(view.inputs.domain, 1, client, PublishedPayload(digest))
        self.deployed.context.mailbox.put(envelope)


class UnreadBlobs(MemoryBlobs):
    """Blobs that remember which of them were asked for."""

    def __init__(self, held: MemoryBlobs) -> None:
        super().__init__()
        self._objects = held._objects
        self.read: list[Digest] = []

    def get(self, digest: Digest, limit: int = 1 << 30) -> bytes:
        self.read.append(digest)
        return super().get(digest, limit)


class LyingBlobs(MemoryBlobs):
    """A store that gives other bytes than it was asked for, and says nothing of it."""

    def get(self, digest: Digest, limit: int = 1 << 30) -> bytes:  # noqa: ARG002
        return b"other bytes"


def test_blobs_stored_by_this_process_are_not_read_back(deployed: Deployed) -> None:
    blobs = UnreadBlobs(deployed.blobs)
    process, view = Process(deployed, blobs), deployed.closed()
    one, other = view.inputs.participants.trainers[:2]
    process.publish(view, one)
    seen = process.observer.look(view)
    assert seen.evidence.payloads[one] is process.published.payloads[one]
    assert blobs.read == []
    process.published.forget()
    process.publish(view, other)
    again = process.observer.look(process.observer.opened(view.inputs, deployed.observer.model()))
    assert set(again.evidence.payloads) == {one, other}
    assert blobs.read == [seen.evidence.payloads[one].digest]


def test_only_another_processs_model_is_read_back(deployed: Deployed) -> None:
    blobs = UnreadBlobs(deployed.blobs)
    process, first = Process(deployed, blobs), deployed.context.ledger.state().model
    assert np.array_equal(process.observer.model(), process.observer.model())
    assert blobs.read == [first]
    deployed.play()
    second = deployed.context.ledger.state().model
    process.published.take([Payload.of(deployed.blobs.get(second))])
    assert sha256(process.observer.model().tobytes()) == second
    assert blobs.read == [first]


def test_a_store_that_gives_other_bytes_is_not_believed(deployed: Deployed) -> None:
    view = deployed.closed()
    client = view.inputs.participants.trainers[0]
    deployed.publish(client)
    process = Process(deployed, LyingBlobs())
    seen = process.observer.look(view)
    assert seen.announced.keys() == {client}
    assert client not in seen.evidence.payloads
    honest = Process(deployed, deployed.blobs).observer.look(view)
    assert honest.evidence.payloads[client].digest == seen.announced[client]


def test_a_payload_that_another_announces_as_its_own_is_nobodys(deployed: Deployed) -> None:
    process, view = Process(deployed, deployed.blobs), deployed.closed()
    honest, thief = view.inputs.participants.trainers[:2]
    process.publish(view, honest)
    stolen = process.published.payloads[honest].digest
    process.say(view, thief, stolen)
    seen = process.observer.look(view)
    assert seen.evidence.payloads.keys() == seen.announced.keys() == {honest}


def test_a_digest_that_opens_the_commitment_stands_for_its_bytes(deployed: Deployed) -> None:
    # Other bytes of the same process, published under their own digest, do not take its place.
    process, view = Process(deployed, deployed.blobs), deployed.closed()
    client = view.inputs.participants.trainers[0]
    committed = sha256(deployed.payload(client))
    process.published.take([Payload.of(b"other bytes")])
    process.say(view, client, sha256(b"other bytes"))
    assert process.observer.look(view).announced == {}
    process.say(view, client, committed)
    announced = process.observer.look(view)
    assert announced.announced == {client: committed}
    assert announced.evidence.payloads == {}
    deployed.blobs.put_payload(Payload(b"other bytes", committed))
    assert process.observer.look(announced).evidence.payloads == {}
    deployed.blobs.put(deployed.payload(client))
    assert process.observer.look(announced).usable == (client,)


def test_an_oversized_payload_is_not_held_by_its_publisher_either(deployed: Deployed) -> None:
    chain = deployed.chain_view()
    large, fitting = chain.participants().trainers[:2]
    deployed.payloads = {large: bytes(OVERSIZED_BYTES + 1), fitting: bytes(OVERSIZED_BYTES)}
    process, view = Process(deployed, deployed.blobs), deployed.closed()
    process.publish(view, large, fitting)
    assert process.observer.look(view).evidence.payloads.keys() == {fitting}


def test_payloads_in_reused_memory_are_stored_as_they_were(deployed: Deployed) -> None:
    process, view = Process(deployed, deployed.blobs), deployed.closed()
    client = view.inputs.participants.trainers[0]
    row = bytearray(payload_of(1, client))
    payload = Payload.of(memoryview(row).toreadonly())
    process.driver.apply(Trainer(client, signers()[client], payload).publish(view))
    assert process.observer.look(view).usable == (client,)
    row[:] = bytes(len(row))  # the next round's training
    process.published.forget()
    again = process.observer.opened(view.inputs, deployed.observer.model())
    assert process.observer.look(again).usable == (client,)
    assert deployed.blobs.get(payload.digest) == payload_of(1, client)
