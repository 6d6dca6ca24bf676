"""Chain readers without resources: everything is in memory, and nothing is opened or closed."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from types import TracebackType

    from ledger.chain.ports import Log, TopicFilter


class OfflineChain:
    """Base class of a `ChainReader` that holds no file, lock or connection."""

    @property
    def node(self) -> str | None:
        """None: no node answers."""
        return None

    @contextmanager
    def snapshot(self) -> Iterator[Self]:
        """Yield this chain: it does not change by itself."""
        yield self

    def close(self) -> None:
        """Do nothing."""

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
    """Return whether a log matches a topic filter."""
    if len(topics) > len(log.topics):
        return False
    for alternatives, topic in zip(topics, log.topics, strict=False):
        allowed = [alternatives] if isinstance(alternatives, bytes) else alternatives
        if allowed is not None and topic not in allowed:
            return False
    return True
