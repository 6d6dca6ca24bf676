"""Answers about final rounds, kept as bytes: given again without a look at the chain.

What is kept belongs to a chain and a URL. The chain is known by its block 0 and by the file or node
that it is read from, so that nothing of one home is given for another.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from api.http.encoded_answer import EncodedAnswer

Key = tuple[int, bytes, str]
"""Which opened chain, hash of its block 0, path and query."""

MOST_BYTES = 64 * 2**20


class AnswerCache:
    """The answers that were asked for last, up to so many bytes; safe to share between threads."""

    def __init__(self, max_bytes: int = MOST_BYTES) -> None:
        self._most = max_bytes
        self._held = 0
        self._answers: OrderedDict[Key, EncodedAnswer] = OrderedDict()
        self._lock = threading.Lock()

    def find(self, key: Key) -> EncodedAnswer | None:
        """Return what is kept under a key, None if there is nothing."""
        with self._lock:
            found = self._answers.get(key)
            if found is not None:
                self._answers.move_to_end(key)
            return found

    def keep(self, key: Key, answer: EncodedAnswer) -> None:
        """Keep an answer, and let those go that were not asked for longest.

        Args:
            key: its chain and URL.
            answer: one that cannot change any more.
        """
        if _size(answer) > self._most:
            return
        with self._lock:
            replaced = self._answers.pop(key, None)
            self._held += _size(answer) - (0 if replaced is None else _size(replaced))
            self._answers[key] = answer
            while self._held > self._most:
                _, gone = self._answers.popitem(last=False)
                self._held -= _size(gone)


def _size(answer: EncodedAnswer) -> int:
    """Return the most that an answer takes: plain, and compressed once that was asked for."""
    return 2 * len(answer.body)
