"""Indexers that follow their chains, in one thread beside those that read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ledger.protocol.errors import CmflError

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Iterable

    from ledger.index.indexer import Indexer, IndexingProgress


def catch_up(
    indexer: Indexer, progress: Callable[[IndexingProgress], None] = lambda _: None
) -> IndexingProgress:
    """Step until the newest block is read; return what the last step came to.

    Args:
        indexer: of a deployment.
        progress: called after each step.

    Raises:
        ChainError: the chain cannot be read, or its logs are not whole.
        IndexStoreError: the index cannot be written.
    """
    while True:
        found = indexer.step()
        progress(found)
        if found.is_done and not found.rewound:
            return found


def follow(
    indexers: Callable[[], Iterable[Indexer]],
    stop: threading.Event,
    *,
    pause_seconds: float = 1.0,
    told: Callable[[CmflError], None] = lambda _: None,
) -> None:
    """Keep indexes up with their chains until told to stop.

    A chain that does not answer, or an index that is busy, is tried again after the pause.

    Args:
        indexers: returns those of the deployments that there are now.
        stop: set to end it, after the step that is under way.
        pause_seconds: after every one of them has read the newest block.
        told: called with each error.
    """
    while not stop.is_set():
        is_done = True
        try:
            for indexer in indexers():
                is_done &= _stepped(indexer, told)
                if stop.is_set():
                    return
        except CmflError as error:
            told(error)
        if is_done:
            stop.wait(pause_seconds)


def _stepped(indexer: Indexer, told: Callable[[CmflError], None]) -> bool:
    """Take one step; say whether it need not be followed by another at once."""
    try:
        found = indexer.step()
    except CmflError as error:
        told(error)
        return True
    return found.is_done and not found.rewound
