"""Groups of options: a command shows their fields, and gets them as one value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

from cmfl.commands.option_groups import expand_groups


@dataclass(frozen=True, slots=True)
class Colours:
    """Two options, one of which must be given."""

    front: Annotated[str, typer.Option("--front", envvar="TEST_FRONT")]
    back: Annotated[int | None, typer.Option("--back", min=1)] = None


def _app(into: list[tuple[Colours, bool]]) -> typer.Typer:
    app = typer.Typer()

    @app.command()
    @expand_groups
    def paint(colours: Colours, wet: Annotated[bool, typer.Option("--wet")] = False) -> None:
        """Paint."""
        into.append((colours, wet))

    return app


def test_a_command_gets_a_groups_options_as_one_value() -> None:
    into: list[tuple[Colours, bool]] = []
    result = CliRunner().invoke(_app(into), ["--front", "red", "--wet", "--back", "3"])
    assert result.exit_code == 0, result.output
    assert into == [(Colours("red", 3), True)]


def test_variables_and_defaults_of_a_group_count() -> None:
    into: list[tuple[Colours, bool]] = []
    result = CliRunner().invoke(_app(into), [], env={"TEST_FRONT": "blue"})
    assert result.exit_code == 0, result.output
    assert into == [(Colours("blue"), False)]


@pytest.mark.parametrize("arguments", [[], ["--front", "red", "--back", "0"], ["--side", "red"]])
def test_what_a_group_refuses_is_refused(arguments: list[str]) -> None:
    into: list[tuple[Colours, bool]] = []
    assert CliRunner().invoke(_app(into), arguments).exit_code == 2
    assert into == []


def test_two_options_of_one_name_are_refused_at_once() -> None:
    def paint(colours: Colours, back: int) -> None:
        """Paint."""

    with pytest.raises(TypeError, match="one name"):
        expand_groups(paint)
