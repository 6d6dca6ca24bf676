"""Tables of settings in TOML, validated before any file is read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ledger.protocol.errors import ConfigurationError

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Share = Annotated[float, Field(gt=0, lt=1, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=1, le=2**31 - 1)]
FilePath = Annotated[str, Field(min_length=1)]


class SettingsTable(BaseModel):
    """Base class of TOML tables: unknown keys and implicit conversions are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


T = TypeVar("T", bound=SettingsTable)


def parse_settings(table: type[T], values: Mapping[str, Any], where: str) -> T:
    """Return validated settings."""
    try:
        return table.model_validate(dict(values))
    except ValidationError as error:
        first = error.errors()[0]
        key = str(first["loc"][0])[:80]
        if first["type"] == "missing":
            description = table.model_fields[key].description or "it has no default"
            raise ConfigurationError(f"{where}.{key}: must be given: {description}") from error
        rule = first["msg"] if first["type"] != "extra_forbidden" else "there is no such setting"
        raise ConfigurationError(
            f"{where}.{key}: {rule} (given: {str(first['input'])[:80]})"
        ) from error
