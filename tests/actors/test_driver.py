"""What actors ask for is carried out in order, durable first, and no refusal is an error."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from ledger.actors.driver import Driver
from ledger.actors.steps import (
    Action,
    JudgementCache,
    PostEnvelope,
    SendCommitment,
    SendDecision,
    StoreBlobs,
    decision_of,
    settlement_of,
)
from ledger.actors.view import RoundView
from ledger.protocol.documents.envelope import Envelope, PublishedPayload
from ledger.protocol.encoding import sha256
from ledger.protocol.errors import JournalError, RefusalCode
from ledger.protocol.ledger_state import RoundAbandoned
from ledger.protocol.payloads import Payload
from ledger.protocol.types import NO_DIGEST, ClientId
from ledger.storage.blobs import MemoryBlobs
from ledger.storage.mailbox import Mailbox
from tests.actors.deployed import Deployed
from tests.actors.support import PARAMETERS, signed_commitment
from tests.support.refusals import refused


@dataclass
class Log:
    """What left in which order: a journal, a store and a mailbox in one."""

    happened: list[str] = field(default_factory=list)
    is_broken: bool = False

    def record(self, _place: bytes, statement: bytes) -> bytes:
        return statement

    def sync(self) -> None:
        self.happened.append("synced")
        if self.is_broken:
            raise JournalError("the disk is full")


class LoggedBlobs(MemoryBlobs):
    """Blobs that tell when they are stored."""

    def __init__(self, log: Log) -> None:
        super().__init__()
        self._log = log

    def put_payload(self, payload: Payload) -> None:
        self._log.happened.append("stored")
        super().put_payload(payload)

    def sync(self) -> None:
        self._log.happened.append("durable")


class LoggedMailbox(Mailbox):
    """A mailbox that tells when something is put into it."""

    def __init__(self, log: Log, mailbox: Mailbox, *, is_shared: bool) -> None:
        super().__init__(mailbox.objects)
        self._log = log
        self.is_shared = is_shared

    def put(self, envelope: Envelope) -> bool:
        self._log.happened.append("posted")
        return super().put(envelope)


def logged(deployed: Deployed, *, is_shared: bool = True) -> tuple[Driver, Log]:
    log = Log()
    context = replace(
        deployed.context,
        journal=log,
        blobs=LoggedBlobs(log),
        mailbox=LoggedMailbox(log, deployed.context.mailbox, is_shared=is_shared),
    )
    return Driver(context), log


def envelope_for(deployed: Deployed, client: int = 0) -> Envelope:
    body = PublishedPayload(sha256(b"payload"))
    return Envelope(deployed.context.domain, 1, ClientId(client), body)


def settled(deployed: Deployed, *absent: ClientId) -> tuple[RoundView, SendDecision]:
    """Return a round of which everything is said, and the decision that follows."""
    view = deployed.closed(*absent)
    deployed.publish(*sorted(view.inputs.participants.expected - set(absent)))
    members, now = deployed.members(view), view.closed_at
    while (settlement := settlement_of(view, JudgementCache())) is None:
        view = deployed.observer.look(view)
        said: list[Action] = [
            action
            for member in members
            for action in member.step(view, now)
            if not isinstance(action, SendDecision)
        ]
        if not deployed.driver.apply(said):
            times = [t for one in members if (t := one.next_time(view, now)) is not None]
            now = min(times)
    decision = decision_of(view, settlement, NO_DIGEST)
    return view, SendDecision(view.inputs.round, *decision)


def head_of(deployed: Deployed) -> int:
    return deployed.context.ledger.newest_block().number


# Order.


def test_the_journal_is_synced_before_anything_leaves(deployed: Deployed) -> None:
    driver, log = logged(deployed)
    store = StoreBlobs((Payload.of(b"blob"),))
    assert driver.apply([store, PostEnvelope(envelope_for(deployed))])
    assert log.happened == ["synced", "stored", "durable", "posted"]


def test_local_mail_waits_for_no_disk_but_a_transaction_does(
    deployed: Deployed, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver, log = logged(deployed, is_shared=False)
    ledger = deployed.context.ledger
    commit = ledger.commit_updates

    def logged_commit(*arguments: Any) -> object:
        log.happened.append("sent")
        return commit(*arguments)

    monkeypatch.setattr(ledger, "commit_updates", logged_commit)
    store = StoreBlobs((Payload.of(b"record"),), {ClientId(0): Payload.of(b"update")})
    assert driver.apply([store, PostEnvelope(envelope_for(deployed))])
    assert log.happened == ["synced", "stored", "posted"]
    # Neither mail nor a document nor a payload that is there leaves the process.
    assert driver.apply([store, PostEnvelope(envelope_for(deployed, 1))])
    assert log.happened[3:] == ["posted"]
    assert driver.apply(deployed.commitments(deployed.chain_view().participants().active[0]))
    assert log.happened[4:] == ["synced", "stored", "durable", "sent"]


def test_documents_of_an_abandoned_round_are_stored(deployed: Deployed) -> None:
    driver, log = logged(deployed, is_shared=False)
    document = Payload.of(b"record")
    assert not driver.apply([StoreBlobs((document,))])
    assert log.happened == []
    assert driver.abandon(deployed.chain_view())
    assert log.happened == ["synced", "stored"]


def test_nothing_leaves_if_the_journal_cannot_be_synced(deployed: Deployed) -> None:
    driver, log = logged(deployed)
    log.is_broken = True
    before = head_of(deployed)
    chain = deployed.chain_view()
    client = chain.participants().trainers[0]
    actions = [*deployed.commitments(client), PostEnvelope(envelope_for(deployed))]
    with pytest.raises(JournalError, match="disk is full"):
        driver.apply(actions)
    assert log.happened == ["synced"]
    assert head_of(deployed) == before


def test_a_blob_removed_after_an_abandoned_round_is_stored_again(deployed: Deployed) -> None:
    payload = Payload.of(b"the same in every round")
    store = StoreBlobs(payloads={ClientId(0): payload})
    deployed.driver.apply([store])
    deployed.driver.abandon(deployed.chain_view())
    deployed.context.blobs.remove(payload.digest)
    deployed.driver.apply([store])
    assert deployed.context.blobs.has(payload.digest)


# Commitments.


def test_commitments_that_are_taken_already_change_nothing(deployed: Deployed) -> None:
    active = deployed.chain_view().participants().active
    actions = deployed.commitments(*active)
    assert deployed.driver.apply(actions[:5])
    assert deployed.driver.apply(actions)  # the other seven
    before = head_of(deployed)
    assert not deployed.driver.apply(actions)
    assert head_of(deployed) <= before + 1
    assert len(deployed.chain_view().commitments) == 12


@pytest.mark.parametrize("places", [(0,), (4,), (11,), (0, 5, 6)])
def test_refused_commitments_spoil_no_batch(deployed: Deployed, places: tuple[int, ...]) -> None:
    chain, before = deployed.chain_view(), head_of(deployed)
    active = chain.participants().active
    actions = deployed.commitments(*active)
    for place in places:
        forged = signed_commitment(chain, active[place], sha256(b"forged"), key=active[place - 1])
        actions[place] = SendCommitment(forged)
    assert deployed.driver.apply(actions)
    taken = [mined.client for mined in deployed.chain_view().commitments]
    assert taken == [client for place, client in enumerate(active) if place not in places]
    # The window is four blocks: they must not be spent on finding out who it was.
    assert head_of(deployed) == before + 2


# Reports and decisions.


def test_a_decision_is_brought_and_a_second_one_refused(deployed: Deployed) -> None:
    _, decision = settled(deployed)
    assert deployed.driver.apply([decision])
    assert deployed.decided(1) is not None
    assert not deployed.driver.apply([decision])
    assert deployed.context.ledger.state().round == 2


def test_a_refused_decision_is_no_error_and_the_next_counts(deployed: Deployed) -> None:
    _, decision = settled(deployed)
    wrong = replace(decision, decision=replace(decision.decision, record=NO_DIGEST))
    assert not deployed.driver.apply([wrong])
    assert deployed.decided(1) is None
    assert deployed.driver.apply([wrong, decision])
    assert deployed.decided(1) is not None


def test_a_decision_with_dropouts_waits_until_the_window_has_passed(deployed: Deployed) -> None:
    # All commit in one block, so that the window is still open, and one publishes nothing.
    chain = deployed.chain_view()
    silent = chain.participants().trainers[0]
    deployed.payloads[silent] = b"malformed"
    _, decision = settled(deployed)
    last = chain.opened_block + chain.parameters.commit_blocks
    assert len(decision.decision.ranking) == 6
    assert head_of(deployed) < last
    assert deployed.driver.apply([decision])
    assert deployed.context.ledger.state().opened_block == last + 1


# Blocks and deadlines.


def test_a_round_is_abandoned_at_its_deadline_and_no_earlier(deployed: Deployed) -> None:
    chain = deployed.chain_view()
    with refused(RefusalCode.DEADLINE_NOT_REACHED):
        deployed.context.ledger.abandon_round(1)
    deployed.driver.abandon(chain)
    state = deployed.context.ledger.state()
    assert state.round == 2
    assert state.opened_block == chain.opened_block + chain.parameters.deadline_blocks
    (event,) = [found.event for found in deployed.context.ledger.round_events(1)]
    assert isinstance(event, RoundAbandoned)


def shared(deployed: Deployed) -> Driver:
    return Driver(deployed.context, mines=False)


def test_on_shared_chain_decisions_with_dropouts_wait_for_the_window(deployed: Deployed) -> None:
    absent = min(deployed.chain_view().participants().trainers)
    view, decision = settled(deployed, absent)
    ledger, driver = deployed.context.ledger, shared(deployed)
    opened = ledger.state().opened_block
    while ledger.newest_block().number < opened + PARAMETERS.commit_blocks:
        before = ledger.newest_block()
        assert not driver.send([decision])
        assert ledger.newest_block() == before, "nothing was sent, and no block was made"
        ledger.mine(1)
    assert driver.send([decision])
    assert ledger.state().round == view.inputs.round + 1
    before = ledger.newest_block()
    assert not driver.send([decision]), "it has been decided"
    assert ledger.newest_block() == before


def test_on_shared_chain_round_is_abandoned_once_at_its_deadline(deployed: Deployed) -> None:
    chain, ledger, driver = deployed.observer.chain(), deployed.context.ledger, shared(deployed)
    assert chain is not None
    assert not driver.abandon(chain)
    assert ledger.newest_block().number == chain.final_block, "nothing was sent"
    ledger.mine(PARAMETERS.deadline_blocks)
    assert driver.abandon(chain)
    before = ledger.newest_block()
    assert not driver.abandon(chain)
    assert ledger.newest_block() == before


def test_on_a_shared_chain_recorded_transactions_are_not_sent_again(deployed: Deployed) -> None:
    chain, ledger, driver = deployed.observer.chain(), deployed.context.ledger, shared(deployed)
    assert chain is not None
    able = sorted(chain.participants().expected)
    words = [SendCommitment(signed_commitment(chain, c, sha256(b"%d" % c))) for c in able]
    forged = SendCommitment(signed_commitment(chain, able[2], sha256(b"forged"), key=able[3]))
    assert driver.send([*words[:2], forged])
    assert [mined.client for mined in ledger.commitments(1)] == able[:2]
    before = ledger.newest_block()
    assert not driver.send(words[:2])
    assert not driver.send([forged])
    assert ledger.newest_block() == before
    assert driver.send(words)
    assert [mined.client for mined in ledger.commitments(1)] == able


def test_a_late_second_decision_keeps_the_next_round_its_window(deployed: Deployed) -> None:
    chain = deployed.chain_view()
    silent = chain.participants().trainers[0]
    deployed.payloads[silent] = b"malformed"
    _, decision = settled(deployed)
    assert deployed.driver.apply([decision, decision, decision])
    opened = deployed.chain_view()
    assert opened.round == 2
    assert opened.takes_commitments
    assert head_of(deployed) <= opened.opened_block + 2  # the refused ones
