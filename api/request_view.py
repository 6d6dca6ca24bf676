"""What a request reads: one chain, as of one block, and the deployments on it."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Annotated, cast

from fastapi import Depends, Request

from api.http.problems import (
    CHAIN_MOVED,
    CHAIN_NOT_FOUND,
    CLIENT_NOT_FOUND,
    DEPLOYMENT_NOT_FOUND,
    REQUEST_INVALID,
    ROUND_NOT_FOUND,
    ProblemError,
)
from api.schemas.problems import FieldError
from ledger.chain.addresses import eip55
from ledger.history.serialise.values import to_hex
from ledger.protocol.errors import ChainError

if TYPE_CHECKING:
    from ledger.chain.contract.event_logs import RecordedEvent
    from ledger.history.deployments import ServedDeployment
    from ledger.history.pinned_chain import HistoryService, PinnedChain
    from ledger.history.responses.fields import AsOf


class RequestView:
    """One request's view of the chain: nothing after `now.block` is read.

    The chain is looked at once, when it is first asked for: in the thread of the endpoint, for a
    dependency that waits for a chain would take a thread of its own.
    """

    def __init__(self, histories: HistoryService, chain: str | None = None) -> None:
        """Prepare to read; nothing is asked yet.

        Args:
            histories: what all requests share.
            chain: name of the chain that the path speaks of; None for whichever is read.
        """
        self._histories = histories
        self._chain = chain

    @cached_property
    def now(self) -> PinnedChain:
        """The chain when it was first asked for.

        Raises:
            ProblemError: the chain that is read has another name.
            ChainError: it is not there, damaged, another one, or unreachable.
        """
        found = self._histories.now()
        own = found.path.name
        if self._chain not in {None, own}:
            raise ProblemError(CHAIN_NOT_FOUND, f"chain {self._chain} is not served; {own} is")
        return found

    @property
    def as_of(self) -> AsOf:
        """The block that the answer speaks of."""
        block = self.now.block
        finalized = block.number <= self.now.final
        return {"number": block.number, "hash": to_hex(block.hash), "finalized": finalized}

    def as_of_end(self, ended: RecordedEvent) -> AsOf:
        """Return the block that ended a round, for an answer that cannot change any more.

        Args:
            ended: the round's decision or abandonment.
        """
        return {"number": ended.block_number, "hash": to_hex(ended.block_hash), "finalized": True}

    def is_final(self, ended: RecordedEvent | None) -> bool:
        """Say whether a round has ended for ever."""
        return ended is not None and ended.block_number <= self.now.final

    def verify_unmoved(self) -> None:
        """Accept what was read if the chain still holds the block that it was read at.

        Raises:
            ProblemError: it was reorganised meanwhile.
        """
        if not self.now.is_unmoved():
            number = self.now.block.number
            raise ProblemError(CHAIN_MOVED, f"block {number} is another one now")

    def deployment(self, address: str) -> ServedDeployment:
        """Return a deployment.

        Args:
            address: of its contract.

        Raises:
            ProblemError: it is no address, or none that is served.
        """
        try:
            name = eip55(address)
        except ChainError as error:
            errors = [FieldError(place="path", name="address", detail=str(error))]
            raise ProblemError(REQUEST_INVALID, f"path address: {error}", errors) from error
        served = self.now.find(name)
        if served is None:
            raise ProblemError(DEPLOYMENT_NOT_FOUND, f"no deployment at {name} is served")
        return served


def require_client(client: int, registered: int) -> None:
    """Refuse the index of no client.

    Args:
        client: the index.
        registered: how many there are.

    Raises:
        ProblemError: there is no such client.
    """
    if client >= registered:
        raise ProblemError(
            CLIENT_NOT_FOUND, f"client {client} is not registered; there are {registered}"
        )


def require_round(round_number: int, newest: int) -> None:
    """Refuse the number of a round that has not opened.

    Args:
        round_number: t.
        newest: the newest round.

    Raises:
        ProblemError: it has not opened.
    """
    if not 1 <= round_number <= newest:
        raise ProblemError(
            ROUND_NOT_FOUND, f"round {round_number} has not opened; the newest is {newest}"
        )


def histories_of(request: Request) -> HistoryService:
    """Return what all requests of an app share."""
    return cast("HistoryService", request.app.state.histories)


async def _reading(request: Request) -> RequestView:
    """Return what reads the chain; asynchronous, for it takes no thread."""
    return RequestView(histories_of(request))


NowRead = Annotated[RequestView, Depends(_reading)]
