"""The contract on another machine: anvil, which runs on revm, in the place of py-evm.

Every transaction is a block of its own, as on the embedded chain; it is sent whether it reverts or
not, and what it reverts with was asked just before. Times and random numbers of its blocks follow
from how many there were, so that a run can be repeated.
"""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import time
from typing import TYPE_CHECKING, Any

from ledger.chain.ports import ChainUnreachableError, TransactionRevertedError
from ledger.chain.rpc import wire
from ledger.chain.rpc.chain import RpcChain
from ledger.chain.rpc.http_transport import HttpTransport
from tests.chain.test_port_contract import ANVIL_KEY

if TYPE_CHECKING:
    from pathlib import Path

    from web3.types import RPCEndpoint, RPCResponse

    from ledger.chain.ports import Receipt

CHAIN_ID = 31337
GAS_PRICE_WEI = 2 * 10**9
OPTIONS = ("--silent", "--hardfork", "cancun", "--timestamp", "1700000000")
# Of wall time, and other programs may have all of the machine for a while.
TIMEOUT_SECONDS = 600.0


class IpcTransport(HttpTransport):
    """The node's socket of this machine: a request costs a tenth of one over HTTP."""

    def __init__(self, path: Path) -> None:
        super().__init__("http://127.0.0.1", TIMEOUT_SECONDS, 0)
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(TIMEOUT_SECONDS)
        self._socket.connect(str(path))

    def make_request(self, method: RPCEndpoint, params: Any) -> RPCResponse:
        """Return the node's answer."""
        request = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        self._socket.sendall(json.dumps(request).encode())
        found = b""
        while part := self._socket.recv(1 << 20):
            found += part
            # Nothing but its end tells that an answer is whole.
            with contextlib.suppress(ValueError):
                answer: RPCResponse = json.loads(found)
                return answer
        raise ChainUnreachableError("anvil has gone")

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()
        super().close()


class AnvilChain(RpcChain):
    """A chain of anvil's, which sends from the first of its own accounts, and ends with this.

    Args:
        program: the executable.
        folder: where it runs; it must be empty.
    """

    def __init__(self, program: str, folder: Path) -> None:
        with socket.create_server(("127.0.0.1", 0)) as probe:
            port = probe.getsockname()[1]
        path = folder / "anvil.ipc"
        command = [program, "--port", str(port), "--ipc", str(path), *OPTIONS]
        self._process = subprocess.Popen(command, cwd=folder)
        deadline = time.monotonic() + TIMEOUT_SECONDS
        try:
            while True:
                assert time.monotonic() < deadline, "anvil does not answer"
                with contextlib.suppress(ChainUnreachableError):
                    super().__init__(f"http://127.0.0.1:{port}", ANVIL_KEY, chain_id=CHAIN_ID)
                    break
                time.sleep(0.01)
            self._node.close()
            self._node = IpcTransport(path)
        except BaseException:
            self._process.kill()
            self._process.wait()
            raise
        self._node.ask("anvil_setBlockTimestampInterval", 1)

    def send(self, to: str | None, data: bytes, gas: int, *, value: int = 0) -> Receipt:
        """Run a transaction in a block of its own.

        Args:
            to: the contract; None creates one.
            data: call data, or the creation code.
            gas: the limit of gas.
            value: how many wei go with it.

        Raises:
            TransactionRevertedError: the block holds it, but it reverted.
        """
        prices = {"gas": hex(gas), "gasPrice": hex(GAS_PRICE_WEI), "value": hex(value)}
        transaction = {"from": self.sender, "data": wire.to_hex(data), **prices}
        if to is not None:
            transaction["to"] = to
        reverted: TransactionRevertedError | None = None
        try:
            self._ask(wire.data, "eth_call", transaction, "pending")
        except wire.RpcFault as fault:
            found = wire.revert_data(fault)
            if found is None:
                raise
            reverted = TransactionRevertedError(found)
        receipt = wire.receipt(self._node.ask("eth_sendTransactionSync", transaction))
        assert (receipt.status == 1) == (reverted is None), "it did in its block what it would"
        if reverted is not None:
            raise reverted
        return receipt

    def close(self) -> None:
        """End the chain."""
        super().close()
        self._process.terminate()
        self._process.wait()
