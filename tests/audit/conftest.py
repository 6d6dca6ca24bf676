"""The honest run as its proofs and bundles see it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ledger.audit.proofs.bundle_verification import export_bundle
from ledger.audit.proofs.recorded import TrustedContract, read_trusted_contract
from ledger.audit.proofs.verification import TrustedHead

if TYPE_CHECKING:
    from tests.audit.runs import Run


@pytest.fixture(scope="session")
def newest(honest: Run) -> TrustedHead:
    """The head that the honest run ends with."""
    return TrustedHead(honest.ledger.state().head)


@pytest.fixture(scope="session")
def facts(honest: Run) -> dict[int, TrustedContract]:
    """What the honest run's contract says of each round."""
    return {number: read_trusted_contract(honest.ledger, number) for number in range(1, 6)}


@pytest.fixture(scope="session")
def exported(honest: Run, tmp_path_factory: pytest.TempPathFactory) -> dict[int, Path]:
    """A bundle of each round of the honest run; nobody may change them."""
    folder = tmp_path_factory.mktemp("bundles")
    found = {number: folder / f"{number}.tar" for number in range(1, 6)}
    for number, path in found.items():
        export_bundle(honest.ledger, honest.blobs, number, path)
    return found
