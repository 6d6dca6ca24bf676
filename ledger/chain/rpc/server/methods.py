"""The JSON-RPC methods of the embedded chain: an allow-list that answers like a node.

`http_server.py` offers them to other processes. None of them signs: keys stay with the clients.
"""

from __future__ import annotations

import inspect
import logging
import math
from typing import TYPE_CHECKING, Any

from ledger.chain.embedded.embedded_chain import EmbeddedChain
from ledger.chain.ports import TransactionRevertedError
from ledger.chain.rpc import wire
from ledger.chain.rpc.server.block_methods import BlockMethods
from ledger.chain.rpc.server.log_methods import LogMethods
from ledger.chain.rpc.server.sending_methods import SendingMethods
from ledger.chain.rpc.server.state_methods import StateMethods
from ledger.protocol.errors import ChainError

if TYPE_CHECKING:
    from ledger.chain.embedded.embedded_reader import EmbeddedReader
    from ledger.chain.rpc.server.block_methods import Methods
    from ledger.chain.rpc.server.transaction_pool import TransactionPool

_log = logging.getLogger(__name__)


class RpcMethods:
    """Answers JSON-RPC requests from an embedded chain.

    Args:
        chain: the chain; if it is read-only, transactions are not accepted.
        max_logs: limit of one `eth_getLogs` answer, as on public nodes.
        pool: pending transactions of a chain with timed blocks; None to mine each at once.
    """

    def __init__(
        self, chain: EmbeddedReader, max_logs: int = 10_000, pool: TransactionPool | None = None
    ) -> None:
        version = "cmfl-ledger/py-evm" if pool is None else "cmfl-ledger-on-a-clock/py-evm"
        self._methods: Methods = {
            "web3_clientVersion": lambda: version,
            "net_version": lambda: str(chain.chain_id),
            "eth_chainId": lambda: hex(chain.chain_id),
            "eth_syncing": lambda: False,
            "eth_accounts": list,
            **BlockMethods(chain, pool).table,
            **StateMethods(chain, pool).table,
            **LogMethods(chain, max_logs).table,
        }
        if isinstance(chain, EmbeddedChain):
            self._methods |= SendingMethods(chain, pool).table

    def answer(self, request: object) -> dict[str, Any] | None:
        """Return the answer to one decoded request; None for a notification.

        Returns:
            An object with `result` or with `error`.
        """
        identifier = request.get("id") if isinstance(request, dict) else None
        endless = isinstance(identifier, float) and not math.isfinite(identifier)
        if endless or isinstance(identifier, bool | list | dict):
            return fault_json(wire.RpcFault(wire.INVALID_REQUEST, "an id is a number or a string"))
        if not isinstance(request, dict) or not isinstance(request.get("method"), str):
            return fault_json(
                wire.RpcFault(wire.INVALID_REQUEST, "not a JSON-RPC request"), identifier
            )
        answer = self._outcome(request["method"], request.get("params"), identifier)
        # A request without id gets no answer, not even an error.
        return answer if "id" in request else None

    def _outcome(self, name: str, parameters: object, identifier: object) -> dict[str, Any]:
        try:
            result = self._result(name, parameters)
        except TransactionRevertedError as error:
            fault = wire.RpcFault(wire.REVERTED, "execution reverted", wire.to_hex(error.data))
        except wire.RpcFault as error:
            fault = error
        except wire.MalformedAnswerError as error:
            fault = wire.RpcFault(wire.INVALID_PARAMETERS, str(error))
        except ChainError as error:
            fault = wire.RpcFault(wire.SERVER_ERROR, str(error))
        except Exception:  # noqa: BLE001 - a bug gives an error answer, not a dropped connection
            _log.exception("%s", name[:60])
            fault = wire.RpcFault(wire.INTERNAL_ERROR, "internal error")
        else:
            return {"jsonrpc": "2.0", "id": identifier, "result": result}
        return fault_json(fault, identifier)

    def _result(self, name: str, params: object) -> object:
        method = self._methods.get(name)
        if method is None:
            raise wire.RpcFault(wire.UNKNOWN_METHOD, f"the method {name[:60]} does not exist")
        parameters = wire.items([] if params is None else params)
        try:
            bound = inspect.signature(method).bind(*parameters)
        except TypeError as error:
            raise wire.RpcFault(
                wire.INVALID_PARAMETERS, f"{name} takes other parameters"
            ) from error
        return method(*bound.args)


def fault_json(fault: wire.RpcFault, identifier: object = None) -> dict[str, Any]:
    """Return the JSON answer for a fault."""
    shown = {"code": fault.code, "message": str(fault)}
    error = shown if fault.data is None else {**shown, "data": fault.data}
    return {"jsonrpc": "2.0", "id": identifier, "error": error}
