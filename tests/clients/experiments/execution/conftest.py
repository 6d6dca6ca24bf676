"""The rows of the smallest experiment, run once; nobody adds to them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from clients.experiments.execution.runner import Progress, run
from clients.experiments.execution.store import Store
from clients.processes import workers
from tests.clients.experiments.minis import plan_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from clients.experiments.plan import Plan


@dataclass(frozen=True)
class Finished:
    """An experiment that was run to its end.

    Attributes:
        plan: of it.
        store: its rows.
        progress: how it went.
    """

    plan: Plan
    store: Store
    progress: Progress


def run_here(
    plan: Plan, store: Store, on_progress: Callable[[Progress], None] = lambda _: None
) -> Progress:
    """Run what is left of an experiment, in this process."""
    with workers(1) as here:
        return run(plan, store, here, on_progress)


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    plan, store = plan_of(), Store(tmp_path_factory.mktemp("experiments"), "mini")
    return Finished(plan, store, run_here(plan, store))
