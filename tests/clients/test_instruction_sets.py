"""Instruction sets, their caps, and the variables that put them in force."""

from __future__ import annotations

import os

import pytest

from clients import instruction_sets
from clients.instruction_sets import (
    CAPS,
    available_caps,
    cap_of,
    capped,
    instruction_set,
    processor_kind,
    require_cap,
)
from ledger.protocol.errors import ConfigurationError

OLD = {"vendor_id": "Maker", "cpu family": "6", "model": "7", "flags": "sse4_1 sse4_2 avx2 fma"}


@pytest.fixture
def processor(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """A processor of which each test says what the system says."""
    fields = dict(OLD)
    monkeypatch.setattr(instruction_sets, "_first_processor", lambda: fields)
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    return fields


def test_caps_are_those_of_the_processors_flags(processor: dict[str, str]) -> None:
    assert available_caps() == ("default", "avx2")
    processor["flags"] += " avx512f avx512bw avx512dq avx512vl"
    assert available_caps() == ("default", "avx2", "avx512")


@pytest.mark.usefixtures("processor")
def test_a_cap_above_the_processor_is_refused() -> None:
    require_cap("avx2")
    with pytest.raises(ConfigurationError, match=r"machine\.isa = avx512: .* default, avx2"):
        require_cap("avx512")


def test_a_processor_without_choice_refuses_every_cap(processor: dict[str, str]) -> None:
    processor.clear()
    assert available_caps() == ()
    with pytest.raises(ConfigurationError, match="leave it out"):
        require_cap("default")


def test_the_kind_names_maker_and_model(processor: dict[str, str]) -> None:
    assert processor_kind() == "x86_64 Maker family 6 model 7"
    del processor["model"]
    assert processor_kind() == "x86_64"


def test_a_file_of_the_processor_that_is_missing_says_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: os.PathLike[str]
) -> None:
    monkeypatch.setattr(instruction_sets, "_CPUINFO", tmp_path / "none")  # type: ignore[operator]
    assert instruction_sets._first_processor.__wrapped__() == {}


@pytest.mark.usefixtures("processor")
def test_a_cap_holds_inside_its_block_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MKL_DEBUG_CPU_TYPE", "5")
    monkeypatch.delenv("MKL_CBWR", raising=False)
    before = dict(os.environ)
    with capped("avx2"):
        assert cap_of(os.environ) == "avx2"
        assert "MKL_DEBUG_CPU_TYPE" not in os.environ
    assert dict(os.environ) == before
    with capped(None):
        assert dict(os.environ) == before


@pytest.mark.parametrize("name", CAPS)
def test_a_cap_is_named_only_if_all_of_it_holds(name: str) -> None:
    variables = CAPS[name]  # type: ignore[index]
    assert instruction_set(name.upper(), variables) == name
    assert instruction_set("OTHER", variables) != name  # ATen cannot do it, or chose before
    rounded = dict(variables) | {"ONEDNN_DEFAULT_FPMATH_MODE": "BF16"}
    assert instruction_set(name.upper(), rounded) != name
    partly = {"MKL_CBWR": variables["MKL_CBWR"]}
    assert instruction_set("AVX2", partly) == f"avx2 MKL_CBWR={variables['MKL_CBWR']}"


def test_variables_of_any_length_give_a_printable_name() -> None:
    assert instruction_set("AVX2", {}) == "avx2 uncapped"
    odd = [instruction_set("AVX2", {"MKL_CBWR": value}) for value in ("x" * 99, "\n", "\udcff")]
    assert len(set(odd)) == len(odd)
    assert all(text.startswith("avx2 variables ") and len(text) < 50 for text in odd)
