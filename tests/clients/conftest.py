"""Runs in one process, on a chain of their own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clients.played import Player, playing, playing_on_file


@pytest.fixture
def player(tmp_path: Path) -> Iterator[Player]:
    """A home with a chain in memory, where a block costs little."""
    with playing(tmp_path) as player:
        yield player


@pytest.fixture
def player_on_file(tmp_path: Path) -> Iterator[Player]:
    """A home with the chain that `cmfl run` writes."""
    with playing_on_file(tmp_path) as player:
        yield player


@pytest.fixture
def other(tmp_path: Path) -> Iterator[Player]:
    """Another home with a chain of its own, which has the same id."""
    (tmp_path / "other").mkdir()
    with playing(tmp_path / "other") as player:
        yield player
