"""One small run that the tests of the Python face read, played once for all of them."""

from __future__ import annotations

import tempfile
from multiprocessing.util import get_temp_dir
from pathlib import Path

import pytest

import cmfl

FACE = pytest.mark.xdist_group("processes")
"""One process plays the shared run, and has a server of forks."""


@pytest.fixture(autouse=True)
def _temporary_homes(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if request.path.parent == Path(__file__).parent:
        get_temp_dir()  # kept for the sockets of this process, whose paths must be short
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory) -> cmfl.Run:
    """Return the run of the project's first example, as small as runs are."""
    home: Path = tmp_path_factory.mktemp("face") / "home"
    return cmfl.run(
        "smoke", home=home, strategy=3, malicious_rate=0.3, attack="back-gradient", seed=7, rounds=3
    )
