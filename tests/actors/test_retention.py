"""Which blobs stay is a machine's choice: what is written and when; the decision is the same."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from ledger.actors.driver import Driver
from ledger.actors.observer import Observer
from ledger.actors.published_blobs import PublishedBlobs
from ledger.actors.retention import (
    MAX_RETAINED_ROUNDS,
    RETAIN_ALL,
    RETAIN_NOTHING,
    RetentionPolicy,
    StoredBlobs,
    retention_policy_of,
)
from ledger.protocol.documents.record import decode_record
from ledger.protocol.encoding import sha256, vector_bytes
from ledger.protocol.errors import ConfigurationError
from ledger.storage.blobs import MemoryBlobs
from tests.actors.deployed import Deployed
from tests.actors.support import initial_model

if TYPE_CHECKING:
    from ledger.protocol.ledger_state import RoundDecided
    from ledger.protocol.types import Digest


class SyncedBlobs(MemoryBlobs):
    """Blobs that tell what was there at each sync.

    Attributes:
        synced: the names of all blobs, each time.
    """

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
