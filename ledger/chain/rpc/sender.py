"""Transactions of one account: signed, sent, replaced and awaited.

A key can sign many copies of a transaction that differ only in the signature's random part. Here
each signature draws a new random part, so two processes with one key never produce the same
bytes, even for equal transactions. A node that reports one of our transactions as already known
can therefore only mean ours, delivered twice on the way.

JSON-RPC has no codes for the reasons; each client has its own messages, and only this module reads
them. An unknown message is a final refusal, unless it says that the node itself has failed: the
transaction may then be in flight.

One intent has one nonce. It is resent as the same bytes, or replaced by a transaction with the same
nonce and higher fees. It is therefore mined once or never, whatever answers were lost on the way,
and even across reorganisations.

Nodes mine an account's transactions in nonce order. A stuck transaction therefore blocks all later
ones. Once its time-out has passed its fees are no longer raised; the next transaction then takes
its nonce and pays more, instead of waiting behind it. One transaction per nonce is mined.
"""

from __future__ import annotations

import logging
import re
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING, Any

import coincurve
from coincurve._libsecp256k1 import ffi
from eth_account.typed_transactions.typed_transaction import TypedTransaction

from ledger.chain import ports
from ledger.chain.rpc import wire
from ledger.chain.rpc.node import require_same_hash
from ledger.protocol.encoding import checksum, keccak, to_hex
from ledger.protocol.signing import KeySigner

if TYPE_CHECKING:
    from ledger.chain.rpc.rpc_chain import RpcChain


@dataclass(frozen=True, slots=True)
class RawTransaction:
    """A signed transaction as a node accepts it."""

    hash: bytes
    raw: bytes


class SendingAccount:
    """An account whose transactions are signed in this process, with a key that never leaves it."""

    def __init__(self, key: bytes, entropy: Callable[[int], bytes] = secrets.token_bytes) -> None:
        self.address: str = checksum(KeySigner(key).address)
        self._key = coincurve.PrivateKey(key)
        self._entropy = entropy

    def sign(self, fields: dict[str, Any]) -> RawTransaction:
        """Sign an EIP-1559 transaction; each call returns different bytes."""
        digest = bytes(TypedTransaction.from_dict(fields).hash())
        # RFC 6979 with additional data: the key stays safe whatever these bytes are.
        extra = (ffi.NULL, ffi.new("unsigned char[32]", self._entropy(32)))
        recoverable = self._key.sign_recoverable(digest, hasher=None, custom_nonce=extra)
        signature = {
            "v": recoverable[64],
            "r": int.from_bytes(recoverable[:32]),
            "s": int.from_bytes(recoverable[32:64]),
        }
        raw = bytes(TypedTransaction.from_dict({**fields, **signature}).encode())
        return RawTransaction(keccak(raw), raw)


class RejectionReason(Enum):
    """Why a node did not accept a transaction."""

    KNOWN = auto()
    NONCE_USED = auto()
    NONCE_TOO_HIGH = auto()
    UNDERPRICED = auto()  # it does not pay enough more than the pending one with this nonce
    UNCLEAR = auto()  # the node has failed; the transaction may be in flight
    FINAL = auto()  # it cannot be accepted as it is


@dataclass(frozen=True, slots=True)
class Rejection:
    """A transaction that a node did not accept."""

    why: RejectionReason
    words: str


# The order matters: "nonce too high" is not a used nonce. Messages of geth, Besu, Nethermind,
# Erigon, Reth and anvil.
_MESSAGES = {
    RejectionReason.KNOWN: "already ?known|already imported|known transaction|same hash",
    RejectionReason.NONCE_TOO_HIGH: "nonce too high|too distant|nonce gap|noncegap|lower nonce",
    RejectionReason.NONCE_USED: "nonce",
    RejectionReason.UNDERPRICED: "replacement|could not replace existing",
    RejectionReason.UNCLEAR: "timeout|timed out|too many requests|rate limit|unavailable",
}


def classify_rejection(fault: wire.RpcFault) -> Rejection:
    """Return the meaning of a node's error answer to a signed transaction."""
    for reason, messages in _MESSAGES.items():
        if re.search(messages, fault.words):
            return Rejection(reason, str(fault))
    has_failed = fault.code in {wire.INTERNAL_ERROR, wire.LIMIT_EXCEEDED}
    return Rejection(RejectionReason.UNCLEAR if has_failed else RejectionReason.FINAL, str(fault))


_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class UnsignedTransaction:
    """A transaction without fees and signature; `to` is None to create a contract."""

    nonce: int
    to: str | None
    data: bytes
    gas: int
    value: int = 0

    def fields(self, chain_id: int, offer: wire.Fees) -> dict[str, Any]:
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
        request = {"from": sender, "data": to_hex(self.data), "gas": hex(self.gas)}
        if self.to is not None:
            request["to"] = self.to
        if self.value:
            request["value"] = hex(self.value)
        return request


class InFlightTransaction:
    """A transaction of a chain's account that was sent; for one thread at a time."""

    _newest: RawTransaction
    offer: wire.Fees

    def __init__(
        self, chain: RpcChain, unsigned: UnsignedTransaction, offer: wire.Fees, block_number: int
    ) -> None:
        self._chain, self._clock, self._settings = chain, chain.clock, chain.settings
        self._unsigned = unsigned
        self.nonce = unsigned.nonce
        now = self._clock()
        self._deadline = now + self._settings.receipt_timeout_seconds
        self._send_at = now
        self._replace_at = now + self._settings.replace_seconds
        self._last_message = ""
        self._polls_lost = 0
        self._signed: list[RawTransaction] = []
        self._sign(offer, block_number)
        self._accepted = self._newest, offer

    @property
    def hash(self) -> bytes:
        """Hash of the last version; an earlier version may be mined instead."""
        return self._newest.hash

    @property
    def seconds_left(self) -> float:
        return max(0.0, self._deadline - self._clock())

    @property
    def is_over(self) -> bool:
        """True if the time-out has passed, so that it is not resent."""
        return self._clock() > self._deadline

    def poll(self) -> ports.Receipt | None:
        """Return the receipt once it is confirmed, None before; resend what was lost."""
        try:
            receipt = self._receipt()
            if receipt is None:
                self._push()
            elif self._chain.is_confirmed(receipt):
                self._chain.end(self, abandoned=False)
                if receipt.status != 1:
                    request = self._unsigned.request(self._chain.sender)
                    reverted = self._chain.revert_data(request, receipt.block_number)
                    raise ports.TransactionRevertedError(reverted, receipt.transaction_hash)
                return receipt
        except ports.NotServedError as error:
            self._last_message = str(error)
            if not self.is_over:
                raise
        if self.is_over:
            self._chain.end(self, abandoned=True)
            message = f"; the node reported: {self._last_message}" if self._last_message else ""
            raise ports.TransactionTimeoutError(
                f"account {self._chain.sender}: 0x{self.hash.hex()} was not confirmed within "
                f"{self._settings.receipt_timeout_seconds:g} s{message}"
            )
        return None

    def send_first(self) -> Rejection | None:
        """Send it for the first time; return a rejection only if the node certainly lacks it.

        A proxy may have delivered it twice, and the refusal may answer the second delivery. Trying
        the next nonce would then send everything twice.
        """
        refused = self._send()
        if refused is None or refused.why is RejectionReason.KNOWN:
            return None
        if refused.why in {RejectionReason.FINAL, RejectionReason.NONCE_TOO_HIGH}:
            return refused
        try:
            return None if self._chain.has(self.hash) else refused
        except ports.NotServedError as error:
            self._note_unclear(str(error))
            return None

    def _receipt(self) -> ports.Receipt | None:
        # Not cached: a reorganisation may have moved or removed it.
        for signed in reversed(self._signed):
            receipt = self._chain.receipt(signed.hash)
            if receipt is not None:
                self._polls_lost = 0
                return receipt
        return None

    def _push(self) -> None:
        now = self._clock()
        if now >= self._replace_at:
            self._replace()
        if now < self._send_at:
            return
        refused = self._send()
        if refused is None:
            self._accepted = self._newest, self.offer
            self._polls_lost = 0
            return
        self._last_message = refused.words
        if refused.why is RejectionReason.FINAL:
            # For example over the account's balance: the version accepted before remains.
            self._newest, self.offer = self._accepted
        if refused.why is RejectionReason.NONCE_USED:
            self._require_nonce_ours()

    def _replace(self) -> None:
        """Raise the fees if several blocks have passed it over and the caps leave room."""
        now, market = self._clock(), self._chain.market()
        # A node behind the block of the offer lags, unless that lasts: then it has an older state.
        is_behind = market.block_number < self._offered_block
        if is_behind and now < self._replace_at + self._settings.replace_seconds:
            return
        if not is_behind and market.block_number < self._offered_block + 2:
            return
        self._replace_at = now + self._settings.replace_seconds
        if lost := self._chain.lost(market.block_number):
            self._chain.end(self, abandoned=True)
            raise ports.TransactionTimeoutError(
                f"account {self._chain.sender}: 0x{self.hash.hex()} was not confirmed, and "
                f"block {market.block_number} lacks {lost} earlier confirmed transactions of "
                "the account. The node has an older state of its chain, or another chain"
            )
        if is_behind:
            return
        newest = wire.new_fees(market.base_fee, market.tip, self._settings.fee_caps)
        raised = wire.replacement_fees(self.offer, newest, self._settings.fee_caps)
        if raised is None:
            _log.warning("nonce %d is passed over, and the caps leave no more", self.nonce)
            return
        _log.warning("nonce %d is passed over: offers %d wei of gas", self.nonce, raised.fee)
        self._sign(raised, market.block_number)
        self._send_at = now

    def _sign(self, offer: wire.Fees, block_number: int) -> None:
        self.offer, self._offered_block = offer, block_number
        self._newest = self._chain.account.sign(self._unsigned.fields(self._chain.chain_id, offer))
        self._signed.append(self._newest)

    def _send(self) -> Rejection | None:
        newest = self._newest
        self._send_at = self._clock() + self._settings.resend_seconds
        try:
            require_same_hash(self._chain.post(newest.raw), newest.hash)
        except wire.RpcFault as fault:
            refused = classify_rejection(fault)
            if refused.why is not RejectionReason.UNCLEAR:
                return refused
            self._note_unclear(refused.words)
            return None
        except ports.NotServedError as error:
            self._note_unclear(str(error))
        return None

    def _note_unclear(self, message: str) -> None:
        self._last_message = message
        self._send_at = self._clock() + self._settings.poll_seconds

    def _require_nonce_ours(self) -> None:
        """Return while one of our versions may hold the account's nonce."""
        node, sender = self._chain, self._chain.sender
        self._send_at = self._clock() + self._settings.poll_seconds
        settled = max(0, node.head().number - self._settings.confirmations)
        if node.nonce_at(sender, settled) <= self.nonce or self._receipt() is not None:
            return
        # Several nodes may answer behind one URL, and one may have a receipt later than the others.
        self._polls_lost += 1
        if self._polls_lost >= 3:
            self._chain.end(self, abandoned=False)
            raise ports.TransactionRefusedError(
                f"account {sender}: another transaction has nonce {self.nonce}; another "
                "program may be sending with this account's key"
            )
