"""Addresses are taken in one case, or with their right EIP-55 checksum; bytes are compared."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ledger.chain.addresses import checksum, eip55, to_canonical
from ledger.chain.contract.committee_ledger import CommitteeLedger
from ledger.chain.embedded.embedded_chain import EmbeddedChain
from ledger.protocol.errors import ChainError

if TYPE_CHECKING:
    from pathlib import Path

ADDRESS = "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed"
"""The first example of EIP-55."""


SPELLINGS = [
    ADDRESS,
    ADDRESS.lower(),
    f"0x{ADDRESS[2:].upper()}",
    ADDRESS.upper(),
    f"0X{ADDRESS[2:]}",
    ADDRESS[2:],
    ADDRESS[2:].lower(),
]


@pytest.mark.parametrize("text", SPELLINGS)
def test_one_address_has_many_spellings(text: str) -> None:
    assert checksum(to_canonical(text)) == eip55(text) == ADDRESS


@pytest.mark.parametrize("text", SPELLINGS)
def test_a_contract_has_one_address_however_it_was_named(text: str, tmp_path: Path) -> None:
    with EmbeddedChain.create(tmp_path / "chain.sqlite") as chain:
        assert CommitteeLedger(chain, text).address == ADDRESS


@pytest.mark.parametrize("text", ["0x5aaeb6053F3E94C9b9A09f33669435E7Ef1BeAed", ADDRESS.swapcase()])
def test_a_wrong_checksum_is_refused(text: str) -> None:
    with pytest.raises(ChainError, match="its checksum is wrong"):
        to_canonical(text)


@pytest.mark.parametrize("text", ["0x12", "", "no", f"{ADDRESS}\n", f"0x{ADDRESS}", "\uff10" * 40])
def test_what_is_no_address_at_all_is_refused(text: str) -> None:
    with pytest.raises(ChainError, match="is not an address"):
        to_canonical(text)
