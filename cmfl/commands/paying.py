"""Payments to accounts, on a node or on the home's own chain."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from cmfl.commands.exit_codes import InterruptedCommand
from cmfl.commands.sender import in_ether
from ledger.chain.ports import (
    ChainWriter,
    NotServedError,
    Receipt,
    TransactionTimeoutError,
    require_plain_sender,
)
from ledger.protocol.errors import ChainError, ConfigurationError

if TYPE_CHECKING:
    from ledger.chain.embedded.embedded_chain import EmbeddedChain
    from ledger.chain.rpc.rpc_chain import RpcChain
    from ledger.chain.rpc.sender import InFlightTransaction

MOST_RECIPIENTS = 1_000
# A plain account needs 21,000; one with code of its own (EIP-7702) may need more.
GAS = 50_000
ZERO_ADDRESS = f"0x{0:040}"
_POLL_SECONDS = 0.05
_AT_ONCE = 16  # geth accepts at least as many pending ones per account


@dataclass(frozen=True, slots=True)
class Payment:
    """A payment to an account, and what that owns afterwards."""

    address: str
    wei: int
    balance_wei: int
    transaction: str
    block: int


def recipients(addresses: Sequence[str]) -> list[str]:
    """Return the accounts to pay, EIP-55.

    Raises:
        ConfigurationError: an address is malformed, repeated or zero, or there are too many.
    """
    from ledger.chain.addresses import eip55

    if len(addresses) > MOST_RECIPIENTS:
        raise ConfigurationError(f"{len(addresses)} accounts: at most {MOST_RECIPIENTS} at once")
    accounts: list[str] = []
    for address in addresses:
        try:
            account = eip55(address)
        except ChainError as error:
            raise ConfigurationError(str(error)) from None
        if account == ZERO_ADDRESS:
            raise ConfigurationError(f"{address}: payments to the zero address are lost")
        if account in accounts:
            raise ConfigurationError(f"{address} is given twice")
        accounts.append(account)
    return accounts


def pay(chain: ChainWriter, accounts: Sequence[str], wei: int) -> list[Payment]:
    """Pay an amount to each account, and return the payments in that order.

    Raises:
        ConfigurationError: the sender is among the accounts, or owns too little.
        ChainError: a payment failed; the message names who was paid, who may be, and who was not.
        InterruptedCommand: the same, after an interruption.
    """
    from ledger.chain.embedded.embedded_chain import EmbeddedChain
    from ledger.chain.rpc.rpc_chain import RpcChain

    require_plain_sender(chain, chain.sender)
    if chain.sender in accounts:
        raise ConfigurationError(f"{chain.sender} is the sender's own account")
    gas = 0
    send: Callable[[Sequence[str], int, dict[str, Receipt], dict[str, None]], None]
    balance_of: Callable[[str], int]
    if isinstance(chain, EmbeddedChain):
        send, balance_of = partial(_send_at_home, chain), partial(_balance_at_home, chain)
    else:
        assert isinstance(chain, RpcChain), "there are two kinds of chains to write to"
        send, balance_of = partial(_send_by_node, chain), chain.balance_of
        gas = chain.max_cost(GAS) * len(accounts)
    owned = balance_of(chain.sender)
    if owned < wei * len(accounts) + gas:
        raise ConfigurationError(
            f"account {chain.sender} owns {in_ether(owned)}, and is to pay "
            f"{in_ether(wei * len(accounts))} and the gas; nothing was sent"
        )
    sent: dict[str, Receipt] = {}
    unsure: dict[str, None] = {}
    try:
        for first in range(0, len(accounts), _AT_ONCE):
            send(accounts[first : first + _AT_ONCE], wei, sent, unsure)
        balances = [balance_of(address) for address in accounts]
    except (ChainError, KeyboardInterrupt) as error:
        if not (sent or unsure):
            raise
        told = str(error) if isinstance(error, ChainError) else "interrupted"
        unpaid = [account for account in accounts if account not in {*sent, *unsure}]
        for outcome, those in (
            ("paid", [*sent]),
            ("sent, and may still come into a block", [*unsure]),
            ("not paid", unpaid),
        ):
            told += f"; {outcome}: {', '.join(those)}" if those else ""
        kind = ChainError if isinstance(error, ChainError) else InterruptedCommand
        raise kind(told) from error
    return [
        Payment(address, wei, balance, f"0x{receipt.transaction_hash.hex()}", receipt.block_number)
        for address, balance, receipt in zip(accounts, balances, sent.values(), strict=True)
    ]


def _balance_at_home(own: EmbeddedChain, address: str) -> int:
    return own.account(address)[1]


def _send_at_home(
    own: EmbeddedChain,
    some: Sequence[str],
    wei: int,
    sent: dict[str, Receipt],
    unsure: dict[str, None],  # noqa: ARG001 - nothing is unsure at home
) -> None:
    for address in some:
        sent[address] = own.send(address, b"", GAS, value=wei)


def _send_by_node(
    node: RpcChain, some: Sequence[str], wei: int, sent: dict[str, Receipt], unsure: dict[str, None]
) -> None:
    """Send payments at once, and wait for all that were sent, also after one is refused."""
    waiting: dict[str, InFlightTransaction] = {}
    why: ChainError | None = None
    for address in some:
        # Noted before it is sent: who is interrupted in the middle cannot tell.
        unsure[address] = None
        try:
            waiting[address] = node.submit(address, b"", GAS, value=wei)
        except ChainError as error:
            why = error
            del unsure[address]
            break
    for address, pending in waiting.items():
        try:
            while (receipt := _polled(pending)) is None:
                time.sleep(_POLL_SECONDS)
            sent[address] = receipt
        except TransactionTimeoutError as error:
            why = why or error
            continue
        except ChainError as error:
            why = why or error
        del unsure[address]
    if why is not None:
        raise why


def _polled(pending: InFlightTransaction) -> Receipt | None:
    try:
        return pending.poll()
    except NotServedError:
        return None  # asked again, until the payment's time is over
