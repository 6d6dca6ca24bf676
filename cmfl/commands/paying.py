"""Payments to accounts, on a node or on the home's own chain."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cmfl.commands.exit_codes import InterruptedCommand
from cmfl.commands.sender import in_ether
from ledger.chain.ports import NotServedError, TransactionTimeoutError, require_plain_sender
from ledger.protocol.errors import ChainError, ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ledger.chain.embedded.embedded_chain import EmbeddedChain
    from ledger.chain.ports import ChainWriter, Receipt
    from ledger.chain.rpc.in_flight import InFlightTransaction
    from ledger.chain.rpc.rpc_chain import RpcChain

MOST_RECIPIENTS = 1_000
# A plain account needs 21,000; one with code of its own (EIP-7702) may need more.
GAS = 50_000
ZERO_ADDRESS = f"0x{0:040}"
_POLL_SECONDS = 0.05
_AT_ONCE = 16  # geth accepts at least as many pending ones per account


@dataclass(frozen=True, slots=True)
class Payment:
    """A payment to an account.

    Attributes:
        address: EIP-55.
        wei: the amount.
        balance_wei: the account's balance afterwards.
        transaction: hash of the payment's transaction.
        block: number of its block.
    """

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


class PaymentsBrokenOffError(ChainError):
    """Some accounts were paid, or may be, and others not: a retry would pay them twice.

    Attributes:
        paid: accounts that were paid, EIP-55.
        unsure: accounts whose payment was sent and may still be mined.
        unpaid: accounts without a payment.
    """

    def __init__(
        self, why: str, paid: Sequence[str], unsure: Sequence[str], unpaid: Sequence[str]
    ) -> None:
        self.paid, self.unsure, self.unpaid = tuple(paid), tuple(unsure), tuple(unpaid)
        outcomes = (
            ("paid", self.paid),
            ("sent, and may still come into a block", self.unsure),
            ("not paid", self.unpaid),
        )
        super().__init__(
            f"{why}; "
            + "; ".join(
                f"{outcome}: {', '.join(accounts)}" for outcome, accounts in outcomes if accounts
            )
        )


class _Payments:
    """Progress of the payments."""

    def __init__(self, accounts: Sequence[str]) -> None:
        self.accounts = accounts
        self.receipts: dict[str, Receipt] = {}
        self.unsure: dict[str, None] = {}
        self.why: BaseException | None = None

    def failed(self, error: BaseException) -> None:
        """Record the first error that stops the payments."""
        self.why = self.why or error

    def all_of(self) -> list[Receipt]:
        """Return the receipts of all payments, in order.

        Raises:
            PaymentsBrokenOffError: only some accounts were paid, or may be.
            InterruptedCommand: likewise, after Ctrl-C.
            ChainError: no account was paid.
        """
        if self.why is None:
            return [self.receipts[address] for address in self.accounts]
        if not (self.receipts or self.unsure):
            raise self.why
        unpaid = [
            account for account in self.accounts if account not in {*self.receipts, *self.unsure}
        ]
        reason = str(self.why) if isinstance(self.why, ChainError) else "interrupted"
        broken_off = PaymentsBrokenOffError(reason, [*self.receipts], [*self.unsure], unpaid)
        if isinstance(self.why, ChainError):
            raise broken_off from self.why
        raise InterruptedCommand(str(broken_off)) from self.why


def pay(chain: ChainWriter, accounts: Sequence[str], wei: int) -> list[Payment]:
    """Pay accounts and return the payments, in order.

    Args:
        chain: the sender's.
        accounts: to pay, EIP-55.
        wei: amount for each.

    Raises:
        ConfigurationError: the sender is among them, or cannot pay all; nothing was sent.
        SenderHasCodeError: the sender is a contract, or delegates its code; nothing was sent.
        PaymentsBrokenOffError: only some could be paid; names them.
        ChainError: the chain accepts no payment; none was made.
        InterruptedCommand: Ctrl-C after payments had been sent.
    """
    from ledger.chain.embedded.embedded_chain import EmbeddedChain
    from ledger.chain.rpc.rpc_chain import RpcChain

    require_plain_sender(chain, chain.sender)
    if chain.sender in accounts:
        raise ConfigurationError(f"{chain.sender} is the sender's own account")
    if isinstance(chain, EmbeddedChain):
        own = chain
        _require_funds(chain.sender, own.account(chain.sender)[1], wei * len(accounts))
        receipts = _paid_at_home(own, accounts, wei)
        balances = [own.account(address)[1] for address in accounts]
    else:
        assert isinstance(chain, RpcChain), "there are two kinds of chains to write to"
        gas = chain.max_cost(GAS) * len(accounts)
        _require_funds(chain.sender, chain.balance(), wei * len(accounts), gas)
        receipts = _paid_by_node(chain, accounts, wei)
        try:
            balances = [chain.balance_of(address) for address in accounts]
        except ChainError as error:
            raise PaymentsBrokenOffError(str(error), accounts, (), ()) from error
    return [
        Payment(address, wei, balance, f"0x{receipt.transaction_hash.hex()}", receipt.block_number)
        for address, balance, receipt in zip(accounts, balances, receipts, strict=True)
    ]


def _paid_at_home(own: EmbeddedChain, accounts: Sequence[str], wei: int) -> list[Receipt]:
    payments = _Payments(accounts)
    try:
        for address in accounts:
            payments.receipts[address] = own.send(address, b"", GAS, value=wei)
    except (ChainError, KeyboardInterrupt) as error:
        payments.failed(error)
    return payments.all_of()


def _paid_by_node(node: RpcChain, accounts: Sequence[str], wei: int) -> list[Receipt]:
    """Return the receipts of payments, several of which are in flight at once."""
    payments = _Payments(accounts)
    try:
        for first in range(0, len(accounts), _AT_ONCE):
            _pay_some(node, accounts[first : first + _AT_ONCE], wei, payments)
            if payments.why is not None:
                break
    except KeyboardInterrupt as error:
        payments.failed(error)
    return payments.all_of()


def _pay_some(node: RpcChain, some: Sequence[str], wei: int, payments: _Payments) -> None:
    """Send some payments, and see what becomes of each of them, also where one of them fails."""
    waiting: dict[str, InFlightTransaction] = {}
    for address in some:
        # Noted before it is sent: who is interrupted in the middle cannot tell.
        payments.unsure[address] = None
        try:
            waiting[address] = node.submit(address, b"", GAS, value=wei)
        except ChainError as error:
            payments.failed(error)
            del payments.unsure[address]
            break
    for address, pending in waiting.items():
        try:
            payments.receipts[address] = _received(pending)
        except TransactionTimeoutError as error:
            payments.failed(error)
            continue
        except ChainError as error:
            payments.failed(error)
        del payments.unsure[address]


def _received(pending: InFlightTransaction) -> Receipt:
    while True:
        try:
            receipt = pending.poll()
        except NotServedError:
            receipt = None  # asked again, until the payment's time is over
        if receipt is not None:
            return receipt
        time.sleep(_POLL_SECONDS)


def _require_funds(sender: str, owned: int, wanted: int, gas: int = 0) -> None:
    if owned < wanted + gas:
        raise ConfigurationError(
            f"account {sender} owns {in_ether(owned)}, and is to pay {in_ether(wanted)} and the "
            "gas; nothing was sent"
        )
