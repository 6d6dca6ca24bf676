"""Log filters find what a scan of every receipt finds, and cost their results only."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import cache

import pytest

from ledger.chain.embedded import chain_store
from ledger.chain.embedded.embedded_chain import EmbeddedChain
from ledger.chain.ports import Log, LogQuery, TopicFilter
from tests.chain.probe import TOPIC, deploy, word, words


@pytest.fixture(scope="module")
def chain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedChain]:
    path = tmp_path_factory.mktemp("logs") / "chain.sqlite"
    with EmbeddedChain.create(path, synchronous="NORMAL") as chain:
        first, second = deploy(chain), deploy(chain)
        for number in range(60):
            contract = first if number % 3 else second
            chain.send(contract, words(number % 4 + 1, number % 5), 200_000)
        chain.mine(40)
        yield chain


@cache
def all_logs(chain: EmbeddedChain) -> list[Log]:
    """Return what every receipt of the chain holds, which is read once."""
    found: list[Log] = []
    for number in range(chain.head().number + 1):
        for transaction in chain.transactions(chain.header(number)):
            receipt = chain.receipt(bytes(transaction.hash))
            assert receipt is not None
            found += receipt.logs
    return found


def scanned(
    chain: EmbeddedChain, address: str | None, topics: list[TopicFilter], first: int, last: int
) -> list[Log]:
    return [
        log
        for log in all_logs(chain)
        if first <= log.block_number <= last
        and address in {None, log.address}
        and all(matches(log, number, topic) for number, topic in enumerate(topics))
    ]


def matches(log: Log, number: int, topic: TopicFilter) -> bool:
    if topic is None:
        return True
    wanted = [topic] if isinstance(topic, bytes) else topic
    return number < len(log.topics) and log.topics[number] in wanted


TOPICS0: list[TopicFilter] = [None, TOPIC, word(1)]
TOPICS1: list[TopicFilter] = [None, word(2), [word(1), word(4)]]
TOPICS2: list[TopicFilter] = [None, word(3), [word(0), word(9)]]


@pytest.mark.parametrize(("first", "last"), [(0, 10**18), (10, 20), (62, 1000)])
def test_every_filter_equals_the_scan(chain: EmbeddedChain, first: int, last: int) -> None:
    for number, topics in itertools.product([None, 1, 2], itertools.product(*topic_lists())):
        address = None if number is None else deployed(chain, number)
        expected = scanned(chain, address, list(topics), first, last)
        assert chain.logs(LogQuery(address, topics, first, last)) == expected
        newest = chain.logs(LogQuery(address, topics, first, last, 3, descending=True))
        assert newest == expected[::-1][:3]


def topic_lists() -> list[list[TopicFilter]]:
    return [TOPICS0, TOPICS1, TOPICS2]


@cache
def deployed(chain: EmbeddedChain, block: int) -> str:
    [transaction] = chain.transactions(chain.header(block))
    receipt = chain.receipt(bytes(transaction.hash))
    assert receipt is not None
    assert receipt.contract_address is not None
    return receipt.contract_address


@pytest.mark.parametrize(
    ("address", "topics", "index"),
    [
        ("0x" + "01" * 20, [], "logs_by_address"),
        ("0x" + "01" * 20, [TOPIC], "logs_by_topic0"),
        (None, [None, word(1)], "logs_by_topic1"),
        ("0x" + "01" * 20, [TOPIC, None, [word(1), word(2)]], "logs_by_topic2"),
    ],
)
def test_a_filter_is_answered_by_its_most_selective_index(
    chain: EmbeddedChain, address: str | None, topics: list[TopicFilter], index: str
) -> None:
    query = chain_store.select(LogQuery(address, topics, 0, 10**9, descending=True))
    assert query is not None
    plan = chain._store.rows("EXPLAIN QUERY PLAN " + query[0], query[1])
    assert any(f"SEARCH logs USING INDEX {index}" in row[3] for row in plan)
