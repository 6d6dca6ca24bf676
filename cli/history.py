"""What happened on a deployment, as a home's chain tells it, or as a service does.

Both tell the same: what the service answers, but for the block that it speaks of.
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from cli.options import URL_VARIABLE
from ledger.history.status import Order
from ledger.protocol.errors import ConfigurationError
from ledger.protocol.types import ClientId

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from api.client.deployment import RemoteDeployment
    from api.client.queries import Paging, RoundFilter
    from api.schemas.words import Answer
    from cli.target import Target
    from ledger.history.chain_history import ChainHistory
    from ledger.history.facts.words import Facts, Told
    from ledger.history.queries import RoundQuery


class History(Protocol):
    """What happened on one deployment so far."""

    @property
    def address(self) -> str:
        """Of the contract."""

    def rounds(self, walk: RoundQuery, limit: int, cursor: str | None, *, full: bool) -> Facts:
        """Return a page of rounds."""

    def round(self, number: int) -> Facts:
        """Return a round whole."""

    def gone(self, number: int) -> list[str]:
        """Return sentences on a round's payloads that are not kept, where that can be told."""

    def explanation(self, number: int) -> Facts:
        """Return a round in plain words."""

    def clients(self, limit: int, cursor: str | None) -> Facts:
        """Return a page of clients."""

    def client(self, client: int) -> Facts:
        """Return a client."""

    def client_rounds(self, client: int, order: Order, limit: int, cursor: str | None) -> Facts:
        """Return a page of a client's rounds."""


@contextmanager
def open_history(where: Target) -> Iterator[History]:
    """Open what is told of the deployment that a command speaks of.

    Args:
        where: the command's options.

    Yields:
        It, while chain or service are open.

    Raises:
        ConfigurationError: it cannot be told which deployment is meant, or both a node and a
            service are named.
    """
    if where.remote is None:
        with where.reader() as chain:
            yield HomeHistory(where.history(chain))
        return
    with open_deployment(where) as deployment:
        yield ServiceHistory(deployment)


@contextmanager
def open_deployment(where: Target) -> Iterator[RemoteDeployment]:
    """Open the deployment of a service that a command speaks of.

    Args:
        where: the command's options, which name a service.

    Yields:
        It, while the service is open.

    Raises:
        ConfigurationError: it cannot be told which deployment is meant, or a node is named, too.
    """
    from cli.remote import deployment_at

    assert where.remote is not None, "the service is told, not the home"
    require_no_node(where)
    with where.remote.service() as service:
        yield deployment_at(service, where.chain_id, where.address, where.run)


def require_no_node(where: Target) -> None:
    """Refuse a node beside a service; one that only a variable names is not meant.

    Args:
        where: the command's options, which name a service.

    Raises:
        ConfigurationError: a node is named, too.
    """
    if where.rpc_url not in {None, os.environ.get(URL_VARIABLE)}:
        raise ConfigurationError("--rpc-url and --api: give one of them")


class HomeHistory:
    """What a chain tells, and the blobs beside it."""

    def __init__(self, history: ChainHistory) -> None:
        self._history = history

    @property
    def address(self) -> str:
        """Of the contract."""
        return self._history.ledger.address

    def rounds(self, walk: RoundQuery, limit: int, cursor: str | None, *, full: bool) -> Facts:
        """Return a page of rounds.

        Raises:
            ConfigurationError: the client that is asked for is not registered.
        """
        from ledger.history.facts.rounds import page_facts
        from ledger.history.pages import read_page

        clients = self._history.fixed.clients
        if walk.client is not None and walk.client >= clients:
            raise ConfigurationError(f"--client {walk.client}: there are {clients} clients, from 0")
        return page_facts(self._history, read_page(self._history, walk, limit, cursor), full=full)

    def round(self, number: int) -> Facts:
        """Return a round whole."""
        from ledger.history.facts.rounds import full_facts

        return full_facts(self._told(number))

    def gone(self, number: int) -> list[str]:
        """Return sentences on a round's payloads that are not kept here."""
        from ledger.history.documents import missing_payloads
        from ledger.history.explain import explain_missing_payloads

        told = self._told(number)
        return explain_missing_payloads(
            told.documents, missing_payloads(told.documents, told.history.blobs)
        )

    def explanation(self, number: int) -> Facts:
        """Return a round in plain words."""
        from ledger.history.facts.rounds import explanation_facts

        return explanation_facts(self._told(number))

    def clients(self, limit: int, cursor: str | None) -> Facts:
        """Return a page of clients."""
        from ledger.history.facts.clients import clients_facts

        return clients_facts(self._history, limit, cursor)

    def client(self, client: int) -> Facts:
        """Return a client."""
        from ledger.history.facts.clients import client_facts

        return client_facts(self._history, self._registered(client))

    def client_rounds(self, client: int, order: Order, limit: int, cursor: str | None) -> Facts:
        """Return a page of a client's rounds."""
        from ledger.history.facts.clients import client_rounds_facts
        from ledger.history.pages import read_page
        from ledger.history.queries import RoundQuery

        who = self._registered(client)
        walk = RoundQuery("client rounds", order, client=who)
        page = read_page(self._history, walk, limit, cursor)
        return client_rounds_facts(self._history, who, page)

    def _told(self, number: int) -> Told:
        """Return a round with its documents.

        Raises:
            ConfigurationError: it has not opened.
        """
        from ledger.history.facts.words import Told

        one = self._history.round(number)
        if one is None:
            raise ConfigurationError(
                f"round {number} has not opened; the newest of {self._history.fixed.rounds} is "
                f"{self._history.newest()}"
            )
        return Told.of(self._history, one)

    def _registered(self, client: int) -> ClientId:
        """Return a client.

        Raises:
            ConfigurationError: it is not registered.
        """
        registered = len(self._history.registered())
        if client >= registered:
            raise ConfigurationError(f"client {client}: there are {registered} clients, from 0")
        return ClientId(client)


class ServiceHistory:
    """What a service tells; nothing of it is checked here but its shape."""

    def __init__(self, deployment: RemoteDeployment) -> None:
        self._deployment = deployment

    @property
    def address(self) -> str:
        """Of the contract."""
        return self._deployment.address

    def rounds(self, walk: RoundQuery, limit: int, cursor: str | None, *, full: bool) -> Facts:
        """Return a page of rounds."""
        only = _filter(walk)

        def read(paging: Paging) -> Answer:
            return self._deployment.rounds(only, paging, full=full)

        return pages_of("rounds", read, limit, cursor, walk.order)

    def round(self, number: int) -> Facts:
        """Return a round whole."""
        return _facts(self._deployment.round(number, full=True))

    def gone(self, number: int) -> list[str]:  # noqa: ARG002 - the explanation tells
        """Return nothing: which payloads a service still has, its explanation tells."""
        return []

    def explanation(self, number: int) -> Facts:
        """Return a round in plain words."""
        return _facts(self._deployment.explanation(number))

    def clients(self, limit: int, cursor: str | None) -> Facts:
        """Return a page of clients."""
        return pages_of("clients", self._deployment.clients, limit, cursor)

    def client(self, client: int) -> Facts:
        """Return a client."""
        return _facts(self._deployment.client(client))

    def client_rounds(self, client: int, order: Order, limit: int, cursor: str | None) -> Facts:
        """Return a page of a client's rounds."""

        def read(paging: Paging) -> Answer:
            return self._deployment.client_rounds(client, paging)

        return pages_of("rounds", read, limit, cursor, order)


def _facts(answer: Answer) -> Facts:
    """Return what an answer says, but for the block that it speaks of."""
    return answer.model_dump(mode="json", exclude={"as_of"})


def _filter(walk: RoundQuery) -> RoundFilter:
    from api.client.queries import RoundFilter

    return RoundFilter(
        status=walk.status,
        client=walk.client,
        role=None if walk.client is None else walk.role,
        view_min=walk.view_min or None,
        since_block=walk.blocks.first,
        until_block=walk.blocks.last,
        since=walk.times.first,
        until=walk.times.last,
    )


def pages_of(
    name: str,
    read: Callable[[Paging], Answer],
    limit: int,
    cursor: str | None,
    order: Order = Order.NEWEST,
) -> Facts:
    """Return pages of a service's list as one, as many as are needed for so many entries.

    Args:
        name: of the list in the answers.
        read: asks for one page.
        limit: how many entries at most.
        cursor: where the list begins; None for its beginning.
        order: which come first, where the list has an order to choose.
    """
    from api.client.queries import MOST_ENTRIES, Paging

    facts: Facts = {}
    # Whatever a service says, no more pages are read than full ones would be.
    for start in range(0, limit, MOST_ENTRIES):
        page = _facts(read(Paging(min(MOST_ENTRIES, limit - start), cursor, order)))
        if "scanned" in facts:
            page["scanned"] += facts["scanned"]
        facts = page | {name: facts.get(name, []) + page[name]}
        cursor = facts["next_cursor"]
        if cursor is None:
            break
    return facts
