"""Event data decoded word by word: what the general decoder says, or nothing."""

from __future__ import annotations

from typing import Any

import pytest
from eth_abi.abi import decode, encode
from eth_abi.exceptions import DecodingError
from hypothesis import given, settings
from hypothesis import strategies as st

from ledger.chain.contract import abi
from ledger.chain.contract.abi_words import decode_words
from tests.faults import times

EVENTS = (
    "ClientsRegistered",
    "LedgerOpened",
    "UpdatesCommitted",
    "RoundDecided",
    "RoundAbandoned",
    "ClientBanned",
)
NUMBERS, DIGESTS = st.integers(0, 2**256 - 1), st.binary(min_size=32, max_size=32)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "bytes32": DIGESTS,
    "uint64": st.integers(0, 2**64 - 1),
    "uint256[]": st.lists(NUMBERS, max_size=4),
    "uint256": NUMBERS,
    "(uint256,uint256)": st.tuples(NUMBERS, NUMBERS),
    "uint256[2]": st.tuples(NUMBERS, NUMBERS),
    "uint32[2]": st.tuples(*[st.integers(0, 2**32 - 1)] * 2),
    "(uint256,bytes32)[]": st.lists(st.tuples(NUMBERS, DIGESTS), max_size=4),
}


def test_a_pencil_can_decode_it() -> None:
    def word(value: int) -> bytes:
        return value.to_bytes(32)

    data = word(7) + word(64) + word(2) + word(8) + word(9)
    assert decode_words(("uint256", "uint256[]"), data) == (7, (8, 9))
    for other in (data[:-1], data + b"\0", word(7) + word(96) + data[64:], data[:64] + word(3)):
        assert decode_words(("uint256", "uint256[]"), other) is None, "it is laid out otherwise"
    assert decode_words(("uint64",), word(2**64 - 1)) == (2**64 - 1,)
    assert decode_words(("uint64",), word(2**64)) is None
    assert decode_words(("string",), data) is None
    assert decode_words(("uint256[]", "uint256[]"), data) is None


@pytest.mark.parametrize("event", EVENTS)
@settings(max_examples=times(15, 2_000))
@given(data=st.data())
def test_it_decodes_what_the_general_decoder_decodes_to_the_same(
    event: str, data: st.DataObject
) -> None:
    _, _, types = abi.event_layout(event)
    values = data.draw(st.tuples(*(VALUES[kind] for kind in types)))
    encoded = encode(types, values)
    assert decode_words(types, encoded) == decode(types, encoded), "no event takes the long way"
    place = data.draw(st.integers(0, len(encoded) - 1))
    changed = encoded[:place] + data.draw(st.binary(max_size=40)) + encoded[place + 1 :]
    found = decode_words(types, changed)
    if found is None:
        return
    try:
        assert found == decode(types, changed)
    except DecodingError as error:
        raise AssertionError(f"the general decoder refuses it: {error}") from error
