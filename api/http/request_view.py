"""The chain that a request reads, as of one block, and its deployments."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, cast

from fastapi import Depends
from starlette.requests import Request

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
from ledger.history.responses.fields import AsOf
from ledger.protocol.encoding import to_hex
from ledger.protocol.errors import ChainError

if TYPE_CHECKING:
    from ledger.history.deployments import ServedDeployment
    from ledger.history.history import FoldedHistory
    from ledger.history.pinned_chain import HistoryService, PinnedChain
    from ledger.history.round import HistoryRound


class RequestView:
    """The chain of one request: blocks after `chain.block` are not read.

    The chain is pinned when it is first needed, in the thread of the endpoint: a dependency that
    waits for a chain would take a thread.
    """

    def __init__(self, histories: HistoryService, chain: str | None = None) -> None:
        """Prepare to read the chain of a name, or any chain."""
        self._histories = histories
        self._name = chain
        self._chain: PinnedChain | None = None

    @property
    def chain(self) -> PinnedChain:
        """The chain as of its newest block when it was first needed."""
        # A cached_property of Python 3.11 has one lock for all requests: a slow node stops all.
        if self._chain is None:
            chain = self._histories.now()
            name = chain.path.name
            if self._name not in {None, name}:
                raise ProblemError(CHAIN_NOT_FOUND, f"chain {self._name} is not served; {name} is")
            self._chain = chain
        return self._chain

    @property
    def as_of(self) -> AsOf:
        """The block that the answer is read at."""
        block = self.chain.block
        finalized = block.number <= self.chain.final
        return {"number": block.number, "hash": to_hex(block.hash), "finalized": finalized}

    def history(self, address: str) -> FoldedHistory:
        """Return the history of a deployment as of `chain.block`; raises as `deployment` does."""
        return self.chain.history(self.deployment(address))

    def verify_unmoved(self) -> None:
        """Verify that the chain still contains the block that was read at."""
        if not self.chain.is_unmoved():
            number = self.chain.block.number
            raise ProblemError(CHAIN_MOVED, f"block {number} is another one now")

    def deployment(self, address: str) -> ServedDeployment:
        """Return a deployment by the address of its contract."""
        try:
            name = eip55(address)
        except ChainError as error:
            errors = [FieldError(place="path", name="address", detail=str(error))]
            raise ProblemError(REQUEST_INVALID, f"path address: {error}", errors) from error
        served = self.chain.find(name)
        if served is None:
            raise ProblemError(DEPLOYMENT_NOT_FOUND, f"no deployment at {name} is served")
        return served


def require_client(client: int, registered: int) -> None:
    """Reject the index of a client that is not registered."""
    if client >= registered:
        raise ProblemError(
            CLIENT_NOT_FOUND, f"client {client} is not registered; there are {registered}"
        )


def require_round(history: FoldedHistory, number: int) -> HistoryRound:
    """Return a round; reject the number of one that has not opened."""
    round_ = history.round(number)
    if round_ is None:
        detail = f"round {number} has not opened; the newest is {history.newest()}"
        raise ProblemError(ROUND_NOT_FOUND, detail)
    return round_


def histories_of(request: Request) -> HistoryService:
    """Return the service that all requests of an app share."""
    return cast("HistoryService", request.app.state.histories)


async def _reading(request: Request) -> RequestView:
    """Return the chain of a request; asynchronous, because it needs no thread."""
    return RequestView(histories_of(request))


AnyChain = Annotated[RequestView, Depends(_reading)]
