"""Events and calls, word by word: what the general codec says, or nothing."""

from __future__ import annotations

from typing import Any

import pytest
from eth_abi.abi import decode, encode
from eth_abi.exceptions import DecodingError, EncodingError
from eth_utils.abi import collapse_if_tuple
from hypothesis import given, settings
from hypothesis import strategies as st

from ledger.chain.contract import abi
from ledger.chain.contract.abi_words import decode_words, encode_words
from tests.faults import times

LAYOUTS = (
    "ClientsRegistered",
    "LedgerOpened",
    "UpdatesCommitted",
    "RoundDecided",
    "RoundAbandoned",
    "ClientBanned",
    "register_clients",
    "commit_updates",
    "decide",
    "abandon_round",
    "report_equivocation",
    "constructor",
)
NUMBERS, DIGESTS = st.integers(0, 2**256 - 1), st.binary(min_size=32, max_size=32)
LEAVES: dict[str, st.SearchStrategy[Any]] = {
    "bool": st.booleans(),
    "bytes32": DIGESTS,
    "uint8": st.integers(0, 2**8 - 1),
    "uint32": st.integers(0, 2**32 - 1),
    "uint64": st.integers(0, 2**64 - 1),
    "uint256": NUMBERS,
}


def types_of(name: str) -> tuple[str, ...]:
    """Return the types of a call's arguments, or of what an event's log holds beside topics."""
    entry = abi.artifact().abi[name]
    plain = [one for one in entry["inputs"] if not one.get("indexed")]
    return tuple(map(collapse_if_tuple, plain))


def values_of(kind: str) -> st.SearchStrategy[Any]:
    """Return the values of a type."""
    if kind.endswith("[]"):
        return st.lists(values_of(kind[:-2]), max_size=4)
    if kind.startswith("("):
        return st.tuples(*map(values_of, kind[1:-1].split(",")))
    if kind.endswith("[2]"):
        return st.tuples(*[values_of(kind[:-3])] * 2)
    return LEAVES[kind]


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
    assert encode_words(("uint256", "uint256[]"), (7, [8, 9])) == data
    two = word(64) + word(128) + word(1) + word(8) + word(1) + word(9)
    assert decode_words(("uint256[]", "uint256[]"), two) == ((8,), (9,))
    assert decode_words(("uint256[]", "uint256[]"), two + word(0)) is None
    assert encode_words(("uint256[]", "uint256[]"), ((8,), (9,))) == two


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        *(("uint8", value) for value in (-1, 256, True, 1.0, "1")),
        *(("bool", value) for value in (0, 1, 2, "yes")),
        *(("bytes32", value) for value in (bytes(31), bytes(33), 0)),
        *(("uint8[]", value) for value in (7, [256])),
        *(("(uint8,uint8)", value) for value in ((1,), (1, 2, 3), 1)),
        ("string", "a text"),
    ],
)
def test_what_is_converted_or_refused_is_left_to_the_general_encoder(
    kind: str, value: object
) -> None:
    assert encode_words((kind,), (value,)) is None
    try:
        data = encode([kind], [value])
    except EncodingError:
        with pytest.raises(EncodingError):
            abi.encoded((kind,), (value,))
    else:
        assert abi.encoded((kind,), (value,)) == data


@pytest.mark.parametrize("name", LAYOUTS)
@settings(max_examples=times(15, 2_000))
@given(data=st.data())
def test_it_decodes_what_the_general_decoder_decodes_to_the_same(
    name: str, data: st.DataObject
) -> None:
    types = types_of(name)
    values = data.draw(st.tuples(*map(values_of, types)))
    encoded = encode(types, values)
    assert encode_words(types, values) == encoded, "nothing takes the long way"
    assert decode_words(types, encoded) == decode(types, encoded), "nothing takes the long way"
    place = data.draw(st.integers(0, len(encoded) - 1))
    changed = encoded[:place] + data.draw(st.binary(max_size=40)) + encoded[place + 1 :]
    found = decode_words(types, changed)
    if found is None:
        return
    try:
        assert found == decode(types, changed)
    except DecodingError as error:
        raise AssertionError(f"the general decoder refuses it: {error}") from error
