"""The EVM in this process: py-evm's Prague chain over our own storage.

Fork, gas limit and genesis equal eth-tester's (a test compares them) without the import of its
accounts, key files and curves. Some parts of py-evm's machine are replaced by faster ones
(`engine`); the reference chain is without them and makes the same blocks.

Transactions need a sender with funds, but the sender proves nothing: the ledger trusts only the
clients' signatures inside the call data. The accounts' keys are public on purpose: they are derived
from a sentence in this file, are worthless, and must never hold value on another chain.
"""

from __future__ import annotations

import functools
import sqlite3
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from eth import constants
from eth.chains.base import MiningChain
from eth.db.atomic import AtomicDB
from eth.db.backends.memory import MemoryDB
from eth.exceptions import PyEVMError, Revert, VMError
from eth.vm.forks.london.headers import calculate_expected_base_fee_per_gas
from eth.vm.forks.prague import PragueVM
from eth.vm.forks.prague.state import PragueState
from eth_keys.datatypes import PrivateKey
from eth_keys.exceptions import BadSignature
from eth_utils.exceptions import ValidationError
from rlp.exceptions import RLPException  # type: ignore[import-untyped]
from trie import exceptions as trie_errors

from ledger.chain.embedded import chain_store
from ledger.chain.embedded.chain_store import LogRow
from ledger.chain.embedded.engine import FastAccountDB, FastComputation
from ledger.chain.ports import Log, Receipt, Transaction
from ledger.protocol.encoding import checksum, contract_created_by, keccak

if TYPE_CHECKING:
    from eth import abc
    from eth.abc import BlockHeaderAPI as Header
    from eth.abc import SignedTransactionAPI as Signed
    from eth.typing import AccountDetails, HeaderParams
    from eth.vm.state import BaseState


def revert_data(error: VMError) -> bytes:
    """Return a contract's revert data; empty for any other error."""
    argument = error.args[0] if isinstance(error, Revert) and error.args else b""
    return argument if isinstance(argument, bytes) else b""


def base_fee(header: Header) -> int:
    """Return the base fee of a block, in wei per gas."""
    return header.base_fee_per_gas or 0


def next_base_fee(header: Header) -> int:
    """Return the base fee of the next block, in wei per gas."""
    return int(calculate_expected_base_fee_per_gas(header))


def log_of_row(row: LogRow, block_hashes: Mapping[int, bytes]) -> Log:
    """Return a row of the log table as a port value."""
    identifier, transaction_hash, address, *topics, data = row
    number, log_index = chain_store.position(identifier)
    present = tuple(topic for topic in topics if topic is not None)
    hash_ = block_hashes[number]
    return Log(checksum(address), present, data, number, hash_, transaction_hash, log_index)


def receipt(
    header: Header, index: int, signed: Signed, receipts: Sequence[abc.ReceiptAPI]
) -> Receipt:
    """Return a receipt as a port value, given all of its block, which count gas together."""
    first = sum(len(earlier.logs) for earlier in receipts[:index])
    rows = chain_store.rows_of_receipt(
        header.block_number, first, bytes(signed.hash), receipts[index]
    )
    hashes: dict[int, bytes] = {header.block_number: bytes(header.hash)}
    contract = None if signed.to else contract_created_by(bytes(signed.sender), signed.nonce)
    return Receipt(
        transaction_hash=bytes(signed.hash),
        block_number=header.block_number,
        status=1 if receipts[index].state_root == b"\x01" else 0,
        gas_used=receipts[index].gas_used - (receipts[index - 1].gas_used if index else 0),
        contract_address=checksum(contract) if contract else None,
        logs=tuple(log_of_row(row, hashes) for row in rows),
    )


def transaction(header: Header, signed: Signed) -> Transaction:
    """Return a transaction as a port value."""
    hash_, sender = bytes(signed.hash), checksum(bytes(signed.sender))
    to = checksum(bytes(signed.to)) if signed.to else None
    return Transaction(hash_, sender, to, bytes(signed.data), header.block_number, signed.nonce)


# The letters CMFL: not the id of a public chain, which prevents replays.
DEFAULT_CHAIN_ID = 0x434D464C
SALT_BITS = 22


def fresh_chain_id(salt: int) -> int:
    """Return the chain id of a new embedded chain: the letters CMFL and the salt, below 2**53.

    Runs of one configuration have the same contract address. On chains with one id, a signature of
    one run is valid in the other, and two different honest votes would prove an equivocation. So a
    chain for keys of owners has a random salt. A simulation's keys are public, and its salt
    follows from its configuration. JavaScript wallets take ids below 2**53.
    """
    return DEFAULT_CHAIN_ID << SALT_BITS | salt % (1 << SALT_BITS)


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

FORK = "Prague"
COINBASE = b"\x00" * 20
# Parent beacon block root: zeros, where py-evm would put the empty trie's root.
BEACON_ROOT = constants.ZERO_HASH32
# Errors of py-evm for a transaction that cannot be mined.
REFUSALS = (ValidationError, VMError)

# Errors that damaged bytes cause in py-evm, rlp, trie and Python.
DAMAGE = (
    *(BadSignature, PyEVMError, RLPException, ValidationError, sqlite3.Error),
    *(trie_errors.BadTrieProof, trie_errors.InvalidNibbles, trie_errors.InvalidNode),
    *(trie_errors.MissingTraversalNode, trie_errors.MissingTrieNode),
    *(trie_errors.TraversedPartialPath, trie_errors.ValidationError),
    *(LookupError, ValueError, TypeError, AttributeError, ArithmeticError),
)


@dataclass(frozen=True, slots=True)
class BlockContents:
    """A block with its executed transactions."""

    header: Header
    included: tuple[Signed, ...]
    receipts: tuple[abc.ReceiptAPI, ...]
    computations: tuple[abc.ComputationAPI, ...]
    refused: frozenset[bytes]
    """Hashes of transactions that no later block can hold either."""


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
    """The same machine, all of whose parts are py-evm's."""

    _state_class = PragueState


class EvmChain(MiningChain):
    """Prague from block 0, with a constant gas limit."""

    vm_configuration = ((constants.GENESIS_BLOCK_NUMBER, _SharedSecondsVM),)

    def create_header_from_parent(
        self, parent_header: Header, **header_params: HeaderParams
    ) -> Header:
        """Return the next block's header, as far as the parent determines it."""
        fixed = header_params | {"gas_limit": parent_header.gas_limit}
        return super().create_header_from_parent(parent_header, **fixed)

    def mine_filled(self, transactions: Sequence[Signed], *, must_fit: bool) -> BlockContents:
        """Mine a block, as `mine_all` does; see `fill`."""
        machine = self.get_vm(self._custom_header(self.header, coinbase=COINBASE))
        assert isinstance(machine, _SharedSecondsVM), "the only machine of this chain"
        filled = machine.fill(transactions, self.header, must_fit=must_fit)
        block = machine.set_block_transactions_and_withdrawals(
            machine.get_block(), filled.header, filled.included, filled.receipts
        )
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
