"""`ecrecover` by coincurve recovers what py-evm's recovers, and nothing else."""

from __future__ import annotations

from coincurve import PublicKey
from eth.vm import opcode_values as op
from eth_keys.datatypes import PrivateKey
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.chain.embedded.engine.programs import Arena, call, push
from tests.chain.probe import words
from tests.faults import times

ORDER = 0xFFFFFFFF_FFFFFFFF_FFFFFFFF_FFFFFFFE_BAAEDCE6_AF48A03B_BFD25E8C_D0364141
HALF = ORDER // 2
EDGES = st.sampled_from([0, 1, 2, HALF, HALF + 1, ORDER - 1, ORDER, ORDER + 1, 2**256 - 1])


def recovered(arena: Arena, data: bytes, gas: int = 3_000) -> bytes:
    """Call the contract with these bytes on both machines; return its answer."""
    copied = push(len(data)) + push(0) + push(0) + bytes([op.CALLDATACOPY])
    code = copied + call(op.STATICCALL, 1, gas, 0, (0, len(data), 0x200, 32))
    return bytes(arena.compare(code, 50_000, data=data)["return data"])


def test_a_signature_gives_its_signers_address(arena: Arena) -> None:
    key, digest = PrivateKey(b"\x05" * 32), b"\x11" * 32
    signature = key.sign_msg_hash(digest)
    data = digest + words(signature.v + 27, signature.r, signature.s)
    address = key.public_key.to_canonical_address()
    assert recovered(arena, data) == address.rjust(32, b"\0")
    assert recovered(arena, data, 2_999) == b""
    # What is missing is zeros: of a truncated s it makes another signature.
    for length in (100, 120, 127):
        assert recovered(arena, data[:length]) not in {b"", address.rjust(32, b"\0")}
    # A high s is another signature of the same message; the contract takes it.
    other = digest + words(28 - signature.v, signature.r, ORDER - signature.s)
    assert recovered(arena, other) == address.rjust(32, b"\0")


def test_only_two_of_the_four_recovery_ids_are_taken(arena: Arena) -> None:
    signatures = (words(r, 1) for r in range(1, 50))
    signature = next(each for each in signatures if _recovers(each + b"\x02"))
    for v in (29, 30):
        assert recovered(arena, bytes(32) + words(v) + signature) == b""


def _recovers(signature: bytes) -> bool:
    try:
        PublicKey.from_signature_and_message(signature, bytes(32), hasher=None)
    except ValueError:
        return False
    return True


@settings(max_examples=times(60, 5_000), deadline=None)
@given(
    digest=st.binary(min_size=32, max_size=32),
    v=st.one_of(st.sampled_from([27, 28]), st.sampled_from([0, 1, 26, 29, 256 + 27, 2**255])),
    r=st.one_of(EDGES, st.integers(0, 2**256 - 1)),
    s=st.one_of(EDGES, st.integers(0, 2**256 - 1)),
    length=st.one_of(st.just(128), st.integers(0, 160)),
)
@example(digest=bytes(32), v=27, r=0, s=0, length=128)
@example(digest=bytes(32), v=27, r=1, s=1, length=128)
@example(digest=b"\xff" * 32, v=28, r=ORDER, s=1, length=128)
def test_any_input_gives_py_evms_answer(
    arena: Arena, digest: bytes, v: int, r: int, s: int, length: int
) -> None:
    recovered(arena, (digest + words(v, r, s)).ljust(160, b"\x07")[:length])
