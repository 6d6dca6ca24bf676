"""`cmfl watch` says each state of a live federation once, and ends with the run."""

from __future__ import annotations

import io
import threading
from contextlib import redirect_stdout
from typing import TYPE_CHECKING, Any

import pytest

from api.client.connection import ServiceProblemError
from api.schemas.federation import FederationAnswer
from api.schemas.words import example_of
from api.settings import Settings
from cli import watch
from ledger.protocol.errors import ServiceError
from tests.api.conftest import serving
from tests.api.live_federation import live_federation
from tests.cli.conftest import refusal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.api.live_federation import LiveFederation


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveFederation]:
    with live_federation(tmp_path_factory.mktemp("watched")) as found:
        yield found


def answer(**changed: Any) -> FederationAnswer:
    """Return an answer of a service, with this of the open round changed."""
    told = example_of(FederationAnswer)
    told["open"] |= {"view": None, "late": []} | changed
    return FederationAnswer.model_validate(told)


def test_each_stage_has_its_line() -> None:
    view = {"phase": "election", "number": 1, "primary": 7, "begins": 1.0, "ends": 2.0}
    client = example_of(FederationAnswer)["open"]["clients"][0]
    late = client | {"late_since": 5.0, "awaited": [{"act": "reply", "due": 5.0}]}
    for changed, line in (
        ({"stage": "committing"}, "round 2: 1 of 1 committed, until block 17"),
        ({"stage": "collecting"}, "round 2: collecting, 1 of 1 payloads published"),
        ({"stage": "electing", "view": view}, "round 2: election, view 2, primary 7"),
        (
            {"stage": "electing", "view": view, "late": [7], "clients": [late]},
            "round 2: election, view 2, primary 7; late: 7 (reply)",
        ),
        (
            {"stage": "deciding"},
            "round 2: both votes are certified, the decision is waited for",
        ),
        (
            {"stage": "exhausted"},
            "round 2: no view is left, may be abandoned from block 17 on",
        ),
    ):
        clients = changed.get("clients") or [client | {"late_since": None}]
        assert watch.line_of(answer(**changed | {"clients": clients})) == line


def test_a_line_names_a_dozen_and_counts_the_rest() -> None:
    client = example_of(FederationAnswer)["open"]["clients"][0]
    late = [client | {"client": i, "late_since": 5.0, "awaited": []} for i in range(14)]
    line = watch.line_of(answer(stage="collecting", late=list(range(14)), clients=late))
    assert line.endswith("11 () and 2 more")


def test_a_round_is_followed_until_the_service_is_gone(
    live: LiveFederation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "MOST_FAILURES", 1)
    out, faults = io.StringIO(), []
    settings = Settings(home=live.home, mailbox=str(live.mailbox))
    with serving(settings) as client:

        def follow() -> None:
            try:
                watch.watch(api=str(client.base_url), poll=0.1)
            except ServiceError as error:
                faults.append(error)

        with redirect_stdout(out):
            follower = threading.Thread(target=follow)
            follower.start()
            wait_for(out, "round 1: 0 of 12 committed, until block 6")
            view = live.actors.closed()
            wait_for(out, "round 1: collecting, 0 of 12 payloads published")
            live.actors.publish(*view.inputs.participants.active)
            wait_for(out, "round 1: collecting, 12 of 12 payloads published")
            assert live.actors.play() is not None
            wait_for(out, "round 2: 0 of 12 committed")
    follower.join()
    lines = out.getvalue().splitlines()
    assert len(lines) == len(set(lines))
    assert any(line.startswith("round 1: decided in views 1 and 1, after ") for line in lines)
    assert len(faults) == 1


def wait_for(out: io.StringIO, text: str) -> None:
    for _ in range(600):
        if text in out.getvalue():
            return
        threading.Event().wait(0.1)
    pytest.fail(f"{text!r} was not said: {out.getvalue()}")


def test_what_cannot_be_watched_is_refused(live: LiveFederation) -> None:
    assert "name a service that was begun with --mailbox" in refusal("watch")
    with serving(Settings(home=live.home)) as client:
        told = refusal("watch", "--api", client.base_url)
    assert "this service reads no mailbox" in told


def test_only_what_passes_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    class Away:
        def federation(self) -> FederationAnswer:
            asked.append(1)
            if len(asked) < 3:
                raise ServiceError("it does not answer")
            return answer()

    monkeypatch.setattr("cli.watch.time.sleep", lambda _: None)
    assert watch._asked(Away(), 1.0) == answer()  # type: ignore[arg-type]
    assert len(asked) == 3
    assert issubclass(ServiceProblemError, ServiceError)
