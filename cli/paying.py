"""Paying accounts from the sender's own, on a node or on the home's own chain."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cli.sender import in_ether
from ledger.protocol.errors import ChainError, ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ledger.chain.ports import ChainWriter, Receipt
    from ledger.chain.rpc.chain import RpcChain
    from ledger.chain.rpc.pending import Pending

MOST_RECIPIENTS = 1_000
# A plain account takes 21,000; one with code of its own (EIP-7702) may do something on receipt.
GAS = 50_000
_POLL_SECONDS = 0.05
_AT_ONCE = 16  # so many of one account geth keeps waiting in any case


@dataclass(frozen=True, slots=True)
class Payment:
    """What an account got.

    Attributes:
        address: EIP-55.
        wei: how much.
        balance_wei: what it has since.
        transaction: that paid it.
        block: that holds the transaction.
    """

    address: str
    wei: int
    balance_wei: int
    transaction: str
    block: int


def recipients(addresses: Sequence[str]) -> list[str]:
    """Return the accounts to pay, EIP-55.

    Args:
        addresses: as typed.

    Raises:
        ConfigurationError: one of them is none, comes twice, or can be nobody's; or too many.
    """
    from ledger.chain.addresses import checksum, to_canonical

    if len(addresses) > MOST_RECIPIENTS:
        raise ConfigurationError(f"{len(addresses)} accounts: at most {MOST_RECIPIENTS} at once")
    found: list[str] = []
    for address in addresses:
        try:
            canonical = to_canonical(address)
        except ChainError as error:
            raise ConfigurationError(str(error)) from None
        if not any(canonical):
            raise ConfigurationError(f"{address}: what goes to the zero address is nobody's")
        if checksum(canonical) in found:
            raise ConfigurationError(f"{address} is given twice")
        found.append(checksum(canonical))
    return found


def pay(chain: ChainWriter, wanted: Sequence[str], wei: int) -> list[Payment]:
    """Return what was paid, in the order of the accounts.

    Args:
        chain: the sender's.
        wanted: who gets it, EIP-55.
        wei: how much each.

    Raises:
        ConfigurationError: the sender is among them, or has not so much; nothing was sent.
        ChainError: the chain does not take a payment; those before are paid.
    """
    from ledger.chain.embedded.chain import EmbeddedChain
    from ledger.chain.rpc.chain import RpcChain

    if chain.sender in wanted:
        raise ConfigurationError(f"{chain.sender} is the sender's own account")
    if isinstance(chain, EmbeddedChain):
        own = chain
        _require_funds(chain.sender, own.account(chain.sender)[1], wei * len(wanted))
        receipts = [own.send(address, b"", GAS, value=wei) for address in wanted]
        balances = [own.account(address)[1] for address in wanted]
    else:
        assert isinstance(chain, RpcChain), "there are two kinds of chains to write to"
        _require_funds(chain.sender, chain.balance(), wei * len(wanted))
        receipts = _paid_by_node(chain, wanted, wei)
        balances = [chain.balance_of(address) for address in wanted]
    return [
        Payment(address, wei, balance, f"0x{receipt.transaction_hash.hex()}", receipt.block_number)
        for address, balance, receipt in zip(wanted, balances, receipts, strict=True)
    ]


def _paid_by_node(node: RpcChain, wanted: Sequence[str], wei: int) -> list[Receipt]:
    """Return the receipts of payments, several of which are on their way at once."""
    receipts: list[Receipt] = []
    for first in range(0, len(wanted), _AT_ONCE):
        some = wanted[first : first + _AT_ONCE]
        waiting = [node.submit(address, b"", GAS, value=wei) for address in some]
        receipts += [_received(pending) for pending in waiting]
    return receipts


def _received(pending: Pending) -> Receipt:
    from ledger.chain.ports import NotServedError

    while True:
        try:
            receipt = pending.look()
        except NotServedError:
            receipt = None  # asked again, until the payment's time is over
        if receipt is not None:
            return receipt
        time.sleep(_POLL_SECONDS)


def _require_funds(sender: str, owned: int, wanted: int) -> None:
    if owned < wanted:
        raise ConfigurationError(
            f"account {sender} owns {in_ether(owned)}, and is to pay {in_ether(wanted)} and the "
            "gas; nothing was sent"
        )
