"""What Flower's Grid answers, or fails to, as one sentence."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import httpx
import pytest

from clients.runs.flower import UnansweredError
from clients.training.port import TrainingError
from ledger.protocol.errors import EncodingError

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # flower's own imports warn


class OneGrid:
    """A Grid of one node: it fails, takes nothing, or has these answers."""

    def __init__(self, answers: Iterable[Any] = (), *, fails: bool = False) -> None:
        self._answers = list(answers)
        self._fails = fails
        self.pushed: list[Any] = []

    def get_node_ids(self) -> list[int]:
        return self._result([7])

    def push_messages(self, messages: Iterable[Any]) -> list[str]:
        self.pushed += messages
        return self._result(["name"] if self._answers else [])

    def pull_messages(self, names: Iterable[str]) -> list[Any]:
        assert list(names) == ["name"]
        return self._result(self._answers)

    def _result(self, value: list[Any]) -> list[Any]:
        if self._fails:
            raise httpx.ConnectError("refused")
        return value


@pytest.fixture(autouse=True)
def _as_in_a_server_app(monkeypatch: pytest.MonkeyPatch) -> None:
    from flwr.supercore.task_identity import TaskIdentity

    for name in ("_run_id", "_node_id", "_task_id"):
        monkeypatch.setattr(TaskIdentity, name, 1)


def test_a_silent_superlink_is_one_sentence() -> None:
    from clients.runs.flower_grid import GridNodes

    nodes: Any = GridNodes(OneGrid(fails=True))
    for ask in (nodes.online, lambda: nodes.send(7, b"m"), lambda: nodes.answers(["name"])):
        with pytest.raises(TrainingError, match=r"^Flower's SuperLink does not answer: Connect"):
            ask()


def test_a_message_that_is_not_taken_is_named_by_its_size() -> None:
    from clients.runs.flower_grid import GridNodes

    with pytest.raises(TrainingError, match="does not take a message of 5 bytes to node 7"):
        GridNodes(OneGrid()).send(7, b"large")


def test_bytes_come_back_and_errors_are_said() -> None:
    from flwr.app import Error, Message, RecordDict

    from clients.runs.flower_grid import GridNodes, read_message, reply_to

    grid = OneGrid([None])
    GridNodes(grid).send(7, b"question")
    (asked,) = grid.pushed
    asked.metadata.__dict__["_message_id"] = "name"
    assert read_message(asked) == b"question"
    for answer, expected in (
        (reply_to(asked, b"answer"), b"answer"),
        (Message(Error(code=3, reason="the node is gone"), reply_to=asked), "the node is gone"),
        (Message(RecordDict(), reply_to=asked), "another app"),
    ):
        nodes = GridNodes(OneGrid([answer]))
        (got,) = nodes.answers(["name"]).values()
        if isinstance(expected, bytes):
            assert got == expected
        else:
            assert isinstance(got, UnansweredError)
            assert expected in str(got)


def test_messages_of_other_apps_are_refused() -> None:
    from flwr.app import ArrayRecord, ConfigRecord, Message, RecordDict

    from clients.runs.flower_grid import read_message

    for content in (
        RecordDict(),
        RecordDict({"cmfl": ConfigRecord({"cmfl": b"bytes"})}),
        RecordDict({"cmfl": ArrayRecord()}),
    ):
        with pytest.raises(EncodingError, match="another app"):
            read_message(Message(content, 7, "train"))
