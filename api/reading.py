"""What a request reads: one chain, as of one block, and the deployments on it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, cast

from fastapi import Depends, Request

from api.http.problems import (
    CHAIN_MOVED,
    CLIENT_NOT_FOUND,
    DEPLOYMENT_NOT_FOUND,
    REQUEST_INVALID,
    ROUND_NOT_FOUND,
    FieldError,
    ProblemError,
)
from api.schemas.words import AsOf
from ledger.chain.addresses import checksum, to_canonical
from ledger.protocol.errors import ChainError

if TYPE_CHECKING:
    from api.chain_source import ChainSource
    from api.deployments import Deployments, Served
    from ledger.blobs.store import BlobReader
    from ledger.chain.contract.events import Recorded
    from ledger.chain.ports import Block, ChainReader


@dataclass(frozen=True, slots=True)
class Service:
    """What all requests share.

    Attributes:
        source: of the chain.
        deployments: that are served.
        blobs: where records and score vectors are.
    """

    source: ChainSource
    deployments: Deployments
    blobs: BlobReader


@dataclass(frozen=True, slots=True)
class Reading:
    """One request's view of the chain: nothing after `block` is read.

    Attributes:
        service: what all requests share.
        chain: that is read.
        block: the newest block when the request came.
        final: number of the newest block that is regarded as final.
    """

    service: Service
    chain: ChainReader
    block: Block
    final: int

    @property
    def as_of(self) -> AsOf:
        """The block that the answer speaks of."""
        number = self.block.number
        return AsOf(number=number, hash=hexed(self.block.hash), finalized=number <= self.final)

    def as_of_end(self, ended: Recorded) -> AsOf:
        """Return the block that ended a round, for an answer that cannot change any more.

        Args:
            ended: the round's decision or abandonment.
        """
        return AsOf(number=ended.block_number, hash=hexed(ended.block_hash), finalized=True)

    def is_final(self, ended: Recorded | None) -> bool:
        """Say whether a round has ended for ever."""
        return ended is not None and ended.block_number <= self.final

    def verify_unmoved(self) -> None:
        """Accept what was read if the chain still holds the block that it was read at.

        Raises:
            ProblemError: it was reorganised meanwhile.
        """
        if self.block.number <= self.final:
            return
        if self.chain.block(self.block.number).hash != self.block.hash:
            raise ProblemError(CHAIN_MOVED, f"block {self.block.number} is another one now")

    def deployment(self, address: str) -> Served:
        """Return a deployment.

        Args:
            address: of its contract.

        Raises:
            ProblemError: it is no address, or none that is served.
        """
        try:
            name = checksum(to_canonical(address))
        except ChainError as error:
            errors = [FieldError(place="path", name="address", detail=str(error))]
            raise ProblemError(REQUEST_INVALID, f"path address: {error}", errors) from error
        served = self.service.deployments.find(self.chain, address)
        if served is None:
            raise ProblemError(DEPLOYMENT_NOT_FOUND, f"no deployment at {name} is served")
        return served


def hexed(data: bytes) -> str:
    """Return bytes as 0x-hex."""
    return f"0x{data.hex()}"


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


def service_of(request: Request) -> Service:
    """Return what all requests of an app share."""
    return cast("Service", request.app.state.service)


def read_now(request: Request) -> Reading:
    """Return the chain as it is when the request comes."""
    service = service_of(request)
    chain = service.source.chain()
    block = chain.head()
    return Reading(service, chain, block, chain.finalized())


Now = Annotated[Reading, Depends(read_now)]
