"""A node over real chains that are equal up to a block; it goes over from one to the other."""

from __future__ import annotations

import json
from typing import Any

from ledger.chain.embedded.reader import EmbeddedReader
from ledger.chain.rpc.methods import RpcMethods
from tests.chain.rpc.scripted_node import ScriptedNode


class ForkingNode(ScriptedNode):
    """Answers from one of two chains."""

    def __init__(self, one: EmbeddedReader, other: EmbeddedReader, final: int) -> None:
        self._branches = [RpcMethods(one), RpcMethods(other)]
        self.final = final
        self._branch = 0
        self.chain_id = one.chain_id
        super().__init__()

    def reorganise(self) -> None:
        self._branch = 1

    def answer(self, request: dict[str, Any]) -> tuple[int, bytes]:
        self.asked.append((request["method"], request["params"]))
        if request["method"] == "eth_getBlockByNumber" and request["params"][0] == "finalized":
            request = {**request, "params": [hex(self.final), *request["params"][1:]]}
        return 200, json.dumps(self._branches[self._branch].answer(request)).encode()
