"""The engine of a run whose clients the nodes of Flower train."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager

from clients.configuration.schema import Configuration
from clients.runs.flower.engine import FlowerEngine
from clients.runs.flower.nodes import Nodes, Partitions
from clients.runs.flower.training_node import run_digest
from clients.training.port import Engine
from ledger.io.extras import install_command
from ledger.protocol.errors import ConfigurationError
from ledger.protocol.parameters import Parameters

FLWR = "flwr[simulation]==1.41.0"
"""The version that the tests run with."""


def require_flower(*modules: str) -> None:
    """Reject what needs Flower where it is not installed."""
    if any(importlib.util.find_spec(module) is None for module in modules):
        raise ConfigurationError(
            "this needs Flower, whose pins differ from this project's: install both in an "
            f"environment of their own: {install_command('clients')} '{FLWR}'"
        )


@contextmanager
def flower_engine(
    configuration: Configuration, local: Engine, parameters: Parameters, nodes: Nodes | None
) -> Iterator[Engine]:
    """Open the engine.

    Args:
        nodes: those of a ServerApp; None for a simulation that starts with the engine.

    Yields:
        The engine; a simulation of its own ends with the context.
    """
    run = run_digest(configuration)
    if nodes is not None:
        yield FlowerEngine(local, Partitions(nodes, run), run, parameters)
        return
    require_flower("flwr", "ray")
    from clients.runs.flower.simulation import simulated_nodes  # noqa: PLC0415 - needs Flower

    with simulated_nodes(configuration) as simulated:
        yield FlowerEngine(local, Partitions(simulated, run), run, parameters)
