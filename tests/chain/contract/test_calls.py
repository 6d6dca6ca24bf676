"""Calls and logs: each is decoded as it was encoded, by pencil and by the general decoder."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import pytest
from eth_abi.abi import decode, encode
from eth_abi.exceptions import DecodingError
from eth_utils.abi import collapse_if_tuple
from hypothesis import given, settings
from hypothesis import strategies as st

from ledger.chain.contract import abi, codec
from ledger.chain.contract.codec import Call, decode_log, encode_log
from ledger.chain.ports import Log
from ledger.protocol import ledger_state
from ledger.protocol.errors import ChainError
from ledger.protocol.types import (
    ClientId,
    Commitment,
    Digest,
    Phase,
    Scores,
    SignedCommitment,
    Vote,
    VoteKind,
)
from tests.faults import times
from tests.support.keys import ids


def digest(number: int) -> Digest:
    return Digest(bytes([number]) * 32)


def signature(number: int) -> bytes:
    return bytes([number]) * 32 + bytes([number & 127]) * 32 + bytes([27 + number % 2])


def certificate(number: int) -> ledger_state.SubmittedCertificate:
    replies = (signature(number + 1), signature(number + 2))
    return ledger_state.SubmittedCertificate(
        number, digest(number), signature(number), 0b101, replies
    )


def report(first: Vote | Scores, second: Vote | Scores) -> ledger_state.EquivocationReport:
    signed = [
        ledger_state.SignedStatement(one, signature(n)) for n, one in enumerate((first, second))
    ]
    return ledger_state.EquivocationReport(ClientId(9), signed[0], signed[1])


def vote(kind: VoteKind, number: int, phase: int = 2) -> Vote:
    where = (kind, 5, cast("Phase", phase), 3, digest(1))
    return Vote(*where, digest(number), digest(number + 1))


def scores(number: int) -> Scores:
    return Scores(5, ClientId(9), digest(1), digest(2), digest(number))


DECISION = ledger_state.SubmittedDecision(
    committee=ids(4, 2, 7),
    ranking=(3, 5, 8),
    base=digest(1),
    model=digest(2),
    updates_root=digest(3),
    scores_root=digest(4),
    reveal=digest(5),
    record=digest(6),
    incidents=digest(7),
)
CALLS: tuple[Call, ...] = (
    codec.RegisterCall((1 << 64 | 5, 2 << 64 | 6), digest(1)),
    codec.CommitCall(3, ()),
    codec.CommitCall(
        3,
        tuple(
            SignedCommitment(Commitment(3, ClientId(n), digest(n)), signature(n)) for n in (4, 5)
        ),
    ),
    codec.DecideCall(4, DECISION, (certificate(1), certificate(4))),
    codec.AbandonCall(7),
    codec.ReportCall(report(vote(VoteKind.REQUEST, 1), vote(VoteKind.REQUEST, 2))),
    codec.ReportCall(report(vote(VoteKind.REPLY, 1, 77), vote(VoteKind.REPLY, 2, 77))),
    codec.ReportCall(report(scores(1), scores(2))),
)
EVENTS: tuple[ledger_state.Event, ...] = (
    ledger_state.ClientsRegistered(ClientId(3), (1, 2)),
    ledger_state.LedgerOpened(digest(1), digest(2), ids(3, 1, 2), digest(3)),
    ledger_state.UpdatesCommitted(2, ids(7, 5), (digest(7), digest(5))),
    ledger_state.RoundDecided(
        round=4,
        ranking=(1 << 32 | 8, 2 << 32 | 6, 3 << 32 | 7),
        accepted=ids(6, 7),
        next_committee=ids(8, 6, 7),
        base=digest(1),
        model=digest(2),
        updates_root=digest(3),
        scores_root=digest(4),
        reveal=digest(5),
        record=digest(6),
        incidents=digest(7),
        views=(0, 2),
        primaries=(ClientId(4), ClientId(2)),
        signers=(0b11, 0b110),
        next_seed=digest(8),
        head=digest(9),
    ),
    ledger_state.RoundAbandoned(4, ids(3, 1), digest(1), digest(2)),
    ledger_state.ClientBanned(4, ClientId(9), digest(1)),
)


@pytest.mark.parametrize("call", CALLS, ids=lambda call: type(call).__name__)
def test_a_call_is_decoded_as_it_was_encoded(call: Call) -> None:
    assert codec.decode_call(codec.encode_call(call)) == call


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: type(event).__name__)
def test_event_is_decoded_from_its_log_as_it_was_encoded(event: ledger_state.Event) -> None:
    topics, data = encode_log(event)
    log = Log("0x", topics, data, 3, digest(1), digest(2), 0)
    assert decode_log(log).event == event


@pytest.mark.parametrize("data", [b"", b"\0" * 4, abi.selector("state"), bytes(40)])
def test_what_is_none_of_the_five_is_no_call(data: bytes) -> None:
    with pytest.raises(ChainError, match="is not a transaction of the contract"):
        codec.decode_call(data)


def test_arguments_that_are_cut_off_in_their_head_are_no_call() -> None:
    for call in CALLS:
        with pytest.raises(ChainError, match="arguments of"):
            codec.decode_call(codec.encode_call(call)[:32])


def test_missing_bytes_of_a_list_are_zero() -> None:
    call = CALLS[2]
    assert isinstance(call, codec.CommitCall)
    last = replace(call.signed[-1], signature=call.signed[-1].signature[:63] + b"\0\x1c")
    read = codec.decode_call(codec.encode_call(call)[:-1])
    assert read == replace(call, signed=(*call.signed[:-1], last))


def test_a_list_that_is_too_long_is_no_call() -> None:
    data = bytearray(codec.encode_call(CALLS[0]))
    data[68:100] = (2**255).to_bytes(32)
    with pytest.raises(ChainError, match="elements"):
        codec.decode_call(bytes(data))


def test_commitments_and_signatures_of_two_lengths_are_no_call() -> None:
    data = abi.call_data("commit_updates", 1, [(0, digest(1))], [])
    with pytest.raises(ChainError, match="1 commitments have 0 signatures"):
        codec.decode_call(data)


def test_an_unknown_kind_of_statement_is_no_call() -> None:
    statement = (digest(1), digest(2), digest(3), digest(4))
    data = abi.call_data("report_equivocation", 1, 4, 1, 1, 0, digest(1), statement, statement)
    with pytest.raises(ChainError, match="4 is not a kind of statement"):
        codec.decode_call(data)


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

    def read(types: tuple[str, ...], data: bytes) -> tuple[Any, ...]:
        return abi.decoded(types, data, "data")

    data = word(7) + word(64) + word(2) + word(8) + word(9)
    assert read(("uint256", "uint256[]"), data) == (7, (8, 9))
    for other in (data[:-1], data + b"\0", word(7) + word(96) + data[64:], data[:64] + word(3)):
        with pytest.raises(ChainError):
            read(("uint256", "uint256[]"), other)
    assert read(("uint64",), word(2**64 - 1)) == (2**64 - 1,)
    with pytest.raises(ChainError, match="out of range"):
        read(("uint64",), word(2**64))
    with pytest.raises(ChainError, match="another layout"):
        read(("uint256[]", "uint256[]"), data)
    assert abi.encoded(("uint256", "uint256[]"), (7, [8, 9])) == data
    two = word(64) + word(128) + word(1) + word(8) + word(1) + word(9)
    assert read(("uint256[]", "uint256[]"), two) == ((8,), (9,))
    with pytest.raises(ChainError, match="another layout"):
        read(("uint256[]", "uint256[]"), two + word(0))
    assert abi.encoded(("uint256[]", "uint256[]"), ((8,), (9,))) == two


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        *(("uint8", value) for value in (-1, 256, True, 1.0, "1")),
        *(("bool", value) for value in (0, 1, 2, "yes")),
        *(("bytes32", value) for value in (bytes(31), bytes(33), 0)),
        ("uint8[]", [256]),
        *(("(uint8,uint8)", value) for value in ((1,), (1, 2, 3))),
    ],
)
def test_a_value_of_another_type_or_range_is_refused(kind: str, value: object) -> None:
    with pytest.raises(ValueError, match=r"another type|a tuple of"):
        abi.encoded((kind,), (value,))


@pytest.mark.parametrize("name", LAYOUTS)
@settings(max_examples=times(15, 2_000))
@given(data=st.data())
def test_it_decodes_what_the_general_decoder_decodes_to_the_same(
    name: str, data: st.DataObject
) -> None:
    types = types_of(name)
    values = data.draw(st.tuples(*map(values_of, types)))
    encoded = encode(types, values)
    assert abi.encoded(types, values) == encoded
    assert abi.decoded(types, encoded, name) == decode(types, encoded)
    place = data.draw(st.integers(0, len(encoded) - 1))
    changed = encoded[:place] + data.draw(st.binary(max_size=40)) + encoded[place + 1 :]
    try:
        found = abi.decoded(types, changed, name)
    except ChainError:
        return
    try:
        assert found == decode(types, changed)
    except DecodingError as error:
        raise AssertionError(f"the general decoder refuses it: {error}") from error
