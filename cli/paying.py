"""Paying accounts from the sender's own, on a node or on the home's own chain."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cli.exit_codes import InterruptedCommand
from cli.sender import in_ether
from ledger.chain.ports import NotServedError, TransactionTimeoutError
from ledger.protocol.errors import ChainError, ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ledger.chain.embedded.embedded_chain import EmbeddedChain
    from ledger.chain.ports import ChainWriter, Receipt
    from ledger.chain.rpc.in_flight import InFlightTransaction
    from ledger.chain.rpc.rpc_chain import RpcChain

MOST_RECIPIENTS = 1_000
# A plain account takes 21,000; one with code of its own (EIP-7702) may do something on receipt.
GAS = 50_000
NOBODY = f"0x{0:040}"
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
    from ledger.chain.addresses import eip55

    if len(addresses) > MOST_RECIPIENTS:
        raise ConfigurationError(f"{len(addresses)} accounts: at most {MOST_RECIPIENTS} at once")
    found: list[str] = []
    for address in addresses:
        try:
            account = eip55(address)
        except ChainError as error:
            raise ConfigurationError(str(error)) from None
        if account == NOBODY:
            raise ConfigurationError(f"{address}: what goes to the zero address is nobody's")
        if account in found:
            raise ConfigurationError(f"{address} is given twice")
        found.append(account)
    return found


class PaymentsBrokenOffError(ChainError):
    """Some accounts were paid, or may be, and others not: who pays again pays them twice.

    Attributes:
        paid: who has got it, EIP-55.
        unsure: whose payment was sent, and may still come into a block.
        unpaid: who gets nothing.
    """

    def __init__(
        self, why: str, paid: Sequence[str], unsure: Sequence[str], unpaid: Sequence[str]
    ) -> None:
        self.paid, self.unsure, self.unpaid = tuple(paid), tuple(unsure), tuple(unpaid)
        told = (
            ("paid", self.paid),
            ("sent, and may still come into a block", self.unsure),
            ("not paid", self.unpaid),
        )
        super().__init__(
            f"{why}; " + "; ".join(f"{what}: {', '.join(who)}" for what, who in told if who)
        )


class _Payments:
    """What has become of each payment so far."""

    def __init__(self, wanted: Sequence[str]) -> None:
        self.wanted = wanted
        self.receipts: dict[str, Receipt] = {}
        self.unsure: dict[str, None] = {}
        self.why: BaseException | None = None

    def failed(self, error: BaseException) -> None:
        """Take note of the first reason why no more are sent."""
        self.why = self.why or error

    def all_of(self) -> list[Receipt]:
        """Return the receipts of all, in order.

        Raises:
            PaymentsBrokenOffError: there are some, or may be, but not of all.
            InterruptedCommand: so it is because somebody pressed Ctrl-C.
            ChainError: why there is none at all.
        """
        if self.why is None:
            return [self.receipts[address] for address in self.wanted]
        if not (self.receipts or self.unsure):
            raise self.why
        unpaid = [one for one in self.wanted if one not in {*self.receipts, *self.unsure}]
        said = str(self.why) if isinstance(self.why, ChainError) else "interrupted"
        told = PaymentsBrokenOffError(said, [*self.receipts], [*self.unsure], unpaid)
        if isinstance(self.why, ChainError):
            raise told from self.why
        raise InterruptedCommand(str(told)) from self.why


def pay(chain: ChainWriter, wanted: Sequence[str], wei: int) -> list[Payment]:
    """Return what was paid, in the order of the accounts.

    Args:
        chain: the sender's.
        wanted: who gets it, EIP-55.
        wei: how much each.

    Raises:
        ConfigurationError: the sender is among them, or has not so much; nothing was sent.
        PaymentsBrokenOffError: not all of them could be paid; it names those who were.
        ChainError: the chain takes no payment; nobody is paid.
        InterruptedCommand: somebody pressed Ctrl-C when payments had been sent.
    """
    from ledger.chain.embedded.embedded_chain import EmbeddedChain
    from ledger.chain.rpc.rpc_chain import RpcChain

    if chain.sender in wanted:
        raise ConfigurationError(f"{chain.sender} is the sender's own account")
    if isinstance(chain, EmbeddedChain):
        own = chain
        _require_funds(chain.sender, own.account(chain.sender)[1], wei * len(wanted))
        done = _paid_at_home(own, wanted, wei)
        balances = [own.account(address)[1] for address in wanted]
    else:
        assert isinstance(chain, RpcChain), "there are two kinds of chains to write to"
        gas = chain.max_cost(GAS) * len(wanted)
        _require_funds(chain.sender, chain.balance(), wei * len(wanted), gas)
        done = _paid_by_node(chain, wanted, wei)
        try:
            balances = [chain.balance_of(address) for address in wanted]
        except ChainError as error:
            raise PaymentsBrokenOffError(str(error), wanted, (), ()) from error
    return [
        Payment(address, wei, balance, f"0x{one.transaction_hash.hex()}", one.block_number)
        for address, balance, one in zip(wanted, balances, done, strict=True)
    ]


def _paid_at_home(own: EmbeddedChain, wanted: Sequence[str], wei: int) -> list[Receipt]:
    payments = _Payments(wanted)
    try:
        for address in wanted:
            payments.receipts[address] = own.send(address, b"", GAS, value=wei)
    except (ChainError, KeyboardInterrupt) as error:
        payments.failed(error)
    return payments.all_of()


def _paid_by_node(node: RpcChain, wanted: Sequence[str], wei: int) -> list[Receipt]:
    """Return the receipts of payments, several of which are on their way at once."""
    payments = _Payments(wanted)
    try:
        for first in range(0, len(wanted), _AT_ONCE):
            _pay_some(node, wanted[first : first + _AT_ONCE], wei, payments)
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
            receipt = pending.look()
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
