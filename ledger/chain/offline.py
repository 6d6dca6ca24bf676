"""What chains have in common that hold all that they tell: no file, no lock, no connection."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from types import TracebackType

    from ledger.chain.ports import Log, TopicFilter


class OfflineChain:
    """The part of a `ChainReader` that has nothing to open and nothing to give back."""

    @property
    def node(self) -> str | None:
        """None: no node is asked."""
        return None

    @contextmanager
    def snapshot(self) -> Iterator[Self]:
        """Yield this chain, which moves only when it is told to."""
        yield self

    def close(self) -> None:
        """Nothing is held open."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def matches_topics(log: Log, topics: Sequence[TopicFilter]) -> bool:
    """Say whether a log is one of those that are asked for by their topics.

    Args:
        log: any.
        topics: per position a topic, several of which one must match, or None for any.
    """
    if len(topics) > len(log.topics):
        return False
    for wanted, topic in zip(topics, log.topics, strict=False):
        allowed = [wanted] if isinstance(wanted, bytes) else wanted
        if allowed is not None and topic not in allowed:
            return False
    return True
