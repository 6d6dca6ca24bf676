"""Of too many bodies that come for one client, the one with the least progress of late is cut."""

from __future__ import annotations

import asyncio
import math
from contextlib import AsyncExitStack

import pytest

from api.store.slots import (
    DIGESTS_AT_ONCE,
    RECENT_SECONDS,
    SAME_AT_ONCE,
    SILENT_AT_ONCE,
    Slots,
)
from ledger.protocol.encoding import sha256
from ledger.protocol.types import ClientId, Upload


def upload(name: int, client: int = 0) -> Upload:
    return Upload(1, ClientId(client), "", sha256(b"%d" % name), 1_000)


def cut_of(arrivals: list[tuple[Upload, int]]) -> list[int]:
    """Return which of the bodies that begin one after the other are cut, the rest still coming."""
    cut: list[int] = []

    async def one(slots: Slots, number: int, ended: asyncio.Event) -> None:
        announced, size = arrivals[number]
        try:
            async with slots.hold(announced, 600) as transfer:
                if size:
                    slots.count(transfer, size)
                await ended.wait()
        except TimeoutError:
            cut.append(number)

    async def all_of_them() -> None:
        slots, ended = Slots(), asyncio.Event()
        async with asyncio.TaskGroup() as group:
            for number in range(len(arrivals)):
                group.create_task(one(slots, number, ended))
                for _ in range(5):
                    await asyncio.sleep(0)
            ended.set()
        assert not slots._clients, "what has ended holds nothing"

    asyncio.run(all_of_them())
    return cut


def test_bodies_of_one_digest_compete_with_each_other_alone() -> None:
    others = [(upload(name), 10) for name in range(1, DIGESTS_AT_ONCE)]
    replays = [(upload(0), 1)] * 50
    first = len(others)
    cut = cut_of([*others, (upload(0), 500), *replays])
    assert len(cut) == 50 - (SAME_AT_ONCE - 1)
    assert min(cut) > first, "neither the others nor the one that has come furthest"


def test_the_digest_with_the_least_progress_is_dropped_first() -> None:
    sizes = [500, 400, 3, 300, 600, 700, 800, 900]
    assert len(sizes) == DIGESTS_AT_ONCE
    arrivals = [(upload(name), size) for name, size in enumerate(sizes)]
    assert cut_of([*arrivals, (upload(2), 4)]) == [], "a second body of one of them is no ninth"
    assert cut_of([*arrivals, (upload(2), 4), (upload(8), 1)]) == [2, 8]
    # A newcomer has had no time; the next one cuts it if it does nothing with its own.
    assert cut_of([*arrivals, (upload(8), 1), (upload(9), 1)]) == [2, 8]


def test_what_sends_nothing_takes_no_slot_of_what_comes() -> None:
    coming = [(upload(name), 1) for name in range(DIGESTS_AT_ONCE)]
    silent = [(upload(name), 0) for name in range(SILENT_AT_ONCE + 20)]
    first = len(coming)
    assert cut_of([*coming, *silent]) == list(range(first, first + 20)), "the oldest of them"


def test_one_clients_bodies_cut_none_of_anothers() -> None:
    others = [(upload(name, client=1), 1) for name in range(DIGESTS_AT_ONCE)]
    mine = [(upload(name), 9) for name in range(100, 100 + DIGESTS_AT_ONCE)]
    assert cut_of([*others, *mine]) == []


def test_what_came_long_ago_is_no_progress() -> None:
    async def progress() -> tuple[float, float]:
        async with AsyncExitStack() as stack:
            slots = Slots()
            burst = await stack.enter_async_context(slots.hold(upload(0), 600))
            burst.count(1_000_000, 0)
            steady = await stack.enter_async_context(slots.hold(upload(1), 600))
            for second in range(100):
                steady.count(1_000, second)
            return burst.progress(100), steady.progress(100)

    burst, steady = asyncio.run(progress())
    assert burst == pytest.approx(1_000_000 * math.exp(-100 / RECENT_SECONDS))
    assert burst < 1 < steady
