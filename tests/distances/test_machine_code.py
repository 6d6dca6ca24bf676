"""Where nothing can be compiled, distances are the plain ones, and the reason can be told."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from ledger.distances import machine_code
from ledger.distances.blocked import BlockedSquares
from ledger.distances.composed_rules import distances_by
from ledger.distances.fast import fallback_reason, fast_distances
from ledger.distances.machine_code import NoMachineCodeError, Processor, compiled, this_processor
from ledger.protocol.rules.distance import DIRECTION, SQUARED
from tests.distances.support import draws, round_of

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def _compiles_again() -> Iterator[None]:
    machine_code._attempted.cache_clear()
    yield
    machine_code._attempted.cache_clear()


def require_plain(reason: str) -> None:
    updates = round_of(draws(0, 5, 700))
    for rule in (SQUARED, DIRECTION):
        asked = rule, None, updates, list(updates)[:3]
        assert fast_distances(2)(*asked).tobytes() == distances_by(BlockedSquares)(*asked).tobytes()
    assert reason in fallback_reason()


def test_this_machine_compiles() -> None:
    assert not fallback_reason()


@pytest.mark.usefixtures("_compiles_again")
def test_without_the_extra_distances_are_plain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "llvmlite.binding", None)
    require_plain("llvmlite")
    with pytest.raises(NoMachineCodeError, match="llvmlite"):
        compiled(Processor("haswell", "+fma", 2))


@pytest.mark.usefixtures("_compiles_again")
def test_with_another_llvmlite_distances_are_plain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("llvmlite.__version__", "0.43.0")
    require_plain("llvmlite is 0.43.0, not 0.50.x")


@pytest.mark.usefixtures("_compiles_again")
@pytest.mark.parametrize(
    ("function", "answer", "reason"),
    [
        ("get_host_cpu_features", RuntimeError("no such list"), "does not know this processor"),
        ("check_jit_execution", OSError("Operation not permitted"), "not permitted"),
    ],
)
def test_where_llvm_or_the_system_refuses_distances_are_plain(
    monkeypatch: pytest.MonkeyPatch, function: str, answer: Exception, reason: str
) -> None:
    def refuse() -> None:
        raise answer

    monkeypatch.setattr(f"llvmlite.binding.{function}", refuse)
    require_plain(reason)


@pytest.mark.usefixtures("_compiles_again")
def test_without_a_fused_multiply_add_distances_are_plain(monkeypatch: pytest.MonkeyPatch) -> None:
    import llvmlite.binding as llvm

    features = llvm.get_host_cpu_features()
    monkeypatch.setattr(llvm, "get_process_triple", lambda: "x86_64-unknown-linux-gnu")
    monkeypatch.setattr(llvm, "get_host_cpu_features", lambda: {**features, "fma": False})
    require_plain("no fused multiply-add")


def test_any_other_architecture_takes_what_llvm_makes_for_its_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("llvmlite.binding.get_process_triple", lambda: "arm64-apple-darwin")
    monkeypatch.setattr("llvmlite.binding.get_host_cpu_name", lambda: "apple-m1")
    assert this_processor() == Processor("apple-m1", "", 2)


def test_nothing_is_imported_before_the_first_distance() -> None:
    program = (
        "import sys; from ledger.distances.fast import fast_distances; fast_distances(2);"
        "assert not {'llvmlite', 'torch'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
