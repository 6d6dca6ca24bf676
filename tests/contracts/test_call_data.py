"""Call data in any layout: the reader takes what compiled code takes, byte for byte."""

from __future__ import annotations

from functools import cache
from itertools import product
from pathlib import Path

import pytest
from eth_utils.abi import get_abi_input_types
from hypothesis import example, given, settings
from hypothesis import strategies as st

import contracts.build
from ledger.chain.contract import abi, codec
from ledger.chain.ports import TransactionRevertedError
from ledger.protocol.errors import ChainError
from tests.chain.contract.test_calls import CALLS
from tests.contracts.revm_chain import RevmChain

FUNCTIONS = {
    abi.selector(name): name
    for name in (
        "register_clients",
        "commit_updates",
        "decide",
        "abandon_round",
        "report_equivocation",
    )
}
DATA = [codec.encode_call(call) for call in CALLS]
OFFSETS = (
    *range(0, 260, 4),
    1_000,
    *(2**bits for bits in (8, 16, 32, 40, 64, 128, 254, 255)),
    *(2**256 - below for below in (1, 2, 3, 4, 5, 31, 32, 36, 64)),
)
EACH = pytest.mark.parametrize("data", DATA, ids=lambda data: FUNCTIONS[data[:4]])
LONGEST_OF_DECIDE = 160


@cache
def echo() -> tuple[RevmChain, str]:
    """Return a contract with the ledger's functions that returns the arguments it has read."""
    vyper = pytest.importorskip("vyper", reason="the compiler is in the dev extra")
    from vyper.compiler.input_bundle import FilesystemInputBundle

    bundle = FilesystemInputBundle([contracts.build.HERE, Path(__file__).parent])
    source = bundle.load_file("echo.vy")
    compiled = vyper.compile_from_file_input(
        source, input_bundle=bundle, output_formats=["bytecode"]
    )
    chain = RevmChain()
    creation = bytes.fromhex(compiled["bytecode"][2:])
    address = chain.send(None, creation, 8_000_000).contract_address
    assert address is not None
    return chain, address


def read_by_code(data: bytes) -> bytes | None:
    """Return the encoding of the arguments that compiled code reads; None if it refuses them."""
    chain, address = echo()
    try:
        answer = chain.call(address, data)
    except TransactionRevertedError:
        return None
    return answer[64 : 64 + int.from_bytes(answer[32:64])]


def read_by_reader(data: bytes) -> bytes | None:
    """Return the encoding of the arguments that the reader reads; None if it refuses them."""
    name = FUNCTIONS[data[:4]]
    try:
        return abi.call_data(name, *abi.arguments_of(name, data))[4:]
    except ChainError:
        return None


def with_word(data: bytes, word: int, value: int) -> bytes:
    at = 4 + 32 * word
    return data[:at] + value.to_bytes(32) + data[at + 32 :]


def places_of_offsets(data: bytes) -> list[int]:
    """Return the words of the head that hold offsets of lists."""
    places, word = [], 0
    for kind in get_abi_input_types(abi.artifact().abi[FUNCTIONS[data[:4]]]):
        if kind.endswith("[]"):
            places.append(word)
            word += 1
        else:
            word += 1 + kind.count(",")
    return places


@EACH
def test_cut_data_are_read_as_compiled_code_reads_them(data: bytes) -> None:
    for end in range(4, len(data) + 1):
        assert read_by_reader(data[:end]) == read_by_code(data[:end]), end


@EACH
def test_data_with_more_behind_them_are_the_same_call(data: bytes) -> None:
    assert read_by_reader(data + b"more") == read_by_code(data + b"more") == data[4:]


@EACH
def test_any_offset_is_read_as_compiled_code_reads_it(data: bytes) -> None:
    for word, offset in product(places_of_offsets(data), OFFSETS):
        moved = with_word(data, word, offset)
        assert read_by_reader(moved) == read_by_code(moved), (word, offset)


@pytest.mark.parametrize("offset", [2**40, 2**255])
def test_an_offset_behind_the_end_leads_to_an_empty_list(offset: int) -> None:
    data = abi.call_data("register_clients", [1, 2], bytes(32))
    assert abi.arguments_of("register_clients", with_word(data, 0, offset)) == ((), bytes(32))


def test_two_arrays_in_the_other_order_are_the_same_call() -> None:
    data = DATA[2]
    first, second = (int.from_bytes(data[at : at + 32]) for at in (36, 68))
    head, commitments, signatures = (
        data[: 4 + first],
        data[4 + first : 4 + second],
        data[4 + second :],
    )
    moved = with_word(with_word(head, 1, first + len(signatures)), 2, first)
    moved += signatures + commitments
    assert codec.decode_call(moved) == CALLS[2]
    assert read_by_reader(moved) == read_by_code(moved) == data[4:]


def test_two_arrays_that_are_exchanged_are_another_call() -> None:
    data = DATA[2]
    first, second = (int.from_bytes(data[at : at + 32]) for at in (36, 68))
    exchanged = with_word(with_word(data, 1, second), 2, first)
    assert read_by_reader(exchanged) == read_by_code(exchanged) != data[4:]


@given(
    st.sampled_from(DATA),
    st.lists(
        st.tuples(
            st.integers(0, 50),
            st.sampled_from(OFFSETS) | st.integers(0, 1_500) | st.integers(0, 2**256 - 1),
        ),
        max_size=4,
    ),
    st.integers(0, 1_500),
    st.binary(max_size=70),
)
@example(DATA[0], [(0, 64 * 2**32)], 0, b"")
@settings(max_examples=300, deadline=None)
def test_random_words_cuts_and_ends_are_read_as_compiled_code_reads_them(
    data: bytes, words: list[tuple[int, int]], cut: int, end: bytes
) -> None:
    for word, value in words:
        data = with_word(data, word % ((len(data) - 4) // 32), value)
    data = data[: max(4, len(data) - cut)] + end
    read, found = read_by_code(data), read_by_reader(data)
    # The ABI does not name the bounds of lists: the reader has one for all.
    assert found == read or (read is None and _has_a_list_over_its_bound(data))


def _has_a_list_over_its_bound(data: bytes) -> bool:
    name = FUNCTIONS[data[:4]]
    kinds = get_abi_input_types(abi.artifact().abi[name])
    lists = (
        value
        for kind, value in zip(kinds, abi.arguments_of(name, data), strict=True)
        if kind.endswith("[]")
    )
    return name == "decide" and any(len(each) > LONGEST_OF_DECIDE for each in lists)
