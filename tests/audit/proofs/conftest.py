from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ledger.audit.proofs.trust import TrustedContract, TrustedHead, read_trusted_contract

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
