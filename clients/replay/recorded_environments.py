"""Environments in which the updates of a run were trained, as their trainers recorded them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from ledger.protocol.documents.envelope import EnvelopeKind, PublishedEnvironment
from ledger.protocol.errors import BlobError
from ledger.protocol.signing import is_signed_by
from ledger.protocol.training_replay import TrainingEnvironment
from ledger.protocol.types import ClientId, Domain, EnvironmentStatement, RegisteredClient
from ledger.storage.mailbox import Mailbox

if TYPE_CHECKING:
    EnvironmentOf = Callable[[int, ClientId], TrainingEnvironment | None]

_log = logging.getLogger(__name__)

_ROUNDS = 1024
"""Rounds whose statements are remembered: a replay looks for their caps before it trains."""


def of_simulation(recorded: Sequence[tuple[int, TrainingEnvironment]]) -> EnvironmentOf:
    """Return the environments of a simulation's updates, one for all clients of a round.

    Args:
        recorded: first round of each, ascending.
    """

    def environment(round_number: int, client: ClientId) -> TrainingEnvironment | None:
        del client
        known = [stated for first, stated in recorded if first <= round_number]
        return known[-1] if known else None

    return environment


def of_mailbox(
    mailbox: Mailbox, domain: Domain, registry: Sequence[RegisteredClient]
) -> EnvironmentOf:
    """Return the environments that the clients of a federation stated, signed, in each round.

    A mailbox that cannot be read is not asked again, and no more is known.
    """
    is_readable = True

    @lru_cache(maxsize=_ROUNDS)
    def stated(round_number: int) -> Mapping[ClientId, TrainingEnvironment]:
        nonlocal is_readable
        if not is_readable:
            return {}
        try:
            return _stated(mailbox, domain, registry, round_number)
        except (BlobError, OSError) as error:
            is_readable = False
            reason = error.strerror if isinstance(error, OSError) else error
            _log.warning("the mailbox cannot be read for environments: %s", reason or error)
            return {}
        finally:
            mailbox.forget(domain, round_number + 1)

    return lambda round_number, client: stated(round_number).get(client)


def _stated(
    mailbox: Mailbox, domain: Domain, registry: Sequence[RegisteredClient], round_number: int
) -> dict[ClientId, TrainingEnvironment]:
    """Return the statements of a round; of a client with two different ones neither counts."""
    found: dict[ClientId, set[TrainingEnvironment]] = {}
    for envelope in mailbox.listed(domain, round_number, EnvelopeKind.ENVIRONMENT):
        body, client = envelope.body, envelope.client
        assert isinstance(body, PublishedEnvironment)
        statement = EnvironmentStatement(round_number, client, body.environment.digest)
        if client < len(registry) and is_signed_by(
            registry[client].address, domain, statement, body.signature
        ):
            found.setdefault(client, set()).add(body.environment)
    return {client: next(iter(one)) for client, one in found.items() if len(one) == 1}
