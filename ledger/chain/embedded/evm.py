"""The EVM in this process: py-evm's Prague chain over our own storage.

Fork, gas limit and genesis equal eth-tester's (a test compares them) without the import of its
accounts, key files and curves. Some parts of py-evm's machine are replaced by faster ones
(`engine`); the reference chain is without them and makes the same blocks.

Transactions need a sender with funds, but the sender proves nothing: the ledger trusts only the
clients' signatures inside the call data. The accounts' keys are public on purpose: they are derived
from a sentence in this file, are worthless, and must never hold value on another chain.
"""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from eth import constants
from eth.chains.base import MiningChain
from eth.db.atomic import AtomicDB, AtomicDBWriteBatch
from eth.db.backends.base import BaseAtomicDB
from eth.db.backends.memory import MemoryDB
from eth.exceptions import PyEVMError, Revert, VMError
from eth.vm.forks.london.headers import calculate_expected_base_fee_per_gas
from eth.vm.forks.prague import PragueVM
from eth.vm.forks.prague.state import PragueState
from eth.vm.spoof import SpoofTransaction
from eth_keys.datatypes import PrivateKey
from eth_utils.exceptions import ValidationError

from ledger.chain.embedded import reader
from ledger.chain.embedded.chain_store import ChainStore, Overlay, TrieNodes
from ledger.chain.embedded.engine import FastAccountDB, FastComputation
from ledger.chain.ports import TransactionRevertedError
from ledger.protocol.encoding import keccak, to_canonical

if TYPE_CHECKING:
    from eth import abc
    from eth.abc import BlockHeaderAPI as Header
    from eth.abc import SignedTransactionAPI as Signed
    from eth.typing import AccountDetails, HeaderParams
    from eth.vm.state import BaseState


def base_fee(header: Header) -> int:
    """Return the base fee of a block, in wei per gas."""
    return header.base_fee_per_gas or 0


def next_base_fee(header: Header) -> int:
    """Return the base fee of the next block, in wei per gas."""
    return int(calculate_expected_base_fee_per_gas(header))


class OverlayDatabase(Overlay, BaseAtomicDB):
    """py-evm's database over the store: a block's writes, which precede it, are collected."""

    def __init__(self, store: ChainStore) -> None:
        super().__init__(store)
        self.nodes = TrieNodes(self)

    @contextlib.contextmanager
    def atomic_batch(self) -> Iterator[abc.AtomicWriteBatchAPI]:
        """Yield a database whose writes become visible together, or not at all."""
        with AtomicDBWriteBatch._commit_unless_raises(self) as batch:
            yield batch


def execute(chain: EvmChain, call: reader.ContractCall, block_hash: bytes) -> abc.ComputationAPI:
    """Run a call on the state after a block; return its output, error and gas."""
    header = chain.get_block_header_by_hash(block_hash)  # type: ignore[arg-type]
    machine, origin = chain.get_vm(header), to_canonical(call.sender)
    contract = to_canonical(call.to) if call.to is not None else constants.ZERO_ADDRESS
    return machine.execute_bytecode(
        origin=origin,
        gas_price=0,
        gas=header.gas_limit if call.gas is None else min(call.gas, header.gas_limit),
        to=contract,
        sender=origin,
        value=call.value,
        data=call.data if call.to is not None else b"",
        code=machine.state.get_code(contract) if call.to is not None else call.data,
        code_address=contract,
    )


def failure_of(computation: abc.ComputationAPI) -> str | None:
    """Return a call's failure as `CallAnswer` has it."""
    if not computation.is_error:
        return None
    error = computation.error
    return "" if isinstance(error, Revert) else f"{error!r}"[:200]


def estimate_gas(chain: EvmChain, call: reader.ContractCall, block_hash: bytes) -> int:
    """Return the gas that a transaction would need on the state after a block."""
    header = chain.get_block_header_by_hash(block_hash)  # type: ignore[arg-type]
    machine, origin = chain.get_vm(header), to_canonical(call.sender)
    unsigned = machine.get_transaction_builder().create_unsigned_transaction(
        nonce=machine.state.get_nonce(origin),
        gas_price=0,
        gas=21_000,
        to=constants.CREATE_CONTRACT_ADDRESS if call.to is None else to_canonical(call.to),
        value=call.value,
        data=call.data,
    )
    try:
        return chain.estimate_gas(SpoofTransaction(unsigned, from_=origin), header)  # type: ignore[arg-type]
    except VMError as error:
        data = error.args[0] if isinstance(error, Revert) and error.args else b""
        raise TransactionRevertedError(data if isinstance(data, bytes) else b"") from error


# Private keys of the accounts that genesis funds; for tests and local chains only.
TEST_KEYS: tuple[bytes, ...] = tuple(
    keccak(b"PUBLIC TEST KEY of the embedded chain, no secret: relayer %d" % number)
    for number in range(10)
)
GENESIS_BALANCE_WEI = 10**27  # of each account: more than any run can spend


def address_of(key: bytes) -> str:
    """Return the EIP-55 address of a 32-byte private key."""
    return PrivateKey(key).public_key.to_checksum_address()


# py-evm raises the recursion limit to 100,000 for the whole process; then a few bytes of nested
# JSON crash it instead of raising. 1,024 nested EVM calls need some 13,000 frames.
sys.setrecursionlimit(min(sys.getrecursionlimit(), 20_000))

COINBASE = b"\x00" * 20
# Parent beacon block root: zeros, where py-evm would put the empty trie's root.
BEACON_ROOT = constants.ZERO_HASH32
REFUSALS = (ValidationError, VMError)  # errors of py-evm for a transaction that cannot be mined

DAMAGE: tuple[type[Exception], ...] = (*reader.DAMAGE, PyEVMError)
"""Errors that damaged bytes cause in py-evm, and in what reads them."""


@dataclass(frozen=True, slots=True)
class BlockContents:
    """A block with its executed transactions."""

    header: Header
    included: tuple[Signed, ...]
    receipts: tuple[abc.ReceiptAPI, ...]
    computations: tuple[abc.ComputationAPI, ...]
    refused: frozenset[bytes]  # hashes of transactions that no later block can hold either


class _FastState(PragueState):
    computation_class = FastComputation
    account_db_class = FastAccountDB


class _SharedSecondsVM(PragueVM):
    """Prague whose blocks may share a second: many of them would date the chain into the future."""

    _state_class: type[BaseState] = _FastState

    @classmethod
    def validate_header(cls, header: Header, parent_header: Header) -> None:
        """Verify a header by Prague's rules, except that it may have its parent's time."""
        if header.timestamp == parent_header.timestamp:
            header = header.copy(timestamp=parent_header.timestamp + 1)
        super().validate_header(header, parent_header)

    def fill(
        self, transactions: Sequence[Signed], base_header: Header, *, must_fit: bool
    ) -> BlockContents:
        """Execute transactions in order, each account's ascending by nonce, in an empty block.

        For one that cannot be in the block, raise py-evm's error if it must fit. Else skip it with
        all later ones of its account.
        """
        header = base_header
        included: list[Signed] = []
        results: list[tuple[abc.ReceiptAPI, abc.ComputationAPI]] = []
        skipped: set[bytes] = set()
        refused: set[bytes] = set()
        for transaction in transactions:
            if not must_fit:
                sender = bytes(transaction.sender)
                is_paid = transaction.max_fee_per_gas >= base_fee(header)
                fits = is_paid and header.gas_used + transaction.gas <= header.gas_limit
                if sender in skipped or not fits:
                    skipped.add(sender)
                    continue
                try:
                    # Before execution, which cannot be undone.
                    self.state.get_transaction_executor().validate_transaction(transaction)
                except REFUSALS:
                    skipped.add(sender)
                    refused.add(bytes(transaction.hash))
                    continue
            receipt, computation = self.apply_transaction(header, transaction)
            header = self.add_receipt_to_header(header, receipt)
            included.append(transaction)
            results.append((receipt, computation))
        receipts, computations = zip(*results, strict=True) if results else ((), ())
        return BlockContents(header, tuple(included), receipts, computations, frozenset(refused))


class _ReferenceVM(_SharedSecondsVM):
    """The same machine, made of py-evm's parts only."""

    _state_class = PragueState


class EvmChain(MiningChain):
    """Prague from block 0, with a constant gas limit."""

    vm_configuration = ((constants.GENESIS_BLOCK_NUMBER, _SharedSecondsVM),)

    def create_header_from_parent(
        self, parent_header: Header, **header_params: HeaderParams
    ) -> Header:
        fixed = header_params | {"gas_limit": parent_header.gas_limit}
        return super().create_header_from_parent(parent_header, **fixed)

    def mine_filled(self, transactions: Sequence[Signed], *, must_fit: bool) -> BlockContents:
        machine = self.get_vm(self._custom_header(self.header, coinbase=COINBASE))
        assert isinstance(machine, _SharedSecondsVM), "the only machine of this chain"
        filled = machine.fill(transactions, self.header, must_fit=must_fit)
        contents = (filled.header, filled.included, filled.receipts)
        block = machine.set_block_transactions_and_withdrawals(machine.get_block(), *contents)
        sealed = machine.mine_block(block, coinbase=COINBASE).block
        # Not `self.persist_block`: it would validate the machine's block once more.
        self.chaindb.persist_block(sealed)
        self.header = self.create_header_from_parent(sealed.header)
        return replace(filled, header=sealed.header)


@functools.cache
def chain_class(chain_id: int, *, is_reference: bool = False) -> type[EvmChain]:
    """Return the chain class with an EIP-155 id; the slower reference has py-evm's parts alone."""
    named: type[EvmChain] = EvmChain.configure("LedgerChain", chain_id=chain_id)
    if is_reference:
        named.vm_configuration = ((constants.GENESIS_BLOCK_NUMBER, _ReferenceVM),)
    return named


def make_genesis(
    chain_id: int, gas_limit: int, timestamp: int, balances: Mapping[bytes, int]
) -> tuple[bytes, dict[bytes, bytes]]:
    """Return the hash of a block 0 with these balances, in wei, and the EVM's storage after it."""
    parameters: dict[str, HeaderParams] = {
        "coinbase": constants.GENESIS_COINBASE,
        "difficulty": constants.POST_MERGE_DIFFICULTY,
        "extra_data": constants.GENESIS_EXTRA_DATA,
        "gas_limit": gas_limit,
        "mix_hash": constants.POST_MERGE_MIX_HASH,
        "nonce": constants.POST_MERGE_NONCE,
        "receipt_root": constants.BLANK_ROOT_HASH,
        "timestamp": timestamp,
        "transaction_root": constants.BLANK_ROOT_HASH,
        "parent_beacon_block_root": BEACON_ROOT,
    }
    state: dict[bytes, AccountDetails] = {
        address: {"balance": balance, "nonce": 0, "code": b"", "storage": {}}
        for address, balance in balances.items()
    }
    values: dict[bytes, bytes] = {}
    database = AtomicDB(MemoryDB(values))
    chain = chain_class(chain_id).from_genesis(database, parameters, state)  # type: ignore[arg-type]
    return bytes(chain.get_canonical_head().hash), values
