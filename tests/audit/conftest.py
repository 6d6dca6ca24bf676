from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.audit.play import Game, honest_run

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="session")
def honest(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Game]:
    """One honest run for all tests; nobody may change it."""
    game = honest_run(tmp_path_factory.mktemp("honest"))
    with game.chain:
        yield game
