"""One run with adapters for all tests of them, which one process runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.clients.adapters.bases import command, write_base, write_rows
from tests.cmfl.commands.conftest import succeeds


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("adapters")
    write_base(folder / "base")
    write_rows(folder / "rows.jsonl", clients=12)
    succeeds(*command(folder), "--json")
    return folder
