"""A contract of some forty bytes, written by hand, that does each thing a chain test needs."""

from __future__ import annotations

from eth_abi.abi import encode

from ledger.chain.ports import ChainWriter

TOPIC = (42).to_bytes(32, "big")
REVERT_DATA = bytes.fromhex("08c379a0") + encode(["string"], ["probe: zero is refused"])

_RETURN_SLOT_0 = "36 600c 57 5f54 5f52 6020 5f f3"
_STORE_AND_LOG = "5b 5f35 15 60{refuse:02x} 57 5f35 5f55 5f35 5f52 602035 5f35 602a 6020 5f a3 00"
_REFUSE = "5b 60{size:02x} 60{start:02x} 5f 39 60{size:02x} 5f fd"


def _assemble() -> bytes:
    first = bytes.fromhex(_RETURN_SLOT_0)
    second = len(bytes.fromhex(_STORE_AND_LOG.format(refuse=0)))
    refuse = len(first) + second
    start = refuse + len(bytes.fromhex(_REFUSE.format(size=0, start=0)))
    assert first[2] == len(first), "the jump goes to the next part"
    return (
        first
        + bytes.fromhex(_STORE_AND_LOG.format(refuse=refuse))
        + bytes.fromhex(_REFUSE.format(size=len(REVERT_DATA), start=start))
        + REVERT_DATA
    )


RUNTIME_CODE = _assemble()


def creation_code() -> bytes:
    size = len(RUNTIME_CODE)
    prefix = bytes.fromhex(f"60{size:02x} 80 6009 5f 39 5f f3")
    assert len(prefix) == 9
    return prefix + RUNTIME_CODE


def word(number: int) -> bytes:
    return number.to_bytes(32, "big")


def words(*numbers: int) -> bytes:
    return b"".join(word(number) for number in numbers)


def deploy(chain: ChainWriter) -> str:
    address = chain.send(None, creation_code(), 300_000).contract_address
    assert address is not None
    return address
