"""`cmfl watch` says each state of a live federation once, and ends with the run."""

from __future__ import annotations

import io
import threading
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import TypeAdapter

from api.schemas import FederationAnswer
from api.settings import Settings
from clients.worker.status import StatusFile, WorkerState, status_before
from cmfl.commands import rounds
from ledger.protocol.errors import ServiceError
from tests.api.conftest import serving
from tests.api.examples import example
from tests.api.live_federation import LiveFederation, live_federation
from tests.cmfl.commands.conftest import refusal
from tests.patience import wait_until


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveFederation]:
    with live_federation(tmp_path_factory.mktemp("watched")) as found:
        yield found


def answer(**changed: Any) -> FederationAnswer:
    """Return an answer of a service, with this of the open round changed."""
    told = example(FederationAnswer)
    told["open"] |= {"view": None, "late": []} | changed
    return TypeAdapter(FederationAnswer).validate_python(told)


def test_each_stage_has_its_line() -> None:
    view = {"phase": "election", "number": 1, "primary": 7, "begins": 1.0, "ends": 2.0}
    client = example(FederationAnswer)["open"]["clients"][0]
    late = client | {"late_since": 5.0, "awaited": [{"act": "reply", "due": 5.0}]}
    empty = client | {"role": "empty_seat", "committed_block": None, "late_since": None}
    for changed, line in (
        ({"stage": "committing"}, "round 2: 1 of 1 committed, until block 17"),
        (
            {"stage": "committing", "clients": [client | {"late_since": None}, empty]},
            "round 2: 1 of 1 committed, until block 17",
        ),
        ({"stage": "collecting"}, "round 2: collecting, 1 of 1 payloads published"),
        ({"stage": "electing", "view": view}, "round 2: election, view 2, primary 7"),
        (
            {"stage": "electing", "view": view, "late": [7], "clients": [late]},
            "round 2: election, view 2, primary 7; late: 7 (reply)",
        ),
        ({"stage": "deciding"}, "round 2: both votes are certified, the decision is pending"),
        ({"stage": "exhausted"}, "round 2: all views failed, can be abandoned from block 17"),
    ):
        clients = changed.get("clients") or [client | {"late_since": None}]
        assert rounds.line_of(answer(**changed | {"clients": clients})) == line


def test_a_round_is_followed_until_the_service_is_gone(
    live: LiveFederation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rounds, "AWAY_SECONDS", 0)
    monkeypatch.setattr("api.federation.FRESH_SECONDS", 0.0)
    out, err, faults = io.StringIO(), io.StringIO(), []
    status = StatusFile(tmp_path / "status.json")
    status.write(status_before(WorkerState.RUNNING, 7, "no \x1b[2J space", 3), 0.0)
    settings = Settings(home=live.home, mailbox=str(live.mailbox))
    with serving(settings) as client:

        def follow() -> None:
            try:
                rounds.watch(api=str(client.base_url), poll=0.03, worker=[tmp_path])
            except ServiceError as error:
                faults.append(error)

        with redirect_stdout(out), redirect_stderr(err):
            follower = threading.Thread(target=follow)
            follower.start()
            wait_for(out, "round 1: 0 of 12 committed, until block 6")
            view = live.actors.closed()
            wait_for(out, "round 1: collecting, 0 of 12 payloads published")
            live.actors.publish(*view.inputs.participants.active)
            wait_for(out, "round 1: collecting, 12 of 12 payloads published")
            status.write(status_before(WorkerState.RUNNING, 7), 1.0)
            assert live.actors.play() is not None
            wait_for(out, "round 2: 0 of 12 committed")
    follower.join()
    assert err.getvalue().count(f"cmfl: {tmp_path}: starting: no \\x1b[2J space\n") == 1
    lines = out.getvalue().splitlines()
    assert len(lines) == len(set(lines))
    assert any(line.startswith("round 1: decided in views 1 and 1, after ") for line in lines)
    assert len(faults) == 1


def wait_for(out: io.StringIO, text: str) -> None:
    wait_until(lambda: text in out.getvalue(), out.getvalue)


def test_what_cannot_be_watched_is_refused(live: LiveFederation) -> None:
    assert "name a service with a mailbox" in refusal("watch")
    with serving(Settings(home=live.home, mailbox=str(live.mailbox))) as client:
        told = refusal("watch", "--api", client.base_url, "--worker", "nowhere")
    assert "nowhere/status.json: no worker has run on this folder" in told
    with serving(Settings(home=live.home)) as client:
        told = refusal("watch", "--api", client.base_url)
    assert "this service does not read a mailbox" in told


class Away:
    """A service that answers from some question on, and a clock that goes on as one waits."""

    def __init__(self, first: int) -> None:
        self.first, self.asked, self.now = first, 0, 0.0

    def federation(self) -> FederationAnswer:
        self.asked += 1
        if self.asked < self.first:
            raise ServiceError("it does not answer")
        return answer()

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def give_time(monkeypatch: pytest.MonkeyPatch, away: Away, sleep: Callable[[float], None]) -> None:
    """Let the command have a clock of its own: the process's is that of servers, too."""
    clock = SimpleNamespace(sleep=sleep, monotonic=lambda: away.now)
    monkeypatch.setattr("cmfl.commands.rounds.time", clock)


def asked(monkeypatch: pytest.MonkeyPatch, away: Away, poll: float) -> FederationAnswer:
    give_time(monkeypatch, away, away.sleep)
    return rounds._poll(away, poll)  # type: ignore[arg-type]


@pytest.mark.parametrize("poll", [0.1, 1.0, 600.0])
def test_an_offline_service_is_retried_for_a_minute_in_total(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], poll: float
) -> None:
    back = Away(first=2 + int(50 / poll))
    assert asked(monkeypatch, back, poll) == answer()
    assert capsys.readouterr().err.count("it does not answer; retrying for 60 s") == 1
    gone = Away(first=10**9)
    with pytest.raises(ServiceError, match="it does not answer"):
        asked(monkeypatch, gone, poll)
    assert 60 <= gone.now <= 60 + 2 * poll


def watched(monkeypatch: pytest.MonkeyPatch, answers: list[FederationAnswer], **how: Any) -> str:
    """Return what is printed of these answers, a minute after each other, up to the last."""
    away = Away(first=0)
    told = iter(answers)
    monkeypatch.setattr(Away, "federation", lambda _: next(told))
    give_time(monkeypatch, away, lambda _: away.sleep(60))
    monkeypatch.setattr("cmfl.commands.rounds.deployment_at", lambda *_: away)
    out = io.StringIO()
    with redirect_stdout(out):
        rounds.watch(api="http://127.0.0.1:1", **how)
    return out.getvalue()


def finished() -> FederationAnswer:
    return {**answer(), "stage": "finished", "open": None}


def test_a_chain_that_stands_still_is_said_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    still = answer(stage="collecting")
    moved: FederationAnswer = {**still, "as_of": {**still["as_of"], "hash": "0x" + "11" * 32}}
    out = watched(monkeypatch, [still, still, still, moved, moved, finished()])
    number = still["as_of"]["number"]
    assert capsys.readouterr().err.count(f"no block for 60 s: {number} is the newest") == 2
    assert len(out.splitlines()) == 2


@pytest.mark.parametrize("as_json", [False, True])
def test_text_of_a_service_controls_no_terminal(
    monkeypatch: pytest.MonkeyPatch, as_json: bool
) -> None:
    # CSI in eight bits, and a turn of direction; a client's schema does not know all words.
    hostile = answer(stage="collecting\x9b31m\u202e")
    told = watched(monkeypatch, [hostile, finished()], json=as_json)
    assert "collecting" in told
    assert all(one.isprintable() for line in told.splitlines() for one in line)
