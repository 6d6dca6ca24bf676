"""A request takes one thread, its endpoint's: what an endpoint depends on waits for nothing.

/health takes no thread, and so is answered while every thread waits for a chain.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from typing import TYPE_CHECKING

import anyio.to_thread
import httpx
import pytest
from fastapi.routing import APIRoute

from api.app import create_app
from api.routes.client_routes import clients_router
from api.routes.deployment_routes import deployments_router
from api.routes.digest_routes import digests_router
from api.routes.evidence_routes import evidence_router
from api.routes.proof_routes import proofs_router
from api.routes.round_routes import rounds_router
from api.routes.series_routes import series_router
from api.routes.service_routes import service_router
from api.settings import Settings
from ledger.history.pinned_chain import HistoryService, PinnedChain
from ledger.protocol.errors import ChainError
from tests.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from fastapi import APIRouter
    from fastapi.dependencies.models import Dependant

READING = (
    clients_router,
    deployments_router,
    digests_router,
    evidence_router,
    proofs_router,
    rounds_router,
    series_router,
    service_router,
)


def depended_on(dependant: Dependant) -> Iterator[Dependant]:
    for inner in dependant.dependencies:
        yield inner
        yield from depended_on(inner)


@pytest.mark.parametrize("router", READING)
def test_no_dependency_takes_a_thread_of_its_own(router: APIRouter) -> None:
    routes = [route for route in router.routes if isinstance(route, APIRoute)]
    found = [inner.call for route in routes for inner in depended_on(route.dependant)]
    assert found
    assert [call for call in found if not inspect.iscoroutinefunction(call)] == []


THREADS = 2


class SlowHistories(HistoryService):
    """A chain that answers nobody before it is released."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.released = threading.Event()
        self.waiting: list[int] = []

    def now(self) -> PinnedChain:
        self.waiting.append(threading.get_ident())
        self.released.wait(PATIENCE_SECONDS)
        raise ChainError("released")


def test_health_needs_no_thread(tmp_path: Path) -> None:
    settings = Settings(home=tmp_path)
    histories = SlowHistories(settings)
    app = create_app(settings, lambda *_: histories)

    async def asked() -> tuple[int, list[int]]:
        anyio.to_thread.current_default_thread_limiter().total_tokens = THREADS
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            waiting = [asyncio.create_task(client.get("/ready")) for _ in range(THREADS + 1)]
            try:
                while len(histories.waiting) < THREADS:
                    await asyncio.sleep(0.01)
                quick = await asyncio.wait_for(client.get("/health"), PATIENCE_SECONDS)
                assert not any(task.done() for task in waiting)
            finally:
                histories.released.set()
            slow = await asyncio.gather(*waiting)
        return quick.status_code, [one.status_code for one in slow]

    assert asyncio.run(asked()) == (200, [503] * (THREADS + 1))
