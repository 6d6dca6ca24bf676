"""A board keeps what is put there, once and in order, by contract, round and kind."""

from __future__ import annotations

from dataclasses import replace

from ledger.protocol.documents.envelope import Envelope, EnvelopeKind, PublishedPayload, Reply
from ledger.protocol.types import ClientId, Digest, Phase, SignedVote, Vote, VoteKind
from ledger.storage.mailbox import MemoryMailbox
from tests.actors.support import DOMAIN

PAYLOADS = tuple(
    Envelope(DOMAIN, 1, ClientId(client), PublishedPayload(Digest(bytes([client]) * 32)))
    for client in range(3)
)
ZERO = Digest(bytes(32))
VOTE = Vote(VoteKind.REPLY, 1, Phase.AGGREGATION, 0, ZERO, ZERO, ZERO)
REPLY = Envelope(DOMAIN, 1, ClientId(0), Reply(SignedVote(ClientId(0), VOTE, bytes(65))))


def filled() -> MemoryMailbox:
    mailbox = MemoryMailbox()
    for envelope in (*PAYLOADS, REPLY):
        assert mailbox.put(envelope)
    return mailbox


def test_lists_what_was_put_in_the_order_in_which_it_came() -> None:
    mailbox = filled()
    assert mailbox.listed(DOMAIN, 1, EnvelopeKind.PAYLOAD) == list(PAYLOADS)
    assert mailbox.listed(DOMAIN, 1, EnvelopeKind.PAYLOAD, 2) == [PAYLOADS[2]]
    assert mailbox.listed(DOMAIN, 1, EnvelopeKind.PAYLOAD, 3) == []
    assert mailbox.listed(DOMAIN, 1, EnvelopeKind.REPLY) == [REPLY]


def test_says_that_the_same_envelope_is_not_new() -> None:
    mailbox = filled()
    assert not mailbox.put(PAYLOADS[1])
    assert mailbox.listed(DOMAIN, 1, EnvelopeKind.PAYLOAD) == list(PAYLOADS)


def test_keeps_contracts_rounds_and_kinds_apart() -> None:
    mailbox = filled()
    elsewhere = replace(DOMAIN, chain_id=1)
    assert mailbox.listed(elsewhere, 1, EnvelopeKind.PAYLOAD) == []
    assert mailbox.listed(DOMAIN, 2, EnvelopeKind.PAYLOAD) == []
    assert mailbox.listed(DOMAIN, 1, EnvelopeKind.SCORES) == []
    assert mailbox.put(replace(PAYLOADS[0], domain=elsewhere))
    assert mailbox.put(replace(PAYLOADS[0], round=2))


def test_forgets_the_rounds_of_one_contract_that_are_over() -> None:
    mailbox, elsewhere = filled(), replace(DOMAIN, chain_id=1)
    mailbox.put(replace(PAYLOADS[0], round=2))
    mailbox.put(replace(PAYLOADS[0], domain=elsewhere))
    mailbox.forget(DOMAIN, 2)
    assert mailbox.listed(DOMAIN, 1, EnvelopeKind.PAYLOAD) == []
    assert mailbox.listed(DOMAIN, 1, EnvelopeKind.REPLY) == []
    assert len(mailbox.listed(DOMAIN, 2, EnvelopeKind.PAYLOAD)) == 1
    assert len(mailbox.listed(elsewhere, 1, EnvelopeKind.PAYLOAD)) == 1
