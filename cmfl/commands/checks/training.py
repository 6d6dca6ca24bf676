"""Checks of a configuration: training path, drawn committee, and the regime of its rules."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from cmfl.commands.checks.check import Check

if TYPE_CHECKING:
    from clients.configuration.schema import Configuration


def training_checks(
    preset: str | None, config: Path | None, settings: tuple[str, ...]
) -> list[Check]:
    """Return the checks of how clients would train, if a configuration is named."""
    if preset is None and config is None and not settings:
        return []

    def about(say: Callable[[Configuration], str]) -> Callable[[], str]:
        from clients.configuration.loading import load

        return lambda: say(load(preset, config, settings))

    return [("training", about(_planned)), ("committee", about(_risk)), ("attacks", about(_regime))]


def _risk(configuration: Configuration) -> str:
    from clients.configuration.tested_regime import risk_sentence

    return risk_sentence(configuration.parameters(dimension=1))


def _planned(configuration: Configuration) -> str:
    """Say on which path the clients' model would be trained, and why."""
    from clients.runs.population import populate
    from clients.training.lockstep.plan import plan

    population, device = populate(configuration), configuration.machine.device
    training = configuration.local_training()
    planned = plan(population.model, population.data, training, device)
    sentence, asked = f"{planned.path} path: {planned.reason}", configuration.training.path
    if asked != "auto":
        sentence = f"{asked} path, as the configuration says; left open it would be the {sentence}"
    return "; ".join([sentence, *planned.layers])


def _regime(configuration: Configuration) -> str:
    """Say whether the run is within what its rules were attacked in."""
    from clients.configuration.tested_regime import regime_warnings

    warnings = regime_warnings(configuration)
    if not warnings:
        return "within the regime that the rules were attacked in"
    return f"WARNING: outside the regime that the rules were attacked in: {'; '.join(warnings)}"
