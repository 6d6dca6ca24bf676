"""The updates that a run has recorded: rounds, seeds, models and the commitments that count."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from ledger.history.queries import RoundStatus
from ledger.protocol.errors import ConfigurationError
from ledger.protocol.types import ClientId, Digest, Domain

if TYPE_CHECKING:
    from ledger.history.history import FoldedHistory
    from ledger.history.round import HistoryRound
    from ledger.protocol.documents.run import RunDocument


@dataclass(frozen=True, slots=True)
class RecordedUpdate:
    """An update as the chain has it.

    Attributes:
        commitment: of its payload's digest, on the chain.
        payload: its digest by the round's record; None where no record names it.
    """

    client: ClientId
    commitment: Digest
    payload: Digest | None


@dataclass(frozen=True, slots=True)
class RecordedRound:
    """An ended round with the updates of it that are to be repeated.

    Attributes:
        model: digest of w_t.
        updates: ascending by client.
        accepted: digests of the payloads that entered the model; none of an abandoned round.
    """

    round: int
    seed: Digest
    model: Digest
    updates: tuple[RecordedUpdate, ...]
    accepted: tuple[Digest, ...]


@dataclass(frozen=True, slots=True)
class RecordedRun:
    """A run with the updates of it that are to be repeated.

    Attributes:
        rounds: with at least one update each, ascending.
    """

    domain: Domain
    document: RunDocument
    rounds: tuple[RecordedRound, ...]

    @property
    def updates(self) -> int:
        """Number of updates."""
        return sum(len(round_.updates) for round_ in self.rounds)

    @property
    def clients(self) -> tuple[ClientId, ...]:
        """Clients with an update, ascending."""
        return tuple(sorted({u.client for round_ in self.rounds for u in round_.updates}))


@dataclass(frozen=True, slots=True)
class UpdateChoice:
    """A choice among the updates of a run.

    Attributes:
        rounds: first and last round; None for all that have ended.
        clients: indices; empty for all.
        sample: number of updates that are drawn among these; None for all of them.
    """

    rounds: tuple[int, int] | None = None
    clients: tuple[ClientId, ...] = ()
    sample: int | None = None
    seed: int = 0


def recorded_rounds(
    history: FoldedHistory, initial_model: Digest, choice: UpdateChoice
) -> tuple[RecordedRound, ...]:
    """Return the chosen updates by round, ascending; rounds without one are left out.

    Every commitment that counts is one, also of a dropout or of an abandoned round: the digest of a
    repeated update can be compared with it where the payload is not to be had.

    Args:
        initial_model: digest of w_1.
    """
    newest = history.newest()
    ended = [r for r in history.rounds(1, newest) if r.status is not RoundStatus.OPEN]
    first, last = _bounds(choice, len(ended))
    for client in choice.clients:
        if not 0 <= client < history.fixed.clients:
            raise ConfigurationError(
                f"client {client}: the run has clients 0 .. {history.fixed.clients - 1}"
            )
    models = _models(ended, initial_model)
    rounds = [
        _recorded(history, number, models[number - 1], choice.clients)
        for number in range(first, last + 1)
    ]
    drawn = _drawn(rounds, choice)
    if not drawn:
        named = ", ".join(map(str, choice.clients)) or "any client"
        raise ConfigurationError(
            f"rounds {first} to {last} have no update of {named}: nobody has committed to one"
        )
    return drawn


def _bounds(choice: UpdateChoice, ended: int) -> tuple[int, int]:
    """Return the first and the last chosen round."""
    if not ended:
        raise ConfigurationError("no round of the run has ended: there is nothing to repeat")
    first, last = choice.rounds or (1, ended)
    if not 1 <= first <= last:
        raise ConfigurationError(f"rounds {first}..{last}: must be first and last, from 1")
    if last > ended:
        raise ConfigurationError(f"round {last}: the run has {ended} ended rounds")
    return first, last


def _models(ended: Sequence[HistoryRound], initial_model: Digest) -> list[Digest]:
    """Return the digest of the model that each round begins with."""
    models = [initial_model]
    for round_ in ended:
        models.append(models[-1] if round_.decided is None else round_.decided.model)
    return models


def _recorded(
    history: FoldedHistory, number: int, model: Digest, clients: Sequence[ClientId]
) -> RecordedRound:
    round_ = history.round(number)
    assert round_ is not None, "it has ended"
    payloads = history.documents(round_).payloads
    accepted = () if round_.decided is None else round_.decided.accepted
    return RecordedRound(
        round=number,
        seed=round_.seed,
        model=model,
        updates=tuple(
            RecordedUpdate(client, round_.commitments[client], payloads.get(client))
            for client in sorted(round_.counted)
            if not clients or client in clients
        ),
        accepted=tuple(payloads[client] for client in accepted if client in payloads),
    )


def _drawn(rounds: Sequence[RecordedRound], choice: UpdateChoice) -> tuple[RecordedRound, ...]:
    """Return the rounds with the drawn updates alone."""
    updates = [(r.round, u.client) for r in rounds for u in r.updates]
    if choice.sample is not None and choice.sample < len(updates):
        rng = np.random.default_rng(choice.seed)
        rows = rng.choice(len(updates), choice.sample, replace=False)
        chosen = {updates[row] for row in rows}
        rounds = [
            replace(r, updates=tuple(u for u in r.updates if (r.round, u.client) in chosen))
            for r in rounds
        ]
    return tuple(round_ for round_ in rounds if round_.updates)
