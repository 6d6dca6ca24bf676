from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.audit.honest import honest_run

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.audit.runs import Run


@pytest.fixture(scope="session")
def honest(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """One honest run for all tests; nobody may change it."""
    run = honest_run(tmp_path_factory.mktemp("honest"))
    with run.chain:
        yield run
