"""Addresses are taken in one case, or with their right EIP-55 checksum."""

from __future__ import annotations

import pytest

from ledger.chain.addresses import checksum, to_canonical
from ledger.protocol.errors import ChainError

ADDRESS = "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed"
"""The first example of EIP-55."""


@pytest.mark.parametrize("text", [ADDRESS, ADDRESS.lower(), "0x" + ADDRESS[2:].upper()])
def test_one_address_in_three_spellings(text: str) -> None:
    assert checksum(to_canonical(text)) == ADDRESS


@pytest.mark.parametrize("text", ["0x5aaeb6053F3E94C9b9A09f33669435E7Ef1BeAed", "0x12", "", "no"])
def test_a_wrong_checksum_or_no_address_at_all_is_refused(text: str) -> None:
    with pytest.raises(ChainError, match="is not an address"):
        to_canonical(text)
