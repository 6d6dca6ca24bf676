"""Options of the configuration that a run is to have."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Option

from cmfl.commands.options import AllowPredictableSeeds

if TYPE_CHECKING:
    from clients.configuration.schema import Configuration

Settings = Annotated[
    list[str] | None,
    "section.key=value; overrides the preset or file. See cmfl settings.",
    Option("--set"),
]


def _presets() -> list[str]:
    from importlib.resources import files

    folder = files("clients") / "presets"
    return sorted(Path(entry.name).stem for entry in folder.iterdir())


@dataclass(frozen=True, slots=True)
class ConfigurationOptions:
    """A preset or a TOML file, and single settings over it."""

    preset: Annotated[
        str | None,
        "Preset: digits (default, no attackers among the members), robust (against "
        "attackers), ... For all presets, see cmfl settings presets.",
        Option(autocompletion=_presets),
    ] = None
    config: Annotated[Path | None, "TOML file with settings."] = None
    setting: Settings = None

    @property
    def has_source(self) -> bool:
        return self.preset is not None or self.config is not None

    @property
    def settings(self) -> tuple[str, ...]:
        return tuple(self.setting or ())

    def load(self, *, deploys: bool = False) -> Configuration:
        """Return the configuration of simulated clients; `deploys` takes a block's beacon."""
        from clients.configuration.loading import checked
        from clients.configuration.parsing import plain_values, set_block_beacon

        values = plain_values(self.preset, self.config, self.settings)
        if deploys:
            set_block_beacon(values)
        return checked(values)

    def load_shared(self, *more: str, allow_predictable: bool) -> Configuration:
        """Return the configuration of owners with keys, who may allow predictable seeds."""
        from clients.configuration.loading import shared_configuration

        settings = (*self.settings, *more)
        return shared_configuration(
            self.preset, self.config, settings, allow_predictable=allow_predictable
        )


@dataclass(frozen=True, slots=True)
class AgreedConfigurationOptions(ConfigurationOptions):
    """The configuration that the owners of a run agree to."""

    allow_predictable_seeds: AllowPredictableSeeds = False

    def words(self, *more: str) -> dict[str, object]:
        """Return the options that give another command this configuration."""
        return {
            "preset": self.preset,
            "config": self.config,
            "set": (*self.settings, *more),
            "allow_predictable_seeds": self.allow_predictable_seeds,
        }
