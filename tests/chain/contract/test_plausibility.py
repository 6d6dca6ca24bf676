"""What no contract of its sizes can say is an answer of the node's, and no fact of the chain."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from ledger.chain.contract import abi
from ledger.chain.contract.codec import encode_log, require_possible_event, require_possible_sizes
from ledger.chain.contract.ledger import CommitteeLedger
from ledger.chain.ports import Block, Log, LogQuery, NotServedError
from ledger.chain.round_ledger import RecordedEvent
from ledger.protocol import encoding
from ledger.protocol.encoding import RegisteredClient
from ledger.protocol.ledger_state import (
    ClientBanned,
    ClientsRegistered,
    Deployment,
    Event,
    LedgerOpened,
    RoundAbandoned,
    RoundDecided,
    UpdatesCommitted,
)
from ledger.protocol.types import AcceptanceForm, Address, Beacon, ClientId
from tests.contracts.twins import digest_of

SOME = digest_of("some")
FIXED = Deployment(
    config=SOME,
    registry=SOME,
    clients=12,
    trainers=6,
    members=3,
    aggregation_ppm=500_000,
    form=AcceptanceForm.FIRST,
    rounds=4,
    commit_blocks=2,
    deadline_blocks=5,
    replies=2,
    beacon=Beacon.NONE,
    model=SOME,
)


def clients(*numbers: int) -> tuple[ClientId, ...]:
    return tuple(map(ClientId, numbers))


def words(*numbers: int, samples: int = 5) -> tuple[int, ...]:
    return tuple(
        encoding.registry_word(RegisteredClient(Address(bytes([number + 1] * 20)), samples))
        for number in numbers
    )


RANKING = tuple(encoding.ranking_word(rank / 2, ClientId(rank + 3)) for rank in range(5))
DIGESTS = (
    *("base", "model", "updates_root", "scores_root", "reveal", "record", "incidents"),
    *("next_seed", "head"),
)
DECIDED = RoundDecided(
    round=1,
    ranking=RANKING,
    accepted=clients(3, 4, 5),
    next_committee=clients(4, 5, 6),
    views=(0, 0),
    primaries=(ClientId(0), ClientId(0)),
    signers=(3, 3),
    **dict.fromkeys(DIGESTS, SOME),
)
REGISTERED = ClientsRegistered(ClientId(0), words(*range(12)))
OPENED = LedgerOpened(SOME, SOME, clients(0, 1, 2), SOME)
POSSIBLE: list[Event] = [
    REGISTERED,
    OPENED,
    LedgerOpened(SOME, SOME, clients(0, 1), SOME),
    UpdatesCommitted(1, clients(3, 4), (SOME, SOME)),
    DECIDED,
    RoundAbandoned(1, (), SOME, SOME),
    ClientBanned(1, ClientId(11), SOME),
]
IMPOSSIBLE: list[Event] = [
    replace(REGISTERED, first=ClientId(1)),
    replace(REGISTERED, words=words(0, samples=0)),
    replace(REGISTERED, words=(words(0)[0] | 1 << 224,)),
    replace(OPENED, committee=clients(0, 1, 2, 3)),
    replace(OPENED, committee=clients(0, 0)),
    replace(OPENED, committee=clients(12)),
    UpdatesCommitted(5, clients(3), (SOME,)),
    UpdatesCommitted(1, clients(3, 3), (SOME, SOME)),
    replace(DECIDED, round=0),
    replace(DECIDED, ranking=(*RANKING, 2**96)),
    replace(DECIDED, ranking=(encoding.INFINITY_BITS << 32,)),
    replace(DECIDED, ranking=tuple(RANKING[0] + step for step in range(7))),
    replace(DECIDED, ranking=(RANKING[0], RANKING[0])),
    replace(DECIDED, next_committee=clients(4)),
    replace(DECIDED, primaries=(ClientId(0), ClientId(12))),
    RoundAbandoned(1, clients(99), SOME, SOME),
    ClientBanned(1, ClientId(12), SOME),
    ClientBanned(5, ClientId(1), SOME),
]


def recorded(event: Event) -> RecordedEvent:
    return RecordedEvent(event, 7, SOME, SOME, 0)


@pytest.mark.parametrize("event", POSSIBLE, ids=lambda event: type(event).__name__)
def test_what_the_contract_can_log_is_taken(event: Event) -> None:
    require_possible_event(recorded(event), FIXED)


@pytest.mark.parametrize("event", IMPOSSIBLE, ids=lambda event: type(event).__name__)
def test_what_it_cannot_log_is_the_nodes_word(event: Event) -> None:
    with pytest.raises(NotServedError, match=f"block 7 contains a {type(event).__name__} "):
        require_possible_event(recorded(event), FIXED)


@pytest.mark.parametrize(
    "changes",
    [
        {"members": 2},
        {"trainers": 2},
        {"clients": 8},
        {"aggregation_ppm": 1_000_001},
        {"rounds": 0},
        {"commit_blocks": 0},
        {"deadline_blocks": 3},
        {"replies": 3},
    ],
    ids=str,
)
def test_sizes_that_the_constructor_refuses_are_the_nodes_word(changes: dict[str, Any]) -> None:
    require_possible_sizes(FIXED)
    with pytest.raises(NotServedError, match="which the constructor refuses"):
        require_possible_sizes(replace(FIXED, **changes))


def published(values: Sequence[object]) -> bytes:
    """Return the published code with these immutables behind the domain's separator and salt."""
    return abi.artifact().runtime + bytes(64) + told(values)


class ToldChain:
    """A node that answers with what a test has written down; its code is foreign if none is."""

    node = "http://node"

    def __init__(
        self, events: Sequence[Event] = (), code: bytes = b"\xfe", **answers: Sequence[object]
    ) -> None:
        self._events, self._code = events, code
        self._answers = {"deployment": values(FIXED), **answers}

    def head(self) -> Block:
        return Block(9, SOME, SOME, 0)

    def call(self, _: str, data: bytes, *__: object) -> bytes:
        named = [found for name, found in self._answers.items() if abi.selector(name) == data[:4]]
        return b"".join(map(told, named))

    def code(self, _: str) -> bytes:
        return self._code

    def logs(self, query: LogQuery) -> list[Log]:
        topics: Any = query.topics
        found = [encode_log(event) for event in self._events]
        return [
            Log(str(query.address), names, data, 7, SOME, SOME, index)
            for index, (names, data) in enumerate(found)
            if names[0] in topics[0]
        ]


def told(values: Sequence[object]) -> bytes:
    return b"".join(value if isinstance(value, bytes) else word(value) for value in values)


def word(value: object) -> bytes:
    assert isinstance(value, int)
    return value.to_bytes(32)


def values(d: Deployment, strategy: int = 1) -> list[object]:
    sizes = [d.config, d.registry, d.clients, d.trainers, d.members, d.aggregation_ppm]
    blocks = [d.commit_blocks, d.deadline_blocks]
    return [*sizes, strategy, d.rounds, *blocks, d.replies, 0, d.model]


def ledger(events: Sequence[Event] = (), **answers: Any) -> CommitteeLedger:
    return CommitteeLedger(ToldChain(events, **answers), f"0x{'11' * 20}")  # type: ignore[arg-type]


def test_the_published_code_gives_the_deployment_and_is_not_called() -> None:
    assert ledger(code=published(values(FIXED)), deployment=[b"a lie"]).deployment() == FIXED
    with pytest.raises(NotServedError, match="strategy 77, which does not exist"):
        ledger(code=published(values(FIXED, strategy=77))).deployment()


@pytest.mark.parametrize(
    "change",
    [
        lambda code: code + b"\0",
        lambda code: code[:-1],
        lambda code: code[:-64] + bytes([1] * 32) + code[-32:],  # the beacon is no flag
        lambda _: b"",
    ],
    ids=["longer", "shorter", "another type", "none"],
)
def test_other_code_is_called(change: Callable[[bytes], bytes]) -> None:
    code = change(published(values(FIXED, strategy=77)))
    assert ledger(code=code).deployment() == FIXED


def test_an_unknown_strategy_or_stage_is_no_answer() -> None:
    assert ledger().deployment() == FIXED
    with pytest.raises(NotServedError, match="strategy 77, which does not exist"):
        ledger(deployment=values(FIXED, strategy=77)).deployment()
    state: list[object] = [1, 1, 7, *[SOME] * 4, 12, *[SOME] * 2]
    assert ledger(state=state).state().round == 1
    with pytest.raises(NotServedError, match="stage 9, which does not exist"):
        ledger(state=[9, *state[1:]]).state()


@pytest.mark.parametrize("answer", [[b"\x01"], [1], [2**256 - 1] * 13])
def test_an_answer_that_does_not_decode_is_no_answer(answer: list[object]) -> None:
    with pytest.raises(NotServedError, match="not an answer of this contract"):
        ledger(deployment=answer).deployment()


def test_every_way_to_read_events_refuses_the_impossible() -> None:
    lying = ledger([replace(OPENED, committee=clients(99))])
    with pytest.raises(NotServedError, match="of client 99, of 12"):
        lying.opening(1)
    lying = ledger([ClientBanned(1, ClientId(99), SOME)])
    for read in (lying.bans, lambda: lying.round_events(1)):
        with pytest.raises(NotServedError):
            read()
    with pytest.raises(NotServedError):
        ledger([RoundAbandoned(9, (), SOME, SOME)]).outcomes(1)
    with pytest.raises(NotServedError):
        ledger([UpdatesCommitted(1, clients(12), (SOME,))]).commitments(1)
