"""One small run that the tests of the Python face read, played once for all of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import cmfl

if TYPE_CHECKING:
    from pathlib import Path

FACE = pytest.mark.xdist_group("face")
"""One process plays the shared run; the others need not play it again."""


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory) -> cmfl.Run:
    """Return the run of the project's first example, as small as runs are."""
    home: Path = tmp_path_factory.mktemp("face") / "home"
    return cmfl.run(
        "smoke",
        home=home,
        strategy=3,
        malicious_rate=0.3,
        attack="back-gradient",
        seed=7,
        rounds=3,
    )
