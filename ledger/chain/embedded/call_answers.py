"""Answers of contract calls, cached: the state after a block never changes."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass

_MAX_CACHED_ANSWERS = 256
_MAX_CACHED_BYTES = 4096


@dataclass(frozen=True, slots=True)
class CallAnswer:
    """Result of a call."""

    output: bytes
    is_reverted: bool


class CallAnswers:
    """Cache of the last small answers. Safe to share between threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._entries: OrderedDict[Hashable, CallAnswer] = OrderedDict()

    def get(self, key: Hashable) -> CallAnswer | None:
        """Return the answer to a call; None if it is not cached."""
        with self._lock:
            if key in self._entries:
                self._entries.move_to_end(key)
            return self._entries.get(key)

    def put(self, key: Hashable, data: bytes, answer: CallAnswer) -> None:
        """Cache an answer, unless it is large."""
        if len(data) + len(answer.output) > _MAX_CACHED_BYTES:
            return
        with self._lock:
            self._entries[key] = answer
            while len(self._entries) > _MAX_CACHED_ANSWERS:
                self._entries.popitem(last=False)
