"""An in-flight transaction: resent, replaced or abandoned until it is mined deep enough.

One intent has one nonce. It is resent as the same bytes, or replaced by a transaction with the same
nonce and higher fees. It is therefore mined once or never, whatever answers were lost on the way,
and even across reorganisations.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ledger.chain.ports import (
    NotServedError,
    Receipt,
    TransactionRefusedError,
    TransactionRevertedError,
    TransactionTimeoutError,
)
from ledger.chain.rpc import fees, wire
from ledger.chain.rpc.fees import Fees
from ledger.chain.rpc.rejections import Rejection, RejectionReason, classify_rejection
from ledger.chain.rpc.rpc_reader import RpcSettings, require_same_hash
from ledger.chain.rpc.sending_node import SendingNode

if TYPE_CHECKING:
    from ledger.chain.rpc.account import RawTransaction, SendingAccount

_log = logging.getLogger(__name__)

_PASSED_OVER_BLOCKS = 2
# Several nodes may answer behind one URL, and one may have a receipt later than the others.
_POLLS_BEFORE_LOST = 3


@dataclass(frozen=True, slots=True)
class UnsignedTransaction:
    """A transaction without fees and signature.

    Attributes:
        to: the recipient; None creates a contract.
        value: wei to transfer.
    """

    nonce: int
    to: str | None
    data: bytes
    gas: int
    value: int = 0

    def fields(self, chain_id: int, offer: Fees) -> dict[str, Any]:
        """Return the fields to sign (EIP-1559)."""
        return {
            "type": 2,
            "chainId": chain_id,
            "nonce": self.nonce,
            "maxFeePerGas": offer.fee,
            "maxPriorityFeePerGas": offer.tip,
            "gas": self.gas,
            "to": b"" if self.to is None else self.to,
            "value": self.value,
            "data": self.data,
        }

    def request(self, sender: str) -> dict[str, str]:
        """Return the transaction as an argument of `eth_call`."""
        request = {"from": sender, "data": wire.to_hex(self.data), "gas": hex(self.gas)}
        if self.to is not None:
            request["to"] = self.to
        if self.value:
            request["value"] = hex(self.value)
        return request


@dataclass(frozen=True, slots=True)
class SendingContext:
    """Everything that the transactions of one account share.

    Attributes:
        clock: monotonic seconds.
        lost: returns how many confirmed transactions of the account the chain up to a block lacks.
    """

    node: SendingNode
    account: SendingAccount
    settings: RpcSettings
    clock: Callable[[], float]
    lost: Callable[[int], int]

    @property
    def sender(self) -> str:
        return self.account.address

    def sign(self, unsigned: UnsignedTransaction, offer: Fees) -> RawTransaction:
        return self.account.sign(unsigned.fields(self.node.chain_id, offer))


class InFlightTransaction:
    """A transaction that was sent; for one thread at a time.

    Args:
        on_end: called once it is no longer in flight: with True if it was abandoned.
    """

    def __init__(
        self,
        context: SendingContext,
        unsigned: UnsignedTransaction,
        offer: Fees,
        block_number: int,
        on_end: Callable[[InFlightTransaction, bool], None],
    ) -> None:
        self._context = context
        self._on_end = on_end
        self._unsigned = unsigned
        self._settings = context.settings
        now = context.clock()
        self._deadline = now + self._settings.receipt_timeout_seconds
        self._send_at = now
        self._replace_at = now + self._settings.replace_seconds
        self._last_message = ""
        self._polls_lost = 0
        self._offer, self._offered_block = offer, block_number
        self._newest = context.sign(unsigned, offer)
        self._signed = [self._newest]
        self._accepted = self._newest, offer

    @property
    def nonce(self) -> int:
        """Number among the account's transactions."""
        return self._unsigned.nonce

    @property
    def hash(self) -> bytes:
        """Hash of the last version; an earlier version may be mined instead."""
        return self._newest.hash

    @property
    def offer(self) -> Fees:
        """Fees of the last version."""
        return self._offer

    @property
    def seconds_left(self) -> float:
        """Time until the time-out."""
        return max(0.0, self._deadline - self._context.clock())

    @property
    def is_over(self) -> bool:
        """True if the time-out has passed, so that it is not resent."""
        return self._context.clock() > self._deadline

    def poll(self) -> Receipt | None:
        """Return the receipt once it is confirmed, None before; resend what was lost."""
        try:
            receipt = self._receipt()
            if receipt is None:
                self._push()
            elif self._is_deep(receipt):
                self._on_end(self, False)
                return self._done(receipt)
        except NotServedError as error:
            self._last_message = str(error)
            if not self.is_over:
                raise
        if self.is_over:
            self._on_end(self, True)
            message = f"; the node says: {self._last_message}" if self._last_message else ""
            raise TransactionTimeoutError(
                f"account {self._context.sender}: 0x{self.hash.hex()}: not confirmed within "
                f"{self._settings.receipt_timeout_seconds:g} s{message}"
            )
        return None

    def send_first(self) -> Rejection | None:
        """Send it for the first time; return a rejection only if the node certainly lacks it."""
        refused = self._send()
        return None if refused is None or self._may_be_known(refused) else refused

    def _may_be_known(self, refused: Rejection) -> bool:
        """Return whether the node may have the transaction in spite of its refusal.

        A proxy may have delivered it twice, and the refusal may answer the second delivery. Trying
        the next nonce would then send everything twice.
        """
        if refused.why is RejectionReason.KNOWN:
            return True
        if refused.why in {RejectionReason.FINAL, RejectionReason.NONCE_TOO_HIGH}:
            return False
        try:
            return self._context.node.has(self.hash)
        except NotServedError as error:
            self._note_unclear(str(error))
            return True

    def _receipt(self) -> Receipt | None:
        # Not cached: a reorganisation may have moved or removed it.
        for signed in reversed(self._signed):
            receipt = self._context.node.receipt(signed.hash)
            if receipt is not None:
                self._polls_lost = 0
                return receipt
        return None

    def _is_deep(self, receipt: Receipt) -> bool:
        depth = self._settings.confirmations
        return depth == 0 or self._context.node.head().number - receipt.block_number >= depth

    def _done(self, receipt: Receipt) -> Receipt:
        if receipt.status != 1:
            request = self._unsigned.request(self._context.sender)
            reverted = self._context.node.revert_data(request, receipt.block_number)
            raise TransactionRevertedError(reverted, receipt.transaction_hash)
        return receipt

    def _push(self) -> None:
        now = self._context.clock()
        if now >= self._replace_at:
            self._replace()
        if now < self._send_at:
            return
        refused = self._send()
        if refused is None:
            self._accepted = self._newest, self._offer
            self._polls_lost = 0
            return
        self._last_message = refused.words
        if refused.why is RejectionReason.FINAL:
            # For example over the account's balance: the version accepted before remains.
            self._newest, self._offer = self._accepted
        if refused.why is RejectionReason.NONCE_USED:
            self._require_nonce_ours()

    def _replace(self) -> None:
        """Raise the fees if several blocks have passed it over and the caps leave room."""
        now, market = self._context.clock(), self._context.node.market()
        # A node behind the block of the offer lags, unless that lasts: then it has an older state.
        is_behind = market.block_number < self._offered_block
        if is_behind and now < self._replace_at + self._settings.replace_seconds:
            return
        if not is_behind and market.block_number < self._offered_block + _PASSED_OVER_BLOCKS:
            return
        self._replace_at = now + self._settings.replace_seconds
        if lost := self._context.lost(market.block_number):
            self._on_end(self, True)
            raise TransactionTimeoutError(
                f"account {self._context.sender}: 0x{self.hash.hex()}: not confirmed, as block "
                f"{market.block_number} lacks {lost} earlier transactions of the account that were "
                f"confirmed: the node has an older state of its chain, or another chain"
            )
        if is_behind:
            return
        newest = fees.new_fees(market.base_fee, market.tip, self._settings.fee_caps)
        raised = fees.replacement_fees(self._offer, newest, self._settings.fee_caps)
        if raised is None:
            _log.warning("nonce %d is passed over, and the caps leave no more", self.nonce)
            return
        _log.warning("nonce %d is passed over: offers %d wei of gas", self.nonce, raised.fee)
        self._sign(raised, market.block_number)
        self._send_at = now

    def _sign(self, offer: Fees, block_number: int) -> None:
        self._offer, self._offered_block = offer, block_number
        self._newest = self._context.sign(self._unsigned, offer)
        self._signed.append(self._newest)

    def _send(self) -> Rejection | None:
        newest = self._newest
        self._send_at = self._context.clock() + self._settings.resend_seconds
        try:
            require_same_hash(self._context.node.post(newest.raw), newest.hash)
        except wire.RpcFault as fault:
            refused = classify_rejection(fault)
            if refused.why is not RejectionReason.UNCLEAR:
                return refused
            self._note_unclear(refused.words)
            return None
        except NotServedError as error:
            self._note_unclear(str(error))
        return None

    def _note_unclear(self, message: str) -> None:
        self._last_message = message
        self._send_at = self._context.clock() + self._settings.poll_seconds

    def _require_nonce_ours(self) -> None:
        """Return while one of our versions may hold the account's nonce."""
        node, sender = self._context.node, self._context.sender
        self._send_at = self._context.clock() + self._settings.poll_seconds
        settled = max(0, node.head().number - self._settings.confirmations)
        if node.nonce_at(sender, settled) <= self.nonce or self._receipt() is not None:
            return
        self._polls_lost += 1
        if self._polls_lost >= _POLLS_BEFORE_LOST:
            self._on_end(self, False)
            raise TransactionRefusedError(
                f"account {sender}: another transaction has nonce {self.nonce}, and none with it "
                "will be taken: another program may be sending with this account's key"
            )
