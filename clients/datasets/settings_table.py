"""Tables of settings as TOML has them: checked when a run is prepared, before any file is read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ledger.protocol.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Mapping

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Share = Annotated[float, Field(gt=0, lt=1, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=1, le=2**31 - 1)]
FilePath = Annotated[str, Field(min_length=1)]


class SettingsTable(BaseModel):
    """A table of the TOML file: no unknown keys, no guessing of types."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


T = TypeVar("T", bound=SettingsTable)


def parse_settings(table: type[T], values: Mapping[str, Any], where: str) -> T:
    """Return the settings behind plain values.

    Args:
        table: what they must be.
        values: keys and values.
        where: the table's place in the TOML file.

    Returns:
        The checked settings, with the default of each that is not given.

    Raises:
        ConfigurationError: names the first setting that is wrong, and the rule.
    """
    try:
        return table.model_validate(dict(values))
    except ValidationError as error:
        first = error.errors()[0]
        key = str(first["loc"][0])[:80]
        if first["type"] == "missing":
            about = table.model_fields[key].description or "it has no default"
            raise ConfigurationError(f"{where}.{key}: must be given: {about}") from error
        rule = first["msg"] if first["type"] != "extra_forbidden" else "there is no such setting"
        raise ConfigurationError(
            f"{where}.{key}: {rule} (given: {str(first['input'])[:80]})"
        ) from error
