"""The rows of the smallest experiment, run once; nobody adds to them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from clients.experiments.execution.row_store import RowStore
from clients.experiments.execution.runner import ExperimentProgress, run_experiment
from ledger.io.processes import task_pool
from tests.clients.experiments.minis import plan_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from clients.experiments.plan import ExperimentPlan


@dataclass(frozen=True)
class Finished:
    plan: ExperimentPlan
    store: RowStore
    progress: ExperimentProgress


def run_here(
    plan: ExperimentPlan,
    store: RowStore,
    on_progress: Callable[[ExperimentProgress], None] = lambda _: None,
) -> ExperimentProgress:
    with task_pool(1) as here:
        return run_experiment(plan, store, here, on_progress)


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    plan, store = plan_of(), RowStore(tmp_path_factory.mktemp("experiments"), "mini")
    return Finished(plan, store, run_here(plan, store))
