"""Transactions of one account: signed, sent, replaced and awaited.

A key can sign many copies of a transaction that differ only in the signature's random part. Here
that part is drawn anew for each signature, so two processes with one key never produce the same
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

import itertools
import logging
import secrets
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

import coincurve
from coincurve._libsecp256k1 import ffi
from eth_account.typed_transactions.typed_transaction import TypedTransaction

from ledger.chain.ports import (
    NotServedError,
    Receipt,
    TransactionRefusedError,
    TransactionRevertedError,
    TransactionTimeoutError,
)
from ledger.chain.rpc import wire
from ledger.chain.rpc.node import RpcReader, require_same_hash
from ledger.chain.rpc.wire import Fees, RpcFault
from ledger.io.retry import Backoff
from ledger.protocol.encoding import checksum, keccak, to_hex
from ledger.protocol.signing import KeySigner


@dataclass(frozen=True, slots=True)
class RawTransaction:
    """A signed transaction as a node accepts it."""

    hash: bytes
    raw: bytes


class SendingAccount:
    """An account whose transactions are signed in this process.

    Args:
        key: the private key, 32 bytes; it never leaves this process.
        entropy: returns a number of random bytes; no secret depends on them.

    Attributes:
        address: EIP-55.
    """

    def __init__(self, key: bytes, entropy: Callable[[int], bytes] = secrets.token_bytes) -> None:
        self.address: str = checksum(KeySigner(key).address)
        self._key = coincurve.PrivateKey(key)
        self._entropy = entropy

    def sign(self, fields: dict[str, Any]) -> RawTransaction:
        """Sign an EIP-1559 transaction; each call returns different bytes."""
        digest = bytes(TypedTransaction.from_dict(fields).hash())
        # RFC 6979 with additional data: the key stays safe whatever these bytes are.
        extra = ffi.new("unsigned char[32]", self._entropy(32))
        recoverable = self._key.sign_recoverable(
            digest, hasher=None, custom_nonce=(ffi.NULL, extra)
        )
        signature = {
            "v": recoverable[64],
            "r": int.from_bytes(recoverable[:32]),
            "s": int.from_bytes(recoverable[32:64]),
        }
        raw = bytes(TypedTransaction.from_dict({**fields, **signature}).encode())
        return RawTransaction(keccak(raw), raw)


class RejectionReason(Enum):
    """Why a node did not accept a transaction.

    Attributes:
        UNDERPRICED: another one with this nonce is pending, and this one does not pay enough more.
        UNCLEAR: the node has failed; the transaction may be in flight.
        FINAL: it cannot be accepted as it is.
    """

    KNOWN = auto()
    NONCE_USED = auto()
    NONCE_TOO_HIGH = auto()
    UNDERPRICED = auto()
    UNCLEAR = auto()
    FINAL = auto()


@dataclass(frozen=True, slots=True)
class Rejection:
    """A transaction that a node did not accept."""

    why: RejectionReason
    words: str


# The order matters: "nonce too high" is not a used nonce. Messages of geth, Besu, Nethermind,
# Erigon, Reth and anvil.
_WORDS: tuple[tuple[RejectionReason, tuple[str, ...]], ...] = (
    (
        RejectionReason.KNOWN,
        ("already known", "alreadyknown", "already imported", "known transaction", "same hash"),
    ),
    (
        RejectionReason.NONCE_TOO_HIGH,
        ("nonce too high", "too distant", "nonce gap", "noncegap", "lower nonce"),
    ),
    (RejectionReason.NONCE_USED, ("nonce",)),
    (RejectionReason.UNDERPRICED, ("replacement", "could not replace existing")),
    (
        RejectionReason.UNCLEAR,
        ("timeout", "timed out", "too many requests", "rate limit", "unavailable"),
    ),
)


def classify_rejection(fault: RpcFault) -> Rejection:
    """Return the meaning of a node's error answer to a signed transaction."""
    for refusal, texts in _WORDS:
        if any(text in fault.words for text in texts):
            return Rejection(refusal, str(fault))
    has_failed = fault.code in {wire.INTERNAL_ERROR, wire.LIMIT_EXCEEDED}
    return Rejection(RejectionReason.UNCLEAR if has_failed else RejectionReason.FINAL, str(fault))


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
        request = {"from": sender, "data": to_hex(self.data), "gas": hex(self.gas)}
        if self.to is not None:
            request["to"] = self.to
        if self.value:
            request["value"] = hex(self.value)
        return request


class InFlightTransaction:
    """A transaction that was sent; for one thread at a time."""

    _newest: RawTransaction
    _offer: Fees

    def __init__(
        self,
        manager: TransactionManager,
        unsigned: UnsignedTransaction,
        offer: Fees,
        block_number: int,
    ) -> None:
        self._manager = manager
        self._node, self._clock, self._settings = (
            manager.node,
            manager.node.clock,
            manager.node.settings,
        )
        self._unsigned = unsigned
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
    def nonce(self) -> int:
        """Number among the account's transactions."""
        return self._unsigned.nonce

    @property
    def hash(self) -> bytes:
        """Hash of the last version; an earlier version may be mined instead."""
        return self._newest.hash

    @property
    def offer(self) -> Fees:
        return self._offer

    @property
    def seconds_left(self) -> float:
        return max(0.0, self._deadline - self._clock())

    @property
    def is_over(self) -> bool:
        """True if the time-out has passed, so that it is not resent."""
        return self._clock() > self._deadline

    def poll(self) -> Receipt | None:
        """Return the receipt once it is confirmed, None before; resend what was lost."""
        try:
            receipt = self._receipt()
            if receipt is None:
                self._push()
            elif self._node.is_confirmed(receipt):
                self._manager.end(self, abandoned=False)
                return self._done(receipt)
        except NotServedError as error:
            self._last_message = str(error)
            if not self.is_over:
                raise
        if self.is_over:
            self._manager.end(self, abandoned=True)
            message = f"; the node says: {self._last_message}" if self._last_message else ""
            raise TransactionTimeoutError(
                f"account {self._manager.sender}: 0x{self.hash.hex()}: not confirmed within "
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
            return self._node.has(self.hash)
        except NotServedError as error:
            self._note_unclear(str(error))
            return True

    def _receipt(self) -> Receipt | None:
        # Not cached: a reorganisation may have moved or removed it.
        for signed in reversed(self._signed):
            receipt = self._node.receipt(signed.hash)
            if receipt is not None:
                self._polls_lost = 0
                return receipt
        return None

    def _done(self, receipt: Receipt) -> Receipt:
        if receipt.status != 1:
            request = self._unsigned.request(self._manager.sender)
            reverted = self._node.revert_data(request, receipt.block_number)
            raise TransactionRevertedError(reverted, receipt.transaction_hash)
        return receipt

    def _push(self) -> None:
        now = self._clock()
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
        now, market = self._clock(), self._node.market()
        # A node behind the block of the offer lags, unless that lasts: then it has an older state.
        is_behind = market.block_number < self._offered_block
        if is_behind and now < self._replace_at + self._settings.replace_seconds:
            return
        if not is_behind and market.block_number < self._offered_block + _PASSED_OVER_BLOCKS:
            return
        self._replace_at = now + self._settings.replace_seconds
        if lost := self._manager.lost(market.block_number):
            self._manager.end(self, abandoned=True)
            raise TransactionTimeoutError(
                f"account {self._manager.sender}: 0x{self.hash.hex()}: not confirmed, as block "
                f"{market.block_number} lacks {lost} earlier transactions of the account that were "
                f"confirmed: the node has an older state of its chain, or another chain"
            )
        if is_behind:
            return
        newest = wire.new_fees(market.base_fee, market.tip, self._settings.fee_caps)
        raised = wire.replacement_fees(self._offer, newest, self._settings.fee_caps)
        if raised is None:
            _log.warning("nonce %d is passed over, and the caps leave no more", self.nonce)
            return
        _log.warning("nonce %d is passed over: offers %d wei of gas", self.nonce, raised.fee)
        self._sign(raised, market.block_number)
        self._send_at = now

    def _sign(self, offer: Fees, block_number: int) -> None:
        self._offer, self._offered_block = offer, block_number
        self._newest = self._manager.account.sign(self._unsigned.fields(self._node.chain_id, offer))
        self._signed.append(self._newest)

    def _send(self) -> Rejection | None:
        newest = self._newest
        self._send_at = self._clock() + self._settings.resend_seconds
        try:
            require_same_hash(self._node.post(newest.raw), newest.hash)
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
        self._send_at = self._clock() + self._settings.poll_seconds

    def _require_nonce_ours(self) -> None:
        """Return while one of our versions may hold the account's nonce."""
        node, sender = self._node, self._manager.sender
        self._send_at = self._clock() + self._settings.poll_seconds
        settled = max(0, node.head().number - self._settings.confirmations)
        if node.nonce_at(sender, settled) <= self.nonce or self._receipt() is not None:
            return
        self._polls_lost += 1
        if self._polls_lost >= _POLLS_BEFORE_LOST:
            self._manager.end(self, abandoned=False)
            raise TransactionRefusedError(
                f"account {sender}: another transaction has nonce {self.nonce}, and none with it "
                "will be taken: another program may be sending with this account's key"
            )


# An attempt fails when another sender with this key was faster.
_NONCE_ATTEMPTS = 16
# Repeated refusals of one nonce are not a race; 1.3 s are enough for a lagging node.
_ATTEMPTS_WITH_ONE_NONCE = 9
_FIRST_PAUSE_SECONDS = 0.005
_OVERTAKEN = {
    RejectionReason.NONCE_USED,
    RejectionReason.NONCE_TOO_HIGH,
    RejectionReason.UNDERPRICED,
}
# A lower bound: the node's refusal shows whether the pending transaction pays more.
_UNKNOWN = Fees(0, 0)
# Messages of geth and others, Nethermind, and Besu.
_INSUFFICIENT_FUNDS = ("insufficient funds", "insufficientfunds", "upfront cost")


class TransactionManager:
    """The transactions of one account. Safe to share between threads."""

    def __init__(self, node: RpcReader, account: SendingAccount) -> None:
        self.node = node
        self.account = account
        self.sender = account.address
        self.caps = node.settings.fee_caps
        self._lock = threading.Lock()
        self._in_flight: dict[int, InFlightTransaction] = {}
        self._abandoned: dict[int, Fees] = {}  # fees of pending transactions without a caller
        self._confirmed = 0  # all nonces below were confirmed

    def submit(self, to: str | None, data: bytes, gas: int, value: int) -> InFlightTransaction:
        """Send a transaction with the next nonce.

        Args:
            to: the recipient; None creates a contract.
            gas: the gas limit; never estimated.
            value: wei to transfer.

        Returns:
            A transaction that the node has accepted, or may have accepted.
        """
        # One at a time: the next nonce is known only after the node has accepted the previous one.
        with self._lock:
            backoff = Backoff(_FIRST_PAUSE_SECONDS, longest_seconds=self.node.settings.poll_seconds)
            attempts, used = Counter[int](), -1
            while True:
                nonce, outcome = self._try(
                    UnsignedTransaction(self._next_nonce(used), to, data, gas, value)
                )
                if isinstance(outcome, InFlightTransaction):
                    return outcome
                attempts[nonce] += 1
                is_hopeless = (
                    attempts.total() >= _NONCE_ATTEMPTS
                    or attempts[nonce] >= _ATTEMPTS_WITH_ONE_NONCE
                )
                if is_hopeless or outcome.why not in _OVERTAKEN:
                    raise TransactionRefusedError(self._explained(outcome))
                if outcome.why is RejectionReason.NONCE_USED and nonce in self._abandoned:
                    del self._abandoned[nonce]
                    used = nonce
                # Another process with this key was faster. The node has certainly not accepted our
                # transaction, so another nonce cannot send it twice.
                self.node.sleep(backoff.pause(attempts.total()))

    def submit_as(self, unsigned: UnsignedTransaction, *, again: bool) -> InFlightTransaction:
        """Send a transaction with the given nonce and no other.

        Args:
            again: whether a pending transaction with its nonce may be replaced.
        """
        with self._lock:
            if again:
                self._abandoned.setdefault(unsigned.nonce, _UNKNOWN)
            attempts = 0
            while True:
                _, outcome = self._try(unsigned)
                if isinstance(outcome, InFlightTransaction):
                    return outcome
                attempts += 1
                is_outbid = again and outcome.why is RejectionReason.UNDERPRICED
                if not is_outbid or attempts >= _ATTEMPTS_WITH_ONE_NONCE:
                    raise TransactionRefusedError(self._explained(outcome))

    def _try(self, unsigned: UnsignedTransaction) -> tuple[int, InFlightTransaction | Rejection]:
        nonce, outbid = unsigned.nonce, self._abandoned.get(unsigned.nonce)
        offer, block_number = self._offer(nonce, outbid)
        pending = InFlightTransaction(self, unsigned, offer, block_number)
        refused = pending.send_first()
        if refused is not None and not self._waits_for_ours(refused, nonce):
            if outbid is not None and refused.why is RejectionReason.UNDERPRICED:
                self._abandoned[nonce] = offer  # it pays more than was known
            return nonce, refused
        self._abandoned.pop(nonce, None)
        self._in_flight[nonce] = pending
        return nonce, pending

    def _offer(self, nonce: int, outbid: Fees | None) -> tuple[Fees, int]:
        market = self.node.market()
        offer = wire.new_fees(market.base_fee, market.tip, self.caps)
        if offer is None:
            cost = market.base_fee + min(market.tip, self.caps.tip)
            raise TransactionRefusedError(
                f"account {self.sender}: gas costs {cost} wei now, over the cap of "
                f"{self.caps.fee}; nothing was sent"
            )
        if outbid is not None:
            offer = wire.replacement_fees(outbid, offer, self.caps)
        if offer is None:
            raise TransactionRefusedError(
                f"account {self.sender}: the transaction with nonce {nonce} is still pending, and "
                "the caps leave no room for higher fees; nothing was sent"
            )
        return offer, market.block_number

    def _next_nonce(self, used: int) -> int:
        counted = self.node.nonce(self.sender, pending=True)
        for pending in tuple(self._in_flight.values()):
            # A timed-out transaction may have left a gap, which the next one has to fill.
            if pending.is_over:
                self.end(pending, abandoned=True)
        if self._abandoned and (nonce := self._blocking_nonce(counted, used)) is not None:
            return nonce
        # A node that has lost some of ours counts too few; they are resent with their nonces.
        return max([counted, *(nonce + 1 for nonce in tuple(self._in_flight))])

    def _blocking_nonce(self, counted: int, used: int) -> int | None:
        """Return the nonce that blocks the account's later ones; None if ours are all mined."""
        mined = max(self.node.nonce(self.sender, pending=False), used + 1)
        for nonce in tuple(self._abandoned):
            if nonce < mined:
                del self._abandoned[nonce]
        if not self._abandoned:
            return None
        waiting = set(self._in_flight)
        nonce = next(number for number in itertools.count(mined) if number not in waiting)
        if nonce >= counted:
            self._abandoned.pop(nonce, None)  # dropped by the node
        elif nonce not in self._abandoned:
            self._abandoned[nonce] = _UNKNOWN  # left by a killed process
        return nonce

    def _waits_for_ours(self, refused: Rejection, nonce: int) -> bool:
        """Return whether a transaction only has to wait for one of ours that is being resent."""
        is_early = refused.why is RejectionReason.NONCE_TOO_HIGH
        return is_early and any(earlier < nonce for earlier in tuple(self._in_flight))

    def end(self, pending: InFlightTransaction, *, abandoned: bool) -> None:
        """Remove a transaction; an abandoned one is left to the node.

        Takes no lock, whose holder may be waiting for the node.
        """
        if abandoned:
            self._abandoned[pending.nonce] = pending.offer
        else:
            self._confirmed = max(self._confirmed, pending.nonce + 1)
        self._in_flight.pop(pending.nonce, None)

    def lost(self, block_number: int) -> int:
        """Return how many confirmed transactions the chain up to a block lacks; forget these."""
        mined = self.node.nonce_at(self.sender, block_number)
        confirmed, self._confirmed = self._confirmed, min(self._confirmed, mined)
        return confirmed - self._confirmed

    def _explained(self, refused: Rejection) -> str:
        """Return a node's message with the account it concerns, and a remedy."""
        words = refused.words
        if any(text in words.lower() for text in _INSUFFICIENT_FUNDS):
            help_ = f"; it owns {self.node.balance_of(self.sender)} wei: send it funds"
        elif refused.why in _OVERTAKEN or "underpriced" in words.lower():
            help_ = "; another program may be sending with this account's key: use one at a time"
        else:
            help_ = ""
        return f"account {self.sender}: {words}{help_}"
