"""What actors see of a real contract, of a mailbox and of blobs that may not be there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from ledger.actors import observer
from ledger.actors.observer import (
    OVERSIZED_BYTES,
    Observer,
    PublishedBlobs,
    model_of_round,
)
from ledger.protocol.documents.envelope import Envelope, EnvelopeKind, PublishedPayload
from ledger.protocol.encoding import sha256, vector_bytes, vector_from_bytes
from ledger.protocol.errors import BlobError, BlobUnreachableError
from ledger.protocol.payloads import Payload
from ledger.protocol.rules import direction
from ledger.protocol.types import ClientId, Digest, Domain
from tests.actors.deployed import Deployed, in_memory
from tests.actors.support import PARAMETERS, initial_model


def test_sees_no_commitment_in_a_block_that_is_not_final(deployed: Deployed) -> None:
    deployed.commit(*deployed.chain_view().participants().active)
    context = replace(deployed.context, finality_blocks=1)
    chain = Observer(context).chain()
    assert chain is not None
    assert chain.commitments == ()
    assert chain.inputs() is None
    deployed.context.ledger.mine(1)
    chain = Observer(context).chain()
    assert chain is not None
    assert chain.inputs() is not None


def test_sees_envelopes_on_arrival_and_payloads_when_stored(deployed: Deployed) -> None:
    view = deployed.closed()
    assert deployed.observer.look(view) is view
    client = view.inputs.participants.trainers[0]
    payload = deployed.payload(client)
    envelope = Envelope(view.inputs.domain, 1, client, PublishedPayload(sha256(payload)))
    deployed.context.mailbox.put(envelope)
    announced = deployed.observer.look(view)
    assert announced.announced == {client: sha256(payload)}
    assert announced.usable == ()
    deployed.context.blobs.put(payload)
    assert deployed.observer.look(announced).usable == (client,)


def test_mail_read_before_failure_stays(
    deployed: Deployed, monkeypatch: pytest.MonkeyPatch
) -> None:
    view = deployed.closed()
    deployed.publish(*view.inputs.participants.active)
    listed = deployed.context.mailbox.listed

    def breaks_off(
        domain: Domain, number: int, kind: EnvelopeKind, start: int = 0
    ) -> Sequence[Envelope]:
        if kind is EnvelopeKind.REPLY:
            raise OSError("the mailbox does not answer")
        return listed(domain, number, kind, start)

    with monkeypatch.context() as failing:
        failing.setattr(deployed.context.mailbox, "listed", breaks_off)
        with pytest.raises(OSError, match="does not answer"):
            deployed.observer.look(view)
    assert len(deployed.observer.look(view).usable) == 12


def test_a_damaged_or_oversized_payload_is_not_held(deployed: Deployed) -> None:
    trainers = deployed.chain_view().participants().trainers
    deployed.payloads[trainers[0]] = bytes(OVERSIZED_BYTES + 1)
    deployed.payloads[trainers[1]] = bytes(OVERSIZED_BYTES)
    view = deployed.closed()
    deployed.publish(*view.inputs.participants.active)
    digest = sha256(deployed.payload(trainers[2]))
    deployed.blobs.put_payload(Payload(b"damaged", digest))
    seen = deployed.observer.look(view)
    assert trainers[0] not in seen.evidence.payloads
    assert trainers[1] in seen.evidence.payloads
    assert trainers[2] not in seen.evidence.payloads
    assert set(trainers[3:]) <= set(seen.usable)


def test_silent_store_blocks_no_other_blob(
    deployed: Deployed, monkeypatch: pytest.MonkeyPatch
) -> None:
    view = deployed.closed()
    active = view.inputs.participants.active
    deployed.publish(*active)
    get, asked = deployed.blobs.get, list[Digest]()
    silent = {sha256(deployed.payload(client)) for client in active}

    def answer(digest: Digest, limit: int) -> bytes:
        asked.append(digest)
        if digest in silent:
            raise BlobUnreachableError("no answer for 10 s")
        return get(digest, limit)

    monkeypatch.setattr(deployed.blobs, "get", answer)
    view = deployed.observer.look(view)
    assert len(asked) == 1
    # One of them can never be read, whichever it is.
    silent = {asked[0]}
    view = deployed.observer.look(view)
    assert len(view.usable) == 11
    silent = set()
    assert len(deployed.observer.look(view).usable) == 12


def test_round_is_open_until_decided_and_none_after_the_last(deployed: Deployed) -> None:
    for number in (1, 2, 3):
        assert deployed.context.is_open(number)
        deployed.ban(ClientId(number))
        deployed.play()
        assert not deployed.context.is_open(number)
        # Who has read on from block to block sees what a newcomer sees.
        assert deployed.observer.chain() == Observer(deployed.context).chain()
    assert deployed.observer.chain() is None
    assert deployed.observer.final == deployed.context.ledger.state()


def test_the_model_is_the_one_that_the_contract_names(deployed: Deployed) -> None:
    assert np.array_equal(deployed.observer.model(), initial_model())
    deployed.play()
    digest = deployed.context.ledger.state().model
    assert sha256(deployed.observer.model().tobytes()) == digest
    deployed.blobs.put_payload(Payload(b"damaged", digest))
    with pytest.raises(BlobError, match="damaged"):
        Observer(deployed.context).model()


# The two models of a travel, as actors find them: on a chain, after a restart, and not at all.


SHORT = 2


@pytest.fixture
def along(monkeypatch: pytest.MonkeyPatch) -> Deployed:
    """A run of five rounds on the memory ledger whose distances follow the way of two."""
    monkeypatch.setattr(direction, "WINDOW", SHORT)
    monkeypatch.setattr(observer, "WINDOW", SHORT)
    return in_memory(replace(PARAMETERS, rounds=5, strategy=3))


def model_after(deployed: Deployed, round_number: int) -> NDArray[np.float32]:
    event = deployed.decided(round_number)
    if event is None:
        return model_after(deployed, round_number - 1) if round_number else initial_model()
    return vector_from_bytes(deployed.blobs.get(event.model), 8)


def abandoned(deployed: Deployed) -> None:
    """Let the open round end without a decision."""
    deployed.driver.abandon(deployed.chain_view())


def test_members_follow_the_way_from_so_many_rounds_before(along: Deployed) -> None:
    assert along.observer.travel(1) is None
    for number in range(1, 5):
        if number == 2:
            abandoned(along)
        else:
            assert along.play() is not None
        before = model_after(along, max(0, number - 2))
        found = along.observer.travel(number + 1)
        assert found is not None
        assert np.array_equal(found, before - model_after(along, number))
        view = along.closed()
        assert view.evidence.displacement is found
        again = Observer(along.context).travel(number + 1)
        assert np.array_equal(found, again)  # type: ignore[arg-type]


def test_the_model_of_round_is_the_last_decided_before_it(along: Deployed) -> None:
    first = along.context.ledger.deployment().model
    assert model_of_round(along.context.ledger, 1) == first
    for _ in range(3):
        abandoned(along)
    assert model_of_round(along.context.ledger, 3) == first
    assert along.play() is not None
    event = along.decided(4)
    assert event is not None
    assert model_of_round(along.context.ledger, 4) == first
    assert model_of_round(along.context.ledger, 5) == event.model


def test_without_the_older_model_nobody_scores(along: Deployed) -> None:
    along.play()
    along.blobs.remove(along.context.ledger.deployment().model)
    with pytest.raises(BlobError, match="missing"):
        along.closed()


def test_where_nothing_is_stored_a_window_of_models_is_held(along: Deployed) -> None:
    context, published = along.context, PublishedBlobs()
    held, forgetful = (Observer(context, published, remembers=one) for one in (True, False))
    for number in range(1, 5):
        for models in (held, forgetful):
            models.model()
        if number == 2:
            abandoned(along)
        else:
            along.play()
    held.model()
    forgetful.model()
    expected = along.observer.travel(5)
    for model in {vector_bytes(model_after(along, number)) for number in range(4)}:
        along.blobs.remove(sha256(model))
    again = held.travel(5)
    assert expected is not None
    assert again is not None
    assert np.array_equal(again, expected)
    with pytest.raises(BlobError):
        forgetful.travel(5)
    assert len(held._models) == 3
    assert len(forgetful._models) == 1
