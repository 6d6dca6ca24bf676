"""A request takes one thread, its endpoint's: what an endpoint depends on waits for nothing."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING

import pytest
from fastapi.routing import APIRoute

from api.routes import (
    client_routes,
    deployment_routes,
    digest_routes,
    evidence_routes,
    proof_routes,
    round_routes,
    series_routes,
    service_routes,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fastapi import APIRouter
    from fastapi.dependencies.models import Dependant

READING = (
    client_routes,
    deployment_routes,
    digest_routes,
    evidence_routes,
    proof_routes,
    round_routes,
    series_routes,
    service_routes,
)


def depended_on(dependant: Dependant) -> Iterator[Dependant]:
    for inner in dependant.dependencies:
        yield inner
        yield from depended_on(inner)


@pytest.mark.parametrize("router", [module.router for module in READING])
def test_no_dependency_takes_a_thread_of_its_own(router: APIRouter) -> None:
    routes = [route for route in router.routes if isinstance(route, APIRoute)]
    found = [inner.call for route in routes for inner in depended_on(route.dependant)]
    assert found
    assert [call for call in found if not inspect.iscoroutinefunction(call)] == []
