"""A node over a real chain that hides, repeats and alters what it hands out, always alike."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from ledger.chain.contract import abi
from ledger.chain.embedded.reader import EmbeddedReader
from ledger.chain.ports import LogQuery
from ledger.chain.rpc.methods import RpcMethods
from tests.chain.rpc.scripted_node import ScriptedNode

EVENTS = [
    *("ClientsRegistered", "LedgerOpened", "UpdatesCommitted"),
    *("RoundDecided", "RoundAbandoned", "ClientBanned"),
]
WORDS = [0, 1, 2, 3, 13, 14, 64, 255, 2**32 - 1, 2**63, 2**64 - 1, 2**96, 2**255, 2**256 - 1]


@dataclass(frozen=True)
class Lie:
    """One deviation from the truth."""

    about: str
    how: str
    which: int | None = None
    place: int = 0
    value: int = 0


lies = st.lists(
    st.builds(
        Lie,
        st.sampled_from(EVENTS),
        st.sampled_from(["hide", "repeat", "word", "word", "topic", "cut"]),
        st.none() | st.integers(0, 8),
        st.integers(0, 40),
        st.sampled_from(WORDS),
    )
    | st.builds(
        Lie,
        st.sampled_from(["eth_call", "eth_getTransactionByHash"]),
        st.sampled_from(["word", "cut", "error", "null"]),
        st.none(),
        st.integers(0, 40),
        st.sampled_from(WORDS),
    )
    | st.builds(
        Lie,
        st.sampled_from(["eth_getLogs", "eth_getTransactionReceipt", "eth_getBlockByNumber"]),
        st.sampled_from(["error", "null", "hide"]),
    ),
    min_size=1,
    max_size=3,
)


class LyingNode(ScriptedNode):
    """Answers from a chain, with lies."""

    def __init__(self, chain: EmbeddedReader) -> None:
        self._methods = RpcMethods(chain)
        self.chain_id = chain.chain_id
        self.lies: list[Lie] = []
        self.places = {
            name: [
                (hex(log.block_number), hex(log.log_index))
                for log in chain.logs(LogQuery(None, [abi.topic(name)], 0, 10**9))
            ]
            for name in EVENTS
        }
        super().__init__()

    def answer(self, request: dict[str, Any]) -> tuple[int, bytes]:
        told = self._methods.answer(request)
        assert told is not None
        name = request["method"]
        about_genesis = name == "eth_getBlockByNumber" and request["params"][0] == "0x0"
        for lie in self.lies:
            if "result" in told and name == "eth_getLogs":
                told["result"] = [one for log in told["result"] for one in self._altered(log, lie)]
            if lie.about == name and not about_genesis:
                told = _told(told, lie)
        return 200, json.dumps(told).encode()

    def _altered(self, log: dict[str, Any], lie: Lie) -> list[dict[str, Any]]:
        places = self.places.get(lie.about, [])
        place = (log["blockNumber"], log["logIndex"])
        if place not in places or lie.which not in {None, places.index(place)}:
            return [log]
        match lie.how:
            case "hide":
                return []
            case "repeat":
                return [log, {**log, "logIndex": "0x77"}]
            case "topic" if len(log["topics"]) > 1:
                word = f"0x{lie.value.to_bytes(32).hex()}"
                return [{**log, "topics": [log["topics"][0], word, *log["topics"][2:]]}]
            case "word" | "cut":
                return [{**log, "data": _spoilt(log["data"], lie)}]
            case _:
                return [log]


def _told(told: dict[str, Any], lie: Lie) -> dict[str, Any]:
    envelope = {"jsonrpc": "2.0", "id": told["id"]}
    result = told.get("result")
    match lie.how:
        case "error":
            return {**envelope, "error": {"code": -32000, "message": "missing trie node"}}
        case "null":
            return {**envelope, "result": None}
        case "hide" if isinstance(result, list):
            return {**envelope, "result": []}
        case "word" | "cut" if isinstance(result, str):
            return {**envelope, "result": _spoilt(result, lie)}
        case "word" | "cut" if isinstance(result, dict):
            return {**envelope, "result": {**result, "input": _spoilt(result["input"], lie)}}
        case _:
            return told


def _spoilt(data: str, lie: Lie) -> str:
    raw = bytearray.fromhex(data[2:])
    selector = len(raw) % 32
    start = selector + 32 * lie.place
    if lie.how == "cut":
        return f"0x{raw[:start].hex()}"
    if start < len(raw):
        raw[start : start + 32] = lie.value.to_bytes(32)
    return f"0x{raw.hex()}"
