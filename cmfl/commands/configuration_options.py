"""Options that name a run to make, and the configuration it is to have."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Option

from cmfl.commands.options import AllowPredictableSeeds

if TYPE_CHECKING:
    from clients.configuration.schema import Configuration


def _presets() -> list[str]:
    from importlib.resources import files

    folder = files("clients") / "presets"
    return sorted(Path(entry.name).stem for entry in folder.iterdir())


Settings = Annotated[
    list[str] | None,
    Option("--set", help="section.key=value, over preset or file; cmfl settings has all of them."),
]


@dataclass(frozen=True, slots=True)
class ConfigurationOptions:
    """A preset or a TOML file, and single settings over it."""

    preset: Annotated[
        str | None,
        Option(
            "--preset",
            help="digits (default, no attackers among the members), robust (against attackers), "
            "...: cmfl settings presets lists all.",
            autocompletion=_presets,
        ),
    ] = None
    config: Annotated[Path | None, Option("--config", help="A TOML file.")] = None
    setting: Settings = None

    @property
    def has_source(self) -> bool:
        """True if a preset or a file is named."""
        return self.preset is not None or self.config is not None

    @property
    def settings(self) -> tuple[str, ...]:
        """The single settings, `section.key=value`."""
        return tuple(self.setting or ())

    def load(self, *, deploys: bool = False) -> Configuration:
        """Return the configuration of a run whose clients have simulated keys.

        Args:
            deploys: take a block's hash as the beacon, unless a setting names one.
        """
        from clients.configuration.loading import checked
        from clients.configuration.parsing import plain_values, set_block_beacon

        values = plain_values(self.preset, self.config, self.settings)
        if deploys:
            set_block_beacon(values)
        return checked(values)

    def load_shared(self, *, allow_predictable: bool, more: tuple[str, ...] = ()) -> Configuration:
        """Return the configuration of a run whose owners have keys of their own.

        Args:
            allow_predictable: whether to accept seeds that can be chosen.
        """
        from clients.configuration.loading import shared_configuration

        settings = (*self.settings, *more)
        return shared_configuration(
            self.preset, self.config, settings, allow_predictable=allow_predictable
        )


@dataclass(frozen=True, slots=True)
class AgreedConfigurationOptions(ConfigurationOptions):
    """The configuration that the owners of a run agree to."""

    allow_predictable_seeds: AllowPredictableSeeds = False

    def load_agreed(self, *more: str) -> Configuration:
        """Return the configuration, with more settings over it."""
        return self.load_shared(allow_predictable=self.allow_predictable_seeds, more=more)

    def words(self, *more: str) -> list[object]:
        """Return the options that give another command this configuration."""
        from clients.configuration.parsing import ALLOW_PREDICTABLE

        words: list[object] = []
        words += [] if self.preset is None else ["--preset", self.preset]
        words += [] if self.config is None else ["--config", self.config]
        words += [word for setting in (*self.settings, *more) for word in ("--set", setting)]
        return [*words, ALLOW_PREDICTABLE] if self.allow_predictable_seeds else words
