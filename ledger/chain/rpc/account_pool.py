"""Several accounts of one owner: one with enough funds pays for all of them."""

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
    """A chain behind a node, and several accounts of ours, one of which pays at a time.

    An account pays until its balance is too low for a transaction; then the richest one takes over.
    In-flight transactions stay with the account that signed them.

    Args:
        url: of the node, http or https.
        keys: the private keys, 32 bytes each, at least one; they never leave this process.
        chain_id: the expected id.
        settings: time-outs, limits and fees.
        sleep: waits a number of seconds.
        clock: monotonic seconds.
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
        other_accounts = (SendingAccount(key) for key in keys[1:])
        other_managers = (
            TransactionManager(self, account, self._settings, sleep, clock)
            for account in other_accounts
        )
        self._managers = (self._manager, *other_managers)
        try:
            self._switch_to(self._richest())
        except ChainError:
            self.close()
            raise

    @property
    def senders(self) -> tuple[str, ...]:
        """Addresses of the accounts."""
        return tuple(manager.sender for manager in self._managers)

    def submit(
        self, to: str | None, data: bytes, gas: int, *, value: int = 0
    ) -> InFlightTransaction:
        """Send a transaction from an account that can pay for it; see `RpcChain.submit`."""
        if len(self._managers) > 1 and self.balance() < self.max_cost(gas) + value:
            self._switch_to(self._richest())
        return super().submit(to, data, gas, value=value)

    def _richest(self) -> TransactionManager:
        balances = [self.balance_of(manager.sender) for manager in self._managers]
        return self._managers[balances.index(max(balances))]

    def _switch_to(self, manager: TransactionManager) -> None:
        if manager is not self._manager:
            _log.info("account %s pays from now on", manager.sender)
        self._manager, self.sender = manager, manager.sender
