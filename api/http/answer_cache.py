"""Cache of answers about final rounds, as bytes.

A key holds the URL and the chain: its block 0, and the number of the opened file or node, so that
an answer of one home is never given for another.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from api.http.encoded_answer import EncodedAnswer

Key = tuple[int, bytes, str]
"""Number of the opened chain, hash of its block 0, path with query."""

MOST_BYTES = 64 * 2**20


class AnswerCache:
    """The most recently used answers, up to a number of bytes; safe to share between threads."""

    def __init__(self, max_bytes: int = MOST_BYTES) -> None:
        self._most = max_bytes
        self._size = 0
        self._answers: OrderedDict[Key, EncodedAnswer] = OrderedDict()
        self._lock = threading.Lock()

    def find(self, key: Key) -> EncodedAnswer | None:
        """Return a cached answer, None if there is none."""
        with self._lock:
            answer = self._answers.get(key)
            if answer is not None:
                self._answers.move_to_end(key)
            return answer

    def add(self, key: Key, answer: EncodedAnswer) -> None:
        """Add an immutable answer, and evict the least recently used ones."""
        if _size(answer) > self._most:
            return
        with self._lock:
            replaced = self._answers.pop(key, None)
            self._size += _size(answer) - (0 if replaced is None else _size(replaced))
            self._answers[key] = answer
            while self._size > self._most:
                _, evicted = self._answers.popitem(last=False)
                self._size -= _size(evicted)


def _size(answer: EncodedAnswer) -> int:
    """Return the size of an answer, plain and compressed, at most."""
    return 2 * len(answer.body)
