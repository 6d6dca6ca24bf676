"""A signer with slashing protection: never two statements for one key of its journal."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from ledger.actors.journal import first_certificate_key, scores_key, vote_key
from ledger.protocol.documents.envelope import Proposal, PublishedScores, Reply
from ledger.protocol.signing import is_signed_by, sign
from ledger.protocol.types import Scores, SignedScores, SignedVote, Vote

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ledger.actors.journal import VoteJournal
    from ledger.protocol.documents.envelope import Envelope
    from ledger.protocol.inputs import Inputs
    from ledger.protocol.signing import Signer
    from ledger.protocol.types import ClientId, Domain


class ProtectedSigner:
    """Signs for one client what its journal allows.

    Attributes:
        client: the signing client.
    """

    def __init__(self, client: ClientId, signer: Signer, journal: VoteJournal) -> None:
        self.client = client
        self._signer = signer
        self._journal = journal

    def adopt(self, domain: Domain, envelopes: Iterable[Envelope]) -> None:
        """Record this client's earlier statements, as others have them.

        A journal that was restored from a backup lacks its newer statements; others have seen
        them.

        Args:
            domain: the contract on its chain.
            envelopes: of the round in course; what this client has not signed is passed over.
        """
        for envelope in envelopes:
            if envelope.client != self.client or envelope.domain != domain:
                continue
            match envelope.body:
                case PublishedScores(SignedScores(scores, signature), _):
                    if scores.member == self.client and self._has_signed(domain, scores, signature):
                        self._say_scores(domain, scores)
                case Proposal(request=cast) | Reply(cast):
                    if self._has_signed(domain, cast.vote, cast.signature):
                        self._record_vote(domain, cast.vote)
                case _:
                    pass
        self._journal.sync()

    def vote(self, domain: Domain, vote: Vote) -> SignedVote | None:
        """Return the signed vote, None if another was cast in its slot."""
        if not self._record_vote(domain, vote):
            return None
        return SignedVote(self.client, vote, sign(self._signer, domain, vote))

    def scores(self, domain: Domain, scores: Scores) -> SignedScores | None:
        """Return the signed claim, None if another vector was signed for its set."""
        if not self._say_scores(domain, scores):
            return None
        return SignedScores(scores, sign(self._signer, domain, scores))

    def first_certificate_time(self, inputs: Inputs, now: float) -> float:
        """Return when this client first saw a certificate of phase 1: now, if it never has."""
        base = inputs.closing.base
        place = first_certificate_key(inputs.domain, self.client, inputs.round, base)
        (moment,) = struct.unpack(">d", self._journal.record(place, struct.pack(">d", now)))
        return float(moment)

    def _has_signed(self, domain: Domain, message: Scores | Vote, signature: bytes) -> bool:
        """Return whether this client signed a message: anyone can put its name on an envelope."""
        return is_signed_by(self._signer.address, domain, message, signature)

    def _record_vote(self, domain: Domain, vote: Vote) -> bool:
        statement = vote.set_digest + vote.result
        place = vote_key(domain, self.client, vote)
        return self._journal.record(place, statement) == statement

    def _say_scores(self, domain: Domain, scores: Scores) -> bool:
        return self._journal.record(scores_key(domain, scores), scores.digest) == scores.digest
