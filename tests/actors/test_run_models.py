"""The two models of a travel, as actors find them: on a chain, after a restart, and not at all."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from ledger.actors import run_models
from ledger.actors.actions import ActorContext
from ledger.actors.journal import MemoryJournal
from ledger.actors.observer import Observer
from ledger.actors.published_blobs import PublishedBlobs
from ledger.actors.run_models import RunModels, model_of_round
from ledger.chain.memory import memory_ledger
from ledger.protocol.documents.run import RunDocument
from ledger.protocol.encoding import sha256, vector_bytes, vector_from_bytes
from ledger.protocol.errors import BlobError
from ledger.protocol.rules import direction
from ledger.storage.blobs import MemoryBlobs
from ledger.storage.mailbox import MemoryMailbox
from tests.actors.deployed import Deployed
from tests.actors.support import LAYOUT, PARAMETERS, initial_model, registry_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ledger.protocol.parameters import Parameters

SHORT = 2


@pytest.fixture
def along(monkeypatch: pytest.MonkeyPatch) -> Deployed:
    """A run of five rounds on the memory ledger whose distances follow the way of two."""
    monkeypatch.setattr(direction, "WINDOW", SHORT)
    monkeypatch.setattr(run_models, "WINDOW", SHORT)
    return in_memory(replace(PARAMETERS, rounds=5, strategy=3))


def in_memory(parameters: Parameters) -> Deployed:
    blobs = MemoryBlobs()
    model = blobs.put(vector_bytes(initial_model()))
    ledger = memory_ledger(RunDocument(parameters, registry_of(parameters), model, LAYOUT, {}))
    context = ActorContext(
        parameters=parameters,
        layout=LAYOUT,
        domain=ledger.domain,
        ledger=ledger,
        blobs=blobs,
        mailbox=MemoryMailbox(),
        journal=MemoryJournal(),
    )
    return Deployed(context, blobs)


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
    held, forgetful = (RunModels(context, published, remembers=one) for one in (True, False))
    for number in range(1, 5):
        for models in (held, forgetful):
            models.newest()
        if number == 2:
            abandoned(along)
        else:
            along.play()
    held.newest()
    forgetful.newest()
    expected = along.observer.travel(5)
    for model in {vector_bytes(model_after(along, number)) for number in range(4)}:
        along.blobs.remove(sha256(model))
    again = held.travel(5)
    assert expected is not None
    assert again is not None
    assert np.array_equal(again, expected)
    with pytest.raises(BlobError):
        forgetful.travel(5)
    assert len(held._held) == 3
    assert len(forgetful._held) == 1
