"""A node with a pool: transactions wait, are replaced and dropped as a test says."""

from __future__ import annotations

from typing import Any

from eth.vm.forks.prague import PragueVM

from ledger.chain.embedded.embedded_chain import EmbeddedChain
from ledger.chain.rpc.methods import RpcMethods
from ledger.protocol.encoding import checksum
from tests.chain.rpc.scripted_node import Fault, ScriptedNode

SERVED = (
    *("eth_chainId", "eth_getBlockByNumber", "eth_getTransactionReceipt", "eth_call"),
    *("eth_maxPriorityFeePerGas", "eth_getBalance", "eth_getCode"),
)


class PoolNode(ScriptedNode):
    """Serves an embedded chain, whose blocks get what waits when `mine` says so."""

    def __init__(self, chain: EmbeddedChain) -> None:
        self.chain = chain
        self.methods = RpcMethods(chain)
        self.waiting: dict[tuple[str, int], Any] = {}
        served = {name: lambda *given, name=name: self.served(name, list(given)) for name in SERVED}
        super().__init__(
            **served,
            eth_sendRawTransaction=self.take,
            eth_getTransactionCount=self.count,
            eth_getTransactionByHash=self.find,
        )

    def served(self, method: str, parameters: list[Any]) -> Any:
        request = {"jsonrpc": "2.0", "id": 1, "method": method, "params": parameters}
        answer = self.methods.answer(request)
        assert answer is not None
        return answer["result"]

    def take(self, raw: str) -> object:
        signed = PragueVM.get_transaction_builder().decode(bytes.fromhex(raw[2:]))
        place = (checksum(bytes(signed.sender)), signed.nonce)
        if signed.nonce < self.chain.account(place[0])[0]:
            return Fault(-32000, "nonce too low")
        before = self.waiting.get(place)
        if before is not None and before.hash == signed.hash:
            return Fault(-32000, "already known")
        if before is not None and not (
            10 * signed.max_fee_per_gas >= 11 * before.max_fee_per_gas
            and signed.max_priority_fee_per_gas > before.max_priority_fee_per_gas
        ):
            return Fault(-32000, "replacement transaction underpriced")
        self.waiting[place] = signed
        return "0x" + bytes(signed.hash).hex()

    def count(self, account: str, tag: str) -> str:
        if tag != "pending":
            found: str = self.served("eth_getTransactionCount", [account, tag])
            return found
        nonce = self.chain.account(account)[0]
        while (account, nonce) in self.waiting:
            nonce += 1
        return hex(nonce)

    def find(self, transaction_hash: str) -> object:
        waiting = {"0x" + bytes(signed.hash).hex() for signed in self.waiting.values()}
        if transaction_hash in waiting:
            return {"hash": transaction_hash}
        return self.served("eth_getTransactionByHash", [transaction_hash])

    def has(self, account: str) -> bool:
        return any(owner == account for owner, _ in self.waiting)

    def only(self, account: str) -> Any:
        [found] = [signed for (owner, _), signed in self.waiting.items() if owner == account]
        return found

    def put(self, signed: Any) -> None:
        """Let a transaction wait instead of the one with its nonce, as in another node's pool."""
        self.waiting[checksum(bytes(signed.sender)), signed.nonce] = signed

    def drop(self, account: str) -> None:
        for place in [place for place in self.waiting if place[0] == account]:
            del self.waiting[place]

    def mine(self) -> None:
        for place in sorted(self.waiting):
            self.chain.submit(self.waiting.pop(place).encode())
