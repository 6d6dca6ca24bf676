"""The history of one deployment as answers, and news of a run.

A round that has ended in a block that is not final may be taken back. The follower remembers the
block of each such round. If another block takes its place, the follower reports the first round to
discard, and reports the rounds from there again.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from ledger.chain.round_ledger import RecordedEvent
from ledger.history.answers_clients import (
    ClientAnswer,
    ClientRoundsAnswer,
    ClientsAnswer,
    DigestAnswer,
    client_rounds_page,
    clients_page,
    digest_page,
    one_client,
)
from ledger.history.answers_parts import AnsweredRound
from ledger.history.answers_rounds import (
    DiscardedRounds,
    ExplanationAnswer,
    FullRound,
    RoundsAnswer,
    RoundSummary,
    explanation,
    full_round,
    round_summary,
    rounds_page,
)
from ledger.history.answers_signed import EvidenceAnswer, evidence_page
from ledger.history.explain import explain_missing_payloads
from ledger.history.fields import Order, RoundQuery
from ledger.history.history import FoldedHistory
from ledger.protocol.types import Digest


@dataclass(frozen=True, slots=True)
class LocalHistory:
    """Answers about one deployment, made here; `RemoteDeployment` reads the same ones.

    A round that has not opened raises UnknownRoundError, another client UnknownClientError.
    """

    source: FoldedHistory

    @property
    def address(self) -> str:
        """Of the contract, EIP-55."""
        return self.source.path.address

    def rounds(
        self, query: RoundQuery, limit: int, cursor: str | None, *, full: bool = False
    ) -> RoundsAnswer:
        if query.client is not None:
            self.source.known(query.client)
        return rounds_page(self.source, self.source.page(query, limit, cursor), full=full)

    def full_round(self, number: int) -> FullRound:
        """Return a round with all its parts but the score vectors."""
        return full_round(self.view(number))

    def explanation(self, number: int) -> ExplanationAnswer:
        return explanation(self.view(number))

    def missing_payloads(self, number: int) -> list[str]:
        """Return a sentence about a round's payloads that are not stored here, if there are any."""
        documents = self.view(number).documents
        return explain_missing_payloads(documents, self.source.blobs)

    def clients(self, limit: int, cursor: str | None) -> ClientsAnswer:
        return clients_page(self.source, limit, cursor)

    def client(self, client: int) -> ClientAnswer:
        return one_client(self.source, self.source.known(client, is_registered=True))

    def client_rounds(
        self, client: int, order: Order, limit: int, cursor: str | None
    ) -> ClientRoundsAnswer:
        index = self.source.known(client, is_registered=True)
        query = RoundQuery("client rounds", order, client=index)
        return client_rounds_page(self.source, index, self.source.page(query, limit, cursor))

    def evidence(
        self, order: Order, limit: int, cursor: str | None, client: int | None = None
    ) -> EvidenceAnswer:
        """Return the evidence in a page of rounds, against one client or against all."""
        against = None if client is None else self.source.known(client)
        page = self.source.page(RoundQuery("evidence", order), limit, cursor)
        return evidence_page(self.source, page, against)

    def digest(self, digest: Digest, limit: int, cursor: str | None) -> DigestAnswer:
        return digest_page(self.source, digest, limit, cursor)

    def view(self, number: int) -> AnsweredRound:
        """Return a round with its documents."""
        return AnsweredRound.of(self.source, self.source.opened(number))


MAX_ROUNDS_PER_POLL = 100


@dataclass(frozen=True, slots=True)
class RoundNews:
    """One change.

    Attributes:
        position: the last reported round that has ended; a new follower continues from there.
        response: the round's line, or the first round to discard.
    """

    kind: Literal["round_opened", "round_ended", "taken_back"]
    position: int
    response: RoundSummary | DiscardedRounds


@dataclass(slots=True)
class RoundFollower:
    """Follows one deployment; `position` is the last reported round that has ended."""

    position: int
    _opened: int = 0
    _blocks: dict[int, bytes] = field(default_factory=dict)

    def poll(self, history: FoldedHistory, final_block: int) -> list[RoundNews]:
        """Return the changes since the last poll, oldest first."""
        newest = history.newest()
        news = self._taken_back(history, newest)
        last = min(newest, self.position + MAX_ROUNDS_PER_POLL)
        for round_ in history.rounds(self.position + 1, last) if last > self.position else []:
            if round_.ended is None:
                if self._opened < round_.round:
                    self._opened = round_.round
                    summary = round_summary(history, round_)
                    news.append(RoundNews("round_opened", self.position, summary))
                break
            self.position = round_.round
            if round_.ended.block_number > final_block:
                self._blocks[round_.round] = round_.ended.block_hash
            summary = round_summary(history, round_)
            news.append(RoundNews("round_ended", round_.round, summary))
        for number in list(self._blocks):
            ended = _end(history, number)
            if ended is not None and ended.block_number <= final_block:
                del self._blocks[number]
        return news

    def _taken_back(self, history: FoldedHistory, newest: int) -> list[RoundNews]:
        """Return the news that reported rounds are void, if any are."""
        for number in sorted(self._blocks):
            ended = _end(history, number)
            if ended is None or ended.block_hash != self._blocks[number]:
                self._blocks = {n: block for n, block in self._blocks.items() if n < number}
                self.position, self._opened = number - 1, 0
                return [RoundNews("taken_back", self.position, {"from_round": number})]
        if newest < self.position:
            self.position, self._opened = newest, 0
            return [RoundNews("taken_back", self.position, {"from_round": newest + 1})]
        return []


def _end(history: FoldedHistory, number: int) -> RecordedEvent | None:
    round_ = history.round(number)
    return None if round_ is None else round_.ended
