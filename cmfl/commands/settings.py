"""`cmfl settings`: settings and presets, and the attacks, faults and rules that a run may name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any

import typer

from cmfl.commands.console import AsCsv, AsJson, print_csv, print_json, print_line
from ledger.protocol.errors import ConfigurationError

LISTS = ("presets", "data", "attacks", "faults", "rules")


def settings(
    what: Annotated[
        str | None,
        typer.Argument(
            metavar="[SECTION|presets|data|attacks|faults|rules]",
            help="One section, such as protocol or malice; the presets; options and partitions of "
            "the data; or what a run may name: attacks, faults, rules. Every setting if not given.",
        ),
    ] = None,
    json: AsJson = False,
    csv: AsCsv = False,
) -> None:
    """Show every setting with its default, what it may be, and what it is.

    A setting is given as --set section.key=value, or in a TOML file; see docs/configuration.md.
    """
    from clients.configuration import settings_reference as reference

    lists: dict[str, Callable[[], Sequence[Any]]] = {
        "presets": reference.presets,
        "data": lambda: [*_of_section("data"), *reference.data_settings()],
        "attacks": reference.attacks,
        "faults": reference.faults,
        "rules": reference.rules,
    }
    rows = [*lists.get(what or "", lambda: _of_section(what))()]
    if csv:
        print_csv(list(rows[0]), rows)
    elif json:
        print_json(rows)
    else:
        for row in rows:
            _print(row)


def _of_section(section: str | None) -> list[Any]:
    """Return the settings of a section; all for None."""
    from clients.configuration import settings_reference as reference

    every = reference.settings()
    places = {row["name"]: row["name"].rpartition(".")[0] for row in every}
    matching = [row for row in every if section in {None, row["name"], places[row["name"]]}]
    if not matching:
        names = ", ".join(dict.fromkeys((*filter(None, places.values()), *LISTS)))
        raise ConfigurationError(f"settings {section}: there are no such; there are {names}")
    return matching


def _print(row: dict[str, Any]) -> None:
    """Print an entry as a block: name, allowed values, description."""
    if "may_be" in row:
        default = "must be given" if row["is_needed"] else _default(row["default"])
        print_line(f"{row['name']}  ({default})", bold=True)
        lines = [row["sentence"], row["may_be"]]
    elif "sends" in row:
        print_line(f"{row['name']}  (on {'what is sent' if row['on'] == 'update' else row['on']})")
        lines = [row["sends"], row["source"]]
        if row["factor"] is not None:
            lines.append(
                f"malice.factor: {row['factor']:g} if not given, {row['least']:g} to "
                f"{row['most']:g}"
            )
    else:
        print_line(" ".join(filter(None, (row.get("setting"), row["name"]))), bold=True)
        lines = [row["sentence"]]
    for line in lines:
        print_line(f"    {line}")


def _default(value: object) -> str:
    if value is None or value == {}:
        return "not set"
    return f"default {str(value).lower() if isinstance(value, bool) else value}"
