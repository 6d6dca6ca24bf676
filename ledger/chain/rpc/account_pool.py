"""Several accounts of one owner on a chain: who has enough pays for all of them."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

from ledger.chain.rpc.account import SendingAccount
from ledger.chain.rpc.rpc_chain import RpcChain
from ledger.chain.rpc.transaction_manager import TransactionManager
from ledger.protocol.errors import ChainError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ledger.chain.rpc.in_flight import InFlightTransaction
    from ledger.chain.rpc.rpc_reader import RpcSettings

_log = logging.getLogger(__name__)


class AccountPoolChain(RpcChain):
    """A chain behind a node, and accounts of ours of which one pays at a time.

    The one that pays does so until it owns too little for a transaction; then the one that owns
    most is next. What is on its way stays with the account that has signed it.

    Args:
        url: the node, http or https.
        keys: the private keys, 32 bytes each, at least one; they never leave this process.
        chain_id: the expected id.
        settings: time-outs, limits and fees.
        sleep: how to wait, in seconds.
        clock: seconds that only go forward.
    """

    def __init__(
        self,
        url: str,
        keys: Sequence[bytes],
        *,
        chain_id: int,
        settings: RpcSettings | None = None,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(
            url, keys[0], chain_id=chain_id, settings=settings, sleep=sleep, clock=clock
        )
        others = (SendingAccount(key) for key in keys[1:])
        more = (
            TransactionManager(self, account, self._settings, sleep, clock) for account in others
        )
        self._outboxes = (self._outbox, *more)
        try:
            self._turn_to(self._richest())
        except ChainError:
            self.close()
            raise

    def submit(
        self, to: str | None, data: bytes, gas: int, *, value: int = 0
    ) -> InFlightTransaction:
        """Sign and submit a transaction from an account that can pay for it.

        Args:
            to: the contract; None creates one.
            data: call data, or the creation code.
            gas: the limit of gas; never estimated.
            value: how many wei go with it.

        Raises:
            TransactionRefusedError: the node does not take it; nothing was sent.
        """
        if len(self._outboxes) > 1 and self.balance() < self.max_cost(gas) + value:
            self._turn_to(self._richest())
        return super().submit(to, data, gas, value=value)

    def _richest(self) -> TransactionManager:
        owned = [self.balance_of(outbox.sender) for outbox in self._outboxes]
        return self._outboxes[owned.index(max(owned))]

    def _turn_to(self, outbox: TransactionManager) -> None:
        if outbox is not self._outbox:
            _log.info("account %s pays from now on", outbox.sender)
        self._outbox, self.sender = outbox, outbox.sender
