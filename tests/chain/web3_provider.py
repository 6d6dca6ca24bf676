"""The embedded chain as a web3 provider in this process, with the same answers as over HTTP."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, cast

from web3 import Web3
from web3.providers.base import JSONBaseProvider

from ledger.chain.embedded.reader import EmbeddedReader
from ledger.chain.rpc.methods import RpcMethods
from ledger.chain.rpc.node import RpcReader
from ledger.chain.rpc.wire import HttpTransport

if TYPE_CHECKING:
    from web3.types import RPCEndpoint, RPCResponse


class EmbeddedProvider(JSONBaseProvider):
    """A web3 provider over an embedded chain."""

    def __init__(self, chain: EmbeddedReader) -> None:
        super().__init__()
        self._methods = RpcMethods(chain)

    def make_request(self, method: RPCEndpoint, params: Any) -> RPCResponse:
        """Return the answer to one request, an object with `result` or with `error`."""
        request = json.loads(self.encode_rpc_request(method, params))
        return cast("RPCResponse", self._methods.answer(request))

    def is_connected(self, show_traceback: bool = False) -> bool:  # noqa: ARG002, FBT - web3's
        return True


class NodeProvider(JSONBaseProvider):
    """A web3 provider over a node, through the product's own transport."""

    def __init__(self, transport: HttpTransport) -> None:
        super().__init__()
        self._transport = transport

    def make_request(self, method: RPCEndpoint, params: Any) -> RPCResponse:
        """Return the answer to one request, an object with `result` or with `error`."""
        request = json.loads(self.encode_rpc_request(method, params))
        result = self._transport.ask(method, *request["params"])
        return cast("RPCResponse", {"jsonrpc": "2.0", "id": request["id"], "result": result})

    def is_connected(self, show_traceback: bool = False) -> bool:  # noqa: ARG002, FBT - web3's
        return True


def web3_over(chain: EmbeddedReader) -> Web3:
    return Web3(EmbeddedProvider(chain))


def transport_to(chain: RpcReader) -> HttpTransport:
    """Return a connection of its own to a chain's node, also for methods that only anvil has."""
    return HttpTransport(str(chain.node), 20, 10_000_000)
