"""The harness changes what it says, and calls killed only what a test has failed for."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import pytest

from tests.mutation import python_source, table, testing
from tests.mutation.__main__ import is_to_be_tried
from tests.mutation.measuring import measured
from tests.mutation.mutants import Kind, named
from tests.mutation.nearest import Measured, nearest
from tests.mutation.processes import done_apart
from tests.mutation.results import Outcome, Result, append, read

if TYPE_CHECKING:
    from pathlib import Path
    from types import ModuleType

    from tests.mutation.mutants import Mutant

PYTHON = b"""
def clamp(value, most):
    if value < 0 and most:
        raise ValueError("negative")
    total = value + 1
    return keccak(b"a" + total)
"""

VYPER = b"""# pragma version 0.4.3
MOST: constant(uint256) = 7
total: uint256

@external
def add(value: uint256) -> bool:
    assert value < MOST, "too much"
    self.total += value
    return value != 0
"""


HYPOTHESIS = "_hypothesis_pytestplugin"

DRAWN = """
from hypothesis import given, strategies

@given(strategies.integers())
def test_it(_):
"""


def python_mutants(source: bytes) -> list[Mutant]:
    return named("module.py", source, python_source.edits_of(source))


def vyper_mutants(source: bytes) -> list[Mutant]:
    pytest.importorskip("vyper", reason="the compiler is in the dev extra")
    from tests.mutation import vyper_source

    return named("contract.vy", source, vyper_source.edits_of(source))


def changes(mutants: list[Mutant]) -> set[tuple[str, str, str]]:
    return {(one.edit.kind.value, one.original, one.replacement) for one in mutants}


def test_each_small_change_of_a_python_source_is_a_mutant() -> None:
    assert changes(python_mutants(PYTHON)) == {
        ("guard", "value < 0 and most", "False"),
        ("guard", 'raise ValueError("negative")', "pass"),
        ("boolean", "and", "or"),
        ("comparison", "<", ">="),
        ("boundary", "<", "<="),
        ("constant", "0", "(0 + 1)"),
        ("arithmetic", "+", "-"),
        ("constant", "1", "(1 + 1)"),
        ("constant", "1", "(1 - 1)"),
        ("returned", 'keccak(b"a" + total)', "None"),
        ("hash field", 'b"a" +', ""),
        ("hash field", "+ total", ""),
        ("hash field", 'b"a" + total', 'total + b"a"'),
        ("constant", 'b"a"', "b'?'"),
    }


def test_each_small_change_of_a_contract_is_a_mutant() -> None:
    assert changes(vyper_mutants(VYPER)) == {
        ("constant", "7", "8"),
        ("constant", "7", "6"),
        ("guard", 'assert value < MOST, "too much"', "pass"),
        ("comparison", "<", ">="),
        ("boundary", "<", "<="),
        ("store", "self.total += value", "pass"),
        ("arithmetic", "+", "-"),
        ("comparison", "!=", "=="),
        ("constant", "0", "1"),
        ("returned", "value != 0", "not (value != 0)"),
        ("returned", "value != 0", "empty(bool)"),
    }


SAID = b"""# pragma version 0.4.3
current: uint64
head: bytes32

@external
def ban(client: uint256, round: uint64, phase: uint8) -> uint64:
    now: uint64 = self.current
    self.current = now
    return self._later(round)

@internal
def _later(round: uint64, other: uint64) -> uint64:
    return other
"""


def test_a_senders_claim_bounds_a_number_of_others() -> None:
    clamped = {change[1:] for change in changes(vyper_mutants(SAID)) if change[0] == "clamped"}
    assert clamped == {("now", "max(1, min(now, round))"), ("now", "max(now, round)")}


def test_a_mutant_is_its_source_with_one_change() -> None:
    (guard,) = [m for m in python_mutants(PYTHON) if m.replacement == "False"]
    assert guard.edit.line == 3
    assert guard.edit.applied(PYTHON) == PYTHON.replace(b"value < 0 and most", b"False")


def test_a_mutant_keeps_its_name_when_lines_move() -> None:
    moved = b"\n\n# above\n" + PYTHON
    assert [m.name for m in python_mutants(moved)] == [m.name for m in python_mutants(PYTHON)]
    assert len({m.name for m in python_mutants(PYTHON + PYTHON)}) == 2 * len(python_mutants(PYTHON))


def test_an_offset_counts_bytes() -> None:
    source = "def f(x):\n    return 'Δ' and x < 1\n".encode()
    for mutant in python_mutants(source):
        compile(mutant.edit.applied(source), "f", "exec")


def seen_by(folder: Path, body: str, limit: float) -> dict[str, Any]:
    """Return what becomes of a mutant that is seen by these tests."""
    path = folder / "test_seen.py"
    path.write_text(body)

    def work(apart: Path) -> dict[str, Any]:
        # So often that pytest, telling of the first stop, is stopped itself.
        tests = testing.Tests(None, limit, again=0.01)
        options = (f"--rootdir={folder}", "--config-file=/dev/null", "-p", HYPOTHESIS)
        os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # to look for others takes the longest
        return testing.outcome_of(tests, testing.run(tests, [str(path)], apart, *options))

    ended = done_apart(work)
    assert ended.answer is not None, ended.log_tail
    answer: dict[str, Any] = ended.answer
    return answer


@pytest.mark.parametrize(
    ("body", "outcome"),
    [
        ("def test_it():\n    assert True\n", "survived"),
        ("def test_it():\n    assert False\n", "killed"),
        ("import nothing_of_the_kind\n", "crashed"),
        ("def test_it():\n    while True:\n        pass\n", "loops"),
        (DRAWN + "    while True:\n        pass\n", "loops"),
    ],
)
def test_only_a_failed_or_a_looping_test_kills(tmp_path: Path, body: str, outcome: str) -> None:
    assert seen_by(tmp_path, body, limit=0.3)["outcome"] == outcome


def test_a_process_that_dies_has_no_answer() -> None:
    assert done_apart(lambda _: os.kill(os.getpid(), signal.SIGKILL)).answer is None
    assert done_apart(lambda folder: (folder / "nothing").read_text()).answer is None
    assert done_apart(lambda folder: folder.exists()).answer is True


def test_a_test_may_take_ten_times_its_time_plus_seconds() -> None:
    tests = testing.Tests(None, 60.0, {"quick": 0.1, "slow": 9.0})
    assert [tests.limit_of(name) for name in ("quick", "slow", "new")] == [6.0, 60.0, 60.0]


def result_of(mutant: Mutant, outcome: Outcome, test: str = "") -> Result:
    edit = mutant.edit
    fields = (mutant.name, mutant.path, edit.line, edit.function, edit.kind.value)
    return Result(*fields, mutant.original, mutant.replacement, outcome, test, 1, 0.1)


def test_nearest_then_deadly_then_quick_tests_go_first() -> None:
    first, second, *_ = python_mutants(PYTHON)
    measured = Measured({"slow": 9.0, "quick": 1.0, "killer": 5.0, "near": 7.0}, {}, {})
    results = {second.name: result_of(second, Outcome.KILLED, "killer")}
    order = nearest(measured, ["near", "gone"], first, results, most_seconds=7.0)
    assert order == ["near", "killer", "quick"]


def test_results_are_read_back_newest_first_ignoring_torn_lines(tmp_path: Path) -> None:
    (mutant, *_), path = python_mutants(PYTHON), tmp_path / "python.jsonl"
    assert read(path) == {}
    append(path, result_of(mutant, Outcome.SURVIVED))
    append(path, result_of(mutant, Outcome.KILLED, "a test"))
    with path.open("a") as file:
        file.write('{"name": "torn')
    assert read(path) == {mutant.name: result_of(mutant, Outcome.KILLED, "a test")}


def test_a_survivor_without_a_reason_is_not_passed_over(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    there_are = python_mutants(PYTHON)
    guard, other = (
        next(one for one in there_are if one.edit.kind is kind)
        for kind in (Kind.GUARD, Kind.ARITHMETIC)
    )
    append(tmp_path / "python.jsonl", result_of(guard, Outcome.KILLED, "a test"))
    assert table.show(tmp_path, None, there_are) == 0
    append(tmp_path / "python.jsonl", result_of(other, Outcome.SURVIVED))
    assert table.show(tmp_path, tmp_path / "page.md", there_are) == 1
    page = (tmp_path / "page.md").read_text()
    assert "NOT EXPLAINED" in page
    assert "Tried: 2 of 15 changes." in page
    assert "| all | 2 | 1 | 1 | 0 |" in capsys.readouterr().out


def test_the_result_of_a_vanished_change_does_not_count(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (gone, *_), there_are = python_mutants(PYTHON), python_mutants(b"x = 1 < 2\n")
    append(tmp_path / "python.jsonl", result_of(gone, Outcome.SURVIVED))
    assert table.show(tmp_path, None, there_are) == 0
    assert f"Tried: 0 of {len(there_are)} changes." in capsys.readouterr().out


def test_a_mutant_is_retried_after_its_killing_test_disappears() -> None:
    (mutant, *_), without = python_mutants(PYTHON), Measured({"a test": 1.0}, {}, {})
    nothing = set[Outcome]()
    assert is_to_be_tried(None, without, nothing)
    assert not is_to_be_tried(result_of(mutant, Outcome.KILLED, "a test"), without, nothing)
    assert is_to_be_tried(result_of(mutant, Outcome.KILLED, "another"), without, nothing)
    survived = result_of(mutant, Outcome.SURVIVED)
    assert not is_to_be_tried(survived, without, nothing)
    assert is_to_be_tried(survived, without, {Outcome.SURVIVED})


@dataclass
class Trial:
    """Stands for a kind of source: its tests are not run, but counted."""

    root: Path
    TESTS: tuple[str, ...] = ("tests",)
    LEFT_OUT: tuple[str, ...] = ("tests/test_left_out.py",)

    def sources(self) -> list[Path]:
        return [self.root / "source.py"]

    def measure(self, paths: list[str], _folder: Path) -> dict[str, object]:
        with (self.root / "measured").open("a") as file:
            file.write(" ".join(paths) + "\n")
        seconds = {f"{path}::test_it": 1.0 for path in paths}
        return {"code": 0, "seconds": seconds, "refusals": {}, "lines": {"source.py:1": [*seconds]}}


def test_tests_are_measured_anew_where_the_tree_is_another_one(tmp_path: Path) -> None:
    (tmp_path / "tests").mkdir()
    for name in ("source.py", "tests/test_a.py", "tests/test_b.py", "tests/test_left_out.py"):
        (tmp_path / name).write_text("x = 1\n")

    def again() -> tuple[Measured | None, list[str]]:
        found = measured("it", cast("ModuleType", Trial(tmp_path)), tmp_path, tmp_path / "kept")
        return found, (tmp_path / "measured").read_text().splitlines()

    both = "tests/test_a.py tests/test_b.py"
    tests = ["tests/test_a.py::test_it", "tests/test_b.py::test_it"]
    expected = Measured(dict.fromkeys(tests, 1.0), {}, {"source.py:1": tests})
    assert again() == (expected, [both])
    assert again() == (expected, [both])
    (tmp_path / "tests" / "test_b.py").write_text("x = 2\n")
    assert again() == (expected, [both, "tests/test_b.py"])
    (tmp_path / "tests" / "test_a.py").unlink()
    found, runs = again()
    assert found == Measured({tests[1]: 1.0}, {}, {"source.py:1": [tests[1]]})
    (tmp_path / "source.py").write_text("x = 2\n")
    assert again() == (found, [*runs, "tests/test_b.py"])


def test_every_reason_is_a_sentence_for_mutants_that_there_are() -> None:
    assert all(len(name) == 12 and len(reason) > 20 for name, reason in table.reasons().items())
