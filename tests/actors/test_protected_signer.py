"""A client signs what its journal allows, and adopts what it can be shown to have signed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ledger.actors.journal import MemoryJournal, ProtectedSigner
from ledger.protocol.documents.envelope import Body, Envelope, Proposal, PublishedPayload, Reply
from ledger.protocol.encoding import sha256
from ledger.protocol.types import (
    ClientId,
    Digest,
    Domain,
    Phase,
    Scores,
    Vote,
    VoteKind,
)
from tests.actors.support import published, signed_vote, signers
from tests.support.keys import DOMAIN

ME, ANOTHER = ClientId(4), ClientId(5)
ONE, OTHER = Digest(b"1" * 32), Digest(b"2" * 32)
VOTE = Vote(VoteKind.REPLY, 3, Phase.AGGREGATION, 2, ONE, ONE, ONE)
VECTOR = b"a vector"
SCORES = Scores(3, ME, ONE, ONE, sha256(VECTOR))


def voice() -> ProtectedSigner:
    return ProtectedSigner(ME, signers()[ME], MemoryJournal())


def envelope(body: Body, client: ClientId = ME, domain: Domain = DOMAIN) -> Envelope:
    return Envelope(domain, 3, client, body)


def test_signs_a_vote_again_but_no_other_in_its_slot() -> None:
    speaker = voice()
    signed = speaker.vote(DOMAIN, VOTE)
    assert signed == signed_vote(ME, VOTE)
    assert speaker.vote(DOMAIN, VOTE) == signed
    assert speaker.vote(DOMAIN, replace(VOTE, result=OTHER)) is None
    assert speaker.vote(DOMAIN, replace(VOTE, set_digest=OTHER)) is None
    assert speaker.vote(DOMAIN, replace(VOTE, view=3, result=OTHER)) is not None


def test_signs_a_vector_again_but_no_other_for_its_set() -> None:
    speaker = voice()
    signed = speaker.scores(DOMAIN, SCORES)
    assert signed == published(ME, SCORES, VECTOR).signed
    assert speaker.scores(DOMAIN, SCORES) == signed
    assert speaker.scores(DOMAIN, replace(SCORES, digest=OTHER)) is None
    assert speaker.scores(DOMAIN, replace(SCORES, clients=OTHER, digest=OTHER)) is not None


def test_adopts_what_it_has_said_before_its_journal_was_restored() -> None:
    speaker = voice()
    request = replace(VOTE, kind=VoteKind.REQUEST)
    speaker.adopt(
        DOMAIN,
        [
            envelope(Reply(signed_vote(ME, VOTE))),
            envelope(Proposal(signed_vote(ME, request))),
            envelope(published(ME, SCORES, VECTOR)),
            envelope(PublishedPayload(ONE)),
        ],
    )
    assert speaker.vote(DOMAIN, replace(VOTE, result=OTHER)) is None
    assert speaker.vote(DOMAIN, replace(request, result=OTHER)) is None
    assert speaker.scores(DOMAIN, replace(SCORES, digest=OTHER)) is None
    assert speaker.vote(DOMAIN, VOTE) is not None


@pytest.mark.parametrize(
    "foreign",
    [
        envelope(Reply(signed_vote(ME, VOTE)), client=ANOTHER),
        envelope(Reply(signed_vote(ME, VOTE)), domain=replace(DOMAIN, chain_id=1)),
        envelope(Reply(signed_vote(ME, VOTE, key=ANOTHER))),
        envelope(Reply(signed_vote(ME, VOTE, domain=replace(DOMAIN, chain_id=1)))),
        envelope(Proposal(signed_vote(ME, replace(VOTE, kind=VoteKind.REQUEST), key=ANOTHER))),
        envelope(published(ME, SCORES, VECTOR, key=ANOTHER)),
        envelope(published(ME, replace(SCORES, member=ANOTHER), VECTOR)),
    ],
    ids=[
        "another's envelope", "another contract", "another's reply", "for another contract",
        "another's request", "another's scores", "scores in another's name",
    ],
)  # fmt: skip
def test_nobody_can_put_words_into_its_journal(foreign: Envelope) -> None:
    # Else whoever can write to the mailbox could fill all slots of a member before it restarts.
    journal = MemoryJournal()
    ProtectedSigner(ME, signers()[ME], journal).adopt(DOMAIN, [foreign])
    assert journal.statements == {}
