"""Nodes in this process in place of Flower's: connected and lost as a test says."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING

from clients.runs.flower.nodes import UnansweredMessage

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

"""What a node does with a message; None for no answer ever."""


class ConnectedNodes:
    def __init__(self, nodes: dict[int, Callable[[bytes], bytes | None]]) -> None:
        self.nodes = nodes
        self.sent: list[tuple[int, bytes]] = []
        self._names = count()
        self._waiting: dict[str, tuple[int, bytes]] = {}

    def online(self) -> Collection[int]:
        return list(self.nodes)

    def send(self, node: int, message: bytes) -> str:
        name = str(next(self._names))
        self.sent.append((node, message))
        self._waiting[name] = node, message
        return name

    def answers(self, names: Collection[str]) -> dict[str, bytes | UnansweredMessage]:
        answers: dict[str, bytes | UnansweredMessage] = {}
        for name in names:
            node, message = self._waiting[name]
            if node not in self.nodes:
                answers[name] = UnansweredMessage("the node is gone")
            elif (answer := self.nodes[node](message)) is not None:
                answers[name] = answer
        for name in answers:
            del self._waiting[name]
        return answers
