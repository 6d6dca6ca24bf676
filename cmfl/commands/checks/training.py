"""Checks of a configuration: training path, drawn committee, and the regime of its rules."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from cmfl.commands.checks.check import Check


def training_checks(
    preset: str | None, config: Path | None, settings: tuple[str, ...]
) -> list[Check]:
    """Return the checks of a configuration; none where no configuration is meant."""
    if preset is None and config is None and not settings:
        return []
    return [
        ("training", lambda: _planned(preset, config, settings)),
        ("committee", lambda: _risk(preset, config, settings)),
        ("attacks", lambda: _regime(preset, config, settings)),
    ]


def _planned(preset: str | None, config: Path | None, settings: tuple[str, ...]) -> str:
    from clients.configuration.loading import load
    from clients.runs.population import populate
    from clients.training.lockstep.execution_plan import plan

    configuration = load(preset, config, settings)
    population = populate(configuration)
    requested = configuration.training.path
    training, device = configuration.local_training(), configuration.machine.device
    planned = plan(population.model, population.data, training, device)
    sentence = f"{planned.path} path: {planned.reason}"
    if requested != "auto":
        sentence = (
            f"{requested} path, as the configuration says; left open it would be the {sentence}"
        )
    return "; ".join([sentence, *planned.layers])


def _risk(preset: str | None, config: Path | None, settings: tuple[str, ...]) -> str:
    from clients.configuration.committee_risk import risk_sentence
    from clients.configuration.loading import load

    return risk_sentence(load(preset, config, settings).parameters(dimension=1))


def _regime(preset: str | None, config: Path | None, settings: tuple[str, ...]) -> str:
    from clients.configuration.loading import load
    from clients.configuration.tested_regime import regime_warnings

    warnings = regime_warnings(load(preset, config, settings))
    if not warnings:
        return "within the regime that the rules were attacked in"
    return f"WARNING: outside the regime that the rules were attacked in: {'; '.join(warnings)}"
