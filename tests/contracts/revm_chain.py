"""The contract on another machine: revm, in this process, in the place of py-evm."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NoReturn

import pytest

from ledger.chain.ports import Block, ChainBase, Log, Receipt, TransactionRevertedError
from ledger.protocol import encoding
from ledger.protocol.encoding import checksum
from ledger.protocol.errors import ChainError

if TYPE_CHECKING:
    import pyrevm
else:
    pyrevm = pytest.importorskip("pyrevm", reason="pyrevm is not installed")

CHAIN_ID = 31337
START = 1_700_000_000
BLOCK_GAS = 30_000_000
HARDFORK = "CANCUN"
_PADDING = 33
_REVERTED = re.compile(r"Revert \{ gas_used: (\d+), output: 0x([0-9a-f]*) \}")


class RevmChain(ChainBase):
    """A chain in memory, which sends from one account."""

    chain_id = CHAIN_ID
    sender = checksum(encoding.keccak256(b"PUBLIC TEST ACCOUNT")[12:])

    def __init__(self) -> None:
        configuration = pyrevm.CfgEnv(chain_id=CHAIN_ID)
        self._evm = pyrevm.EVM(pyrevm.Env(cfg=configuration), spec_id=HARDFORK)
        self._number = 0

    def head(self) -> Block:
        return self._block(self._number)

    def mine(self, blocks: int) -> None:
        """Let so many empty blocks pass."""
        self._number += blocks

    def call(self, to: str, data: bytes, block_number: int | None = None) -> bytes:
        """Return what a contract answers at the head."""
        if block_number is not None:
            raise ChainError("this chain keeps no history")
        self._set_block(self._number)
        try:
            return self._evm.message_call(self.sender, to, data, gas=BLOCK_GAS, is_static=True)
        except RuntimeError as error:
            _refuse(error)

    def code(self, address: str) -> bytes:
        """Return a contract's runtime code; empty where there is none."""
        code = self._evm.get_code(address) or bytes(_PADDING)
        # Revm answers with the padding that it runs on; the account's hash is that of the code.
        own = bytes(code[:-_PADDING])
        assert not own or encoding.keccak256(own) == self._evm.basic(address).code_hash
        return own

    def send(self, to: str | None, data: bytes, gas: int, *, value: int = 0) -> Receipt:
        """Run a transaction in a block of its own."""
        self._number += 1
        self._set_block(self._number)
        self._evm.set_balance(self.sender, value)
        address: str | None = None
        try:
            if to is None:
                address = self._evm.deploy(self.sender, data, value, gas)
            else:
                self._evm.message_call(self.sender, to, data, value, gas)
        except RuntimeError as error:
            _refuse(error)
        found = self._evm.result
        assert found is not None, "what has run has a result"
        own = encoding.keccak256(encoding.u64(self._number) + data)
        logs = tuple(self._log(log, own, index) for index, log in enumerate(found.logs))
        created = None if address is None else checksum(bytes.fromhex(address[2:]))
        return Receipt(own, self._number, 1, found.gas_used, created, logs)

    def _set_block(self, number: int) -> None:
        block = pyrevm.BlockEnv(number=number, timestamp=START + number, gas_limit=BLOCK_GAS)
        self._evm.set_block_env(block)

    def _block(self, number: int) -> Block:
        parent = self._hash(number - 1) if number else bytes(32)
        return Block(number, self._hash(number), parent, START + number)

    def _hash(self, number: int) -> bytes:
        return self._evm.block_hash(number)

    def _log(self, log: pyrevm.Log, transaction: bytes, index: int) -> Log:
        topics, data = log.data
        return Log(
            checksum(bytes.fromhex(log.address[2:])),
            tuple(topics),
            data,
            self._number,
            self._hash(self._number),
            transaction,
            index,
        )


def _refuse(error: RuntimeError) -> NoReturn:
    found = _REVERTED.fullmatch(str(error))
    # Out of gas, say: no revert, and no refusal of the contract's.
    assert found is not None, f"the machine halted: {error}"
    raise TransactionRevertedError(bytes.fromhex(found[2])) from None
