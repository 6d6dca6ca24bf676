"""Code on a chain: the artefact's with this deployment's values after it, and nothing else."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

import pytest

from ledger.chain.contract.deployment import runtime_violation
from ledger.protocol.ledger_state import Deployment
from ledger.protocol.types import AcceptanceForm, Address, Beacon, Digest
from tests.audit.runs import Run

if TYPE_CHECKING:
    from collections.abc import Iterator

OTHERS: dict[str, Any] = {
    "config": Digest(b"\x01" * 32),
    "registry": Digest(b"\x01" * 32),
    "form": AcceptanceForm.LAST,
    "beacon": Beacon.BLOCK,
    "model": Digest(b"\x01" * 32),
}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    run = Run.on_revm(tmp_path_factory.mktemp("code"))
    with run.chain:
        yield run


def test_the_code_of_a_deployed_contract_raises_no_doubt(run: Run) -> None:
    code = run.chain.code(run.ledger.address)
    assert runtime_violation(code, run.ledger.deployment(), run.manifest.domain()) is None


@pytest.mark.parametrize("name", [field.name for field in fields(Deployment)])
def test_code_with_another_value_is_another_deployment_s(run: Run, name: str) -> None:
    code, true = run.chain.code(run.ledger.address), run.ledger.deployment()
    other = replace(true, **{name: OTHERS.get(name, 77)})
    doubt = runtime_violation(code, other, run.manifest.domain())
    assert doubt == "its immutables are not those of this deployment"


def test_code_of_another_address_or_chain_is_another_deployment_s(run: Run) -> None:
    code, true, domain = (
        run.chain.code(run.ledger.address),
        run.ledger.deployment(),
        run.manifest.domain(),
    )
    for other in (replace(domain, chain_id=1), replace(domain, contract=Address(bytes(20)))):
        assert runtime_violation(code, true, other) is not None


def test_other_code_and_no_code_are_told_apart(run: Run) -> None:
    code, true, domain = (
        run.chain.code(run.ledger.address),
        run.ledger.deployment(),
        run.manifest.domain(),
    )
    assert runtime_violation(b"", true, domain) == "there is no code"
    assert runtime_violation(b"\0" + code[1:], true, domain) == "it is not the artefact's"
    assert runtime_violation(code + b"\0", true, domain) is not None
