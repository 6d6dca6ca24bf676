"""The open round of a live federation over REST: told by evidence, and by nobody's own word."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import pytest
from pydantic import TypeAdapter
from starlette.applications import Starlette
from starlette.requests import Request

from api.federation import ChainTime, FederationMonitor
from api.histories import HistoryService
from api.http.answers import BUSY, ProblemError, RequestView
from api.schemas import FederationAnswer
from api.settings import Settings
from ledger.actors.view import RoundView
from ledger.chain.ports import Block
from ledger.protocol.types import Phase
from tests.api.conftest import read, refused, root_of, serving
from tests.api.live_federation import SECONDS, LiveFederation, live_federation
from tests.patience import PATIENCE_SECONDS

Look = Callable[..., dict[str, Any]]


class Closed:
    """A federation whose first round is closed: one chain for all tests, and mail for each."""

    def __init__(self, live: LiveFederation) -> None:
        self.live = live
        self.view: RoundView = live.actors.closed()
        live.actors.publish(*self.view.inputs.participants.active)

    def settings(self, mailbox: Path) -> Settings:
        return Settings(home=self.live.home, mailbox=str(mailbox))

    def deliver(self, mailbox: Path) -> list[Path]:
        """Put what was published where a test wants it; return the files."""
        shutil.copytree(self.live.mailbox, mailbox, dirs_exist_ok=True)
        return sorted(path for path in mailbox.rglob("*") if path.is_file())


def reading(histories: HistoryService) -> RequestView:
    """Return the view of a request to an app with these histories."""
    app = Starlette()
    app.state.histories = histories
    return RequestView(Request({"type": "http", "app": app}))


class Looking:
    """Somebody who looks at a federation, by a clock that a test sets."""

    def __init__(self, closed: Closed, mailbox: Path, *others: Path) -> None:
        self.mailbox = mailbox
        place = ",".join(map(str, (mailbox, *others)))
        settings = Settings(home=closed.live.home, mailbox=place)
        self.histories = HistoryService(settings)
        self.now = 0.0
        self._address = closed.live.address
        self.federations = FederationMonitor(settings, clock=lambda: self.now)

    def look(self) -> dict[str, Any]:
        answer = self.federations.snapshot(reading(self.histories), self._address).answer
        return cast("dict[str, Any]", answer)


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Closed]:
    with live_federation(tmp_path_factory.mktemp("federation")) as live:
        yield Closed(live)


@pytest.fixture
def looking(closed: Closed, tmp_path: Path) -> Iterator[Looking]:
    found = Looking(closed, tmp_path / "mailbox")
    yield found
    found.histories.close()


def entry(told: dict[str, Any], client: int) -> dict[str, Any]:
    return next(one for one in told["open"]["clients"] if one["client"] == client)


def test_a_round_is_told_from_its_opening_to_its_decision(tmp_path: Path) -> None:
    with live_federation(tmp_path) as live:
        settings = Settings(home=live.home, mailbox=str(live.mailbox))
        histories, clock, told = HistoryService(settings), [1.0], [0.0]
        federations = FederationMonitor(settings, clock=lambda: clock[0])

        def look(now: float | None = None) -> dict[str, Any]:
            clock[0] += 1 if now is None else now - told[0]
            answer = federations.snapshot(reading(histories), live.address).answer
            told[0] = answer["now"]
            return cast("dict[str, Any]", answer)

        play_and_look(live, look)
        histories.close()


def play_and_look(live: LiveFederation, look: Look) -> None:
    """Play a round, and look at it at every turn."""
    actors = live.actors
    told = look()
    TypeAdapter(FederationAnswer).validate_python(told)
    assert (told["stage"], told["open"]["stage"], told["open"]["round"]) == (
        "open",
        "committing",
        1,
    )
    chain = actors.chain_view()
    assert told["open"]["window_block"] == chain.opened_block + chain.parameters.commit_blocks
    assert told["now"] >= told["open"]["opened"]["time"]

    view = actors.closed()
    told = look()
    assert told["open"]["stage"] == "collecting"
    assert told["open"]["closing"]["number"] == view.inputs.closing.block
    assert all(one["committed_block"] is not None for one in told["open"]["clients"])
    assert all(one["payload"] is None for one in told["open"]["clients"])

    active = view.inputs.participants.active
    actors.publish(*active[1:])
    told = look(view.closed_at + SECONDS / 2 + 1)
    assert told["open"]["late"] == [active[0]]
    assert entry(told, active[0])["late_since"] == view.closed_at + SECONDS / 2
    actors.publish(active[0])

    view = actors.observer.look(view)
    for member in view.inputs.participants.members:
        view = live.step(view, member, view.closed_at + SECONDS / 2)
    told = look(view.closed_at + SECONDS + 10)
    assert told["open"]["late"] == []
    assert told["open"]["view"] == {
        "phase": "aggregation",
        "number": 0,
        "primary": view.primary(Phase.AGGREGATION, 0),
        "begins": view.closed_at + SECONDS,
        "ends": view.closed_at + 2 * SECONDS,
    }
    assert [one["scored"][0]["size"] for one in told["open"]["clients"] if one["scored"]] == [
        12
    ] * 5

    told = look(view.closed_at + 2 * SECONDS + 10)
    assert told["open"]["view"]["number"] == 1
    silent = entry(told, view.primary(Phase.AGGREGATION, 0))
    assert silent["passed"] == [{"phase": "aggregation", "view": 0}]

    decided = actors.play()
    assert decided is not None
    told = look()
    assert told["open"]["round"] == 2
    (second, first) = told["rounds"]
    assert (second["status"], second["ended"], second["seconds"]) == ("open", None, None)
    assert (first["status"], first["views"]) == ("decided", decided.views)
    assert first["seconds"] == first["ended"]["time"] - first["opened"]["time"]
    TypeAdapter(FederationAnswer).validate_python(told)


def test_deployment_links_to_a_watched_federation(closed: Closed, tmp_path: Path) -> None:
    with serving(closed.settings(closed.live.mailbox)) as client:
        root = root_of(client, closed.live.address)
        path = read(client, root)["links"]["federation"]
        TypeAdapter(FederationAnswer).validate_python(read(client, path))
        refused(client.get(f"{path}?x=1"), 422, "request-invalid")
        other = path.replace(closed.live.address, f"0x{'00' * 19}01")
        refused(client.get(other), 404, "deployment-not-found")
    settings = Settings(home=closed.live.home, blobs=tmp_path)
    with serving(settings) as client:
        assert "federation" not in read(client, root)["links"]
        for below in ("", "/events"):
            refused(client.get(f"{path}{below}"), 404, "federation-not-watched")


def test_mail_in_an_offline_mailbox_makes_nobody_late(closed: Closed, tmp_path: Path) -> None:
    here, away = tmp_path / "here", tmp_path / "away"
    kept, *_ = closed.deliver(away)
    copy = here / kept.relative_to(away)
    copy.parent.mkdir(parents=True)
    shutil.copy(kept, copy)
    elsewhere = away.rename(tmp_path / "elsewhere")
    looking = Looking(closed, here, away)
    try:
        looking.look()
        away.write_text("no folder any more")
        looking.now += 0.9 * SECONDS
        told = looking.look()
        assert sum(bool(one["payload"]) for one in told["open"]["clients"]) == 1
        assert not told["mailbox"]["read"]
        assert told["open"]["late"] == []
        away.unlink()
        elsewhere.rename(away)
        looking.now += 10
        told = looking.look()
        assert told["mailbox"]["read"]
        assert all(one["payload"] for one in told["open"]["clients"])
        assert told["open"]["late"] == []
    finally:
        looking.histories.close()


def test_time_advances_between_blocks_and_follows_a_slow_chain() -> None:
    time, hours = ChainTime(), 3_600.0
    first, second = (
        Block(number=number, hash=bytes([number]) * 32, parent_hash=bytes(32), timestamp=stamp)
        for number, stamp in ((1, 1_000), (2, 1_010))
    )
    assert [time.now(first, hours + passed) for passed in (0, 1.5, 9)] == [1_000, 1_001.5, 1_009]
    # A block in ten seconds that needed fifteen: a wall clock would say 1,016.
    assert [time.now(second, hours + passed) for passed in (15, 16)] == [1_010, 1_011]


def test_excess_mail_is_left_for_later(
    closed: Closed, looking: Looking, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("api.federation.BATCH_SIZE", 5)
    closed.deliver(looking.mailbox)
    held = []
    for _ in range(4):
        told = looking.look()
        held.append(
            (told["mailbox"]["read"], sum(bool(one["payload"]) for one in told["open"]["clients"]))
        )
        looking.now += 2
    assert held == [(False, 5), (False, 10), (True, 12), (True, 12)]


def test_one_look_serves_everybody_for_a_second(closed: Closed, looking: Looking) -> None:
    first = looking.look()
    closed.deliver(looking.mailbox)
    looking.now += 0.9
    assert looking.look() is first
    looking.now += 0.2
    assert looking.look() != first


def test_the_stream_tells_each_change_and_not_the_time(closed: Closed, tmp_path: Path) -> None:
    with serving(closed.settings(tmp_path / "mailbox")) as client:
        path = f"{root_of(client, closed.live.address)}/federation/events"
        with client.stream("GET", path, timeout=PATIENCE_SECONDS) as answer:
            assert answer.headers["content-type"].startswith("text/event-stream")
            data = (line for line in answer.iter_lines() if line.startswith("data: "))
            first = json.loads(next(data).removeprefix("data: "))
            closed.deliver(tmp_path / "mailbox")
            second = json.loads(next(data).removeprefix("data: "))
    assert all(one["payload"] is None for one in first["open"]["clients"])
    assert any(one["payload"] is not None for one in second["open"]["clients"])


@contextmanager
def one_hanging_look(looking: Looking, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let somebody look at a mailbox that does not answer."""
    is_held, leave = threading.Event(), threading.Event()

    def hang(_: object, view: RoundView, now: float) -> RoundView:
        is_held.set()
        assert leave.wait(PATIENCE_SECONDS)
        return view

    monkeypatch.setattr("api.federation._MonitoredDeployment._with_mail", hang)
    slow = threading.Thread(target=looking.look)
    slow.start()
    assert is_held.wait(PATIENCE_SECONDS)
    yield
    leave.set()
    slow.join()


def test_hanging_mailbox_delays_nobody(looking: Looking, monkeypatch: pytest.MonkeyPatch) -> None:
    first = looking.look()
    looking.now += 5
    with one_hanging_look(looking, monkeypatch):
        assert looking.look() is first


def test_first_poll_asks_others_to_retry(looking: Looking, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("api.federation.FIRST_SNAPSHOT_SECONDS", 0.01)
    with (
        one_hanging_look(looking, monkeypatch),
        pytest.raises(ProblemError, match="another request is reading") as refusal,
    ):
        looking.look()
    assert refusal.value.kind is BUSY
