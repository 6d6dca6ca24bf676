"""A transaction of ours until a block holds it deep enough: sent again, replaced, or given up.

One intent has one nonce: whatever is sent for it is the same bytes again, or a replacement with the
same nonce that pays more. So it comes into a block once or not at all, however often the node was
cut off in the middle of an answer, and even where blocks are taken back.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ledger.chain.ports import (
    NotServedError,
    TransactionRefusedError,
    TransactionRevertedError,
    TransactionTimeoutError,
)
from ledger.chain.rpc import fees, wire
from ledger.chain.rpc.rejections import Rejection, RejectionReason, classify_rejection
from ledger.chain.rpc.rpc_reader import require_same_hash

if TYPE_CHECKING:
    from ledger.chain.ports import Receipt
    from ledger.chain.rpc.fees import Fees
    from ledger.chain.rpc.transaction_manager import TransactionManager

_log = logging.getLogger(__name__)

_PASSED_OVER_BLOCKS = 2
# Behind one URL there may be several nodes, one of which has a receipt later than the others.
_LOOKS_BEFORE_LOST = 3


@dataclass(frozen=True, slots=True)
class UnsignedTransaction:
    """A transaction without fees and signature.

    Attributes:
        nonce: its number among the account's.
        to: the account that it calls; None creates a contract.
        data: call data, or the creation code.
        gas: the limit of gas.
        value: how many wei go with it.
    """

    nonce: int
    to: str | None
    data: bytes
    gas: int
    value: int = 0

    def fields(self, chain_id: int, offer: Fees) -> dict[str, Any]:
        """Return what is signed, with its fees (EIP-1559).

        Args:
            chain_id: the only chain that takes it.
            offer: what it pays.
        """
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
        """Return it as `eth_call` takes it.

        Args:
            sender: who signs.
        """
        found = {"from": sender, "data": wire.to_hex(self.data), "gas": hex(self.gas)}
        if self.to is not None:
            found["to"] = self.to
        if self.value:
            found["value"] = hex(self.value)
        return found


class InFlightTransaction:
    """One transaction on its way; for one thread at a time.

    Args:
        outbox: of its account.
        unsigned: what it does.
        offer: what it pays at first.
        block_number: the newest block when that was set.
    """

    def __init__(
        self,
        outbox: TransactionManager,
        unsigned: UnsignedTransaction,
        offer: Fees,
        block_number: int,
    ) -> None:
        self._outbox = outbox
        self._unsigned = unsigned
        self._settings = outbox.settings
        now = outbox.clock()
        self._deadline = now + self._settings.receipt_timeout_seconds
        self._send_at = now
        self._replace_at = now + self._settings.replace_seconds
        self._said = ""
        self._looks_lost = 0
        self._offer, self._offered_block = offer, block_number
        self._newest = outbox.sign(unsigned, offer)
        self._signed = [self._newest]
        self._standing = self._newest, offer

    @property
    def nonce(self) -> int:
        """Its number among the account's transactions."""
        return self._unsigned.nonce

    @property
    def hash(self) -> bytes:
        """The hash of what was sent last; a block may also hold what it replaces."""
        return self._newest.hash

    @property
    def offer(self) -> Fees:
        """What was offered last for its gas."""
        return self._offer

    @property
    def is_over(self) -> bool:
        """Whether its time is over, so that nobody sends it again."""
        return self._outbox.clock() > self._deadline

    def look(self) -> Receipt | None:
        """Return the receipt once it is confirmed, None before; sends again what was lost.

        Raises:
            TransactionRevertedError: a block holds it, but it reverted.
            TransactionRefusedError: another transaction with its nonce is in a block.
            TransactionTimeoutError: its time is over.
            NotServedError: the node does not say; to be asked again.
        """
        try:
            receipt = self._receipt()
            if receipt is None:
                self._push()
            elif self._is_deep(receipt):
                self._outbox.forget(self)
                return self._done(receipt)
        except NotServedError as error:
            self._said = str(error)
            if not self.is_over:
                raise
        if self.is_over:
            self._outbox.give_up(self)
            said = f"; the node says: {self._said}" if self._said else ""
            raise TransactionTimeoutError(
                f"account {self._outbox.sender}: 0x{self.hash.hex()}: not confirmed within "
                f"{self._settings.receipt_timeout_seconds:g} s{said}"
            )
        return None

    def send_first(self) -> Rejection | None:
        """Send it for the first time; return why the node has certainly not taken it, else None."""
        refused = self._send()
        return None if refused is None or self._is_there(refused) else refused

    def _is_there(self, refused: Rejection) -> bool:
        """Say whether the node may have it, although it does not take it.

        Whoever stands between may have delivered it twice, and the refusal be that of the second
        time. To take it for another sender's and try the next nonce would do everything twice.
        """
        if refused.why is RejectionReason.KNOWN:
            return True
        if refused.why in {RejectionReason.FINAL, RejectionReason.NONCE_TOO_HIGH}:
            return False
        try:
            return self._outbox.node.has(self.hash)
        except NotServedError as error:
            self._say_unclear(str(error))
            return True

    def _receipt(self) -> Receipt | None:
        # Asked for again on every look: a reorganisation may have moved it, or taken it back.
        for signed in reversed(self._signed):
            receipt = self._outbox.node.receipt(signed.hash)
            if receipt is not None:
                self._looks_lost = 0
                return receipt
        return None

    def _is_deep(self, receipt: Receipt) -> bool:
        wanted = self._settings.confirmations
        return wanted == 0 or self._outbox.node.head().number - receipt.block_number >= wanted

    def _done(self, receipt: Receipt) -> Receipt:
        if receipt.status != 1:
            request = self._unsigned.request(self._outbox.sender)
            reverted = self._outbox.node.revert_data(request, receipt.block_number)
            raise TransactionRevertedError(reverted, receipt.transaction_hash)
        return receipt

    def _push(self) -> None:
        now = self._outbox.clock()
        if now >= self._replace_at:
            self._replace()
        if now < self._send_at:
            return
        refused = self._send()
        if refused is None:
            self._standing = self._newest, self._offer
            self._looks_lost = 0
            return
        self._said = refused.words
        if refused.why is RejectionReason.FINAL:
            # Not more than the account can pay, say: what the node has taken before still stands.
            self._newest, self._offer = self._standing
        if refused.why is RejectionReason.NONCE_USED:
            self._require_unlost()

    def _replace(self) -> None:
        """Offer more, if blocks have come and passed it over, and the caps leave room."""
        now, market = self._outbox.clock(), self._outbox.node.market()
        if market.block_number < self._offered_block + _PASSED_OVER_BLOCKS:
            return
        self._replace_at = now + self._settings.replace_seconds
        newest = fees.new_fees(market.base_fee, market.tip, self._outbox.caps)
        raised = fees.replacement_fees(self._offer, newest, self._outbox.caps)
        if raised is None:
            _log.warning("nonce %d is passed over, and the caps leave no more", self.nonce)
            return
        _log.warning("nonce %d is passed over: offers %d wei of gas", self.nonce, raised.fee)
        self._sign(raised, market.block_number)
        self._send_at = now

    def _sign(self, offer: Fees, block_number: int) -> None:
        self._offer, self._offered_block = offer, block_number
        self._newest = self._outbox.sign(self._unsigned, offer)
        self._signed.append(self._newest)

    def _send(self) -> Rejection | None:
        newest = self._newest
        self._send_at = self._outbox.clock() + self._settings.resend_seconds
        try:
            require_same_hash(self._outbox.node.post(newest.raw), newest.hash)
        except wire.RpcFault as fault:
            refused = classify_rejection(fault)
            if refused.why is not RejectionReason.UNCLEAR:
                return refused
            self._say_unclear(refused.words)
            return None
        except NotServedError as error:
            self._say_unclear(str(error))
        return None

    def _say_unclear(self, said: str) -> None:
        self._said = said
        self._send_at = self._outbox.clock() + self._settings.poll_seconds

    def _require_unlost(self) -> None:
        """Go on while one of ours may be what the account's nonce went to.

        Raises:
            TransactionRefusedError: another transaction has it, deep enough.
        """
        node, sender = self._outbox.node, self._outbox.sender
        self._send_at = self._outbox.clock() + self._settings.poll_seconds
        settled = max(0, node.head().number - self._settings.confirmations)
        if node.nonce_at(sender, settled) <= self.nonce or self._receipt() is not None:
            return
        self._looks_lost += 1
        if self._looks_lost >= _LOOKS_BEFORE_LOST:
            self._outbox.forget(self)
            raise TransactionRefusedError(
                f"account {sender}: another transaction has nonce {self.nonce}, and none with it "
                "will be taken: another program may be sending with this account's key"
            )
