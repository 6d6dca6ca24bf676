"""The environment class of this process: instruction sets, their caps, and devices."""

from __future__ import annotations

import os
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from clients import devices
from clients.configuration.loading import load
from clients.devices import (
    CAPS,
    available_caps,
    cap_of,
    capped,
    card_failure,
    card_index,
    device_named,
    instruction_set,
    processor_kind,
    reproducible,
    require_cap,
    worker_devices,
)
from clients.training.engine_factory import environment_here, environment_of
from ledger.protocol.errors import ConfigurationError
from ledger.protocol.training_replay import decode_environment, encode_environment


def test_the_class_here_says_what_computes_and_is_a_document() -> None:
    here = environment_here("lockstep", "cpu")
    assert (here.torch, here.path, here.device) == (str(torch.__version__), "lockstep", "cpu")
    assert (here.processor, here.threads) == (processor_kind(), 1)
    assert here.isa.startswith(torch.backends.cpu.get_cpu_capability().lower())
    assert decode_environment(encode_environment(here)) == here


def test_paths_are_classes_of_their_own() -> None:
    assert environment_here("plain", "cpu").digest != environment_here("lockstep", "cpu").digest


def test_a_gpu_is_named_with_what_computes_on_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (9, 0))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "G" * 200)
    memory = SimpleNamespace(total_memory=80 << 30)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: memory)
    here = environment_here("plain", "cuda")
    assert "sm_90, 80 GiB, CUDA" in here.device
    assert decode_environment(encode_environment(here)) == here


def test_the_environment_of_a_clusters_cards_cannot_be_stated_here() -> None:
    settings = ("machine.engine=ray", "machine.device=cuda", "training.path=plain")
    with pytest.raises(ConfigurationError, match="cannot be recorded"):
        environment_of(load("smoke", settings=settings))
    assert environment_of(load("smoke", settings=("training.path=plain",))).device == "cpu"


def test_an_unknown_device_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="unknown device"):
        environment_here("plain", "tpu")


ONEDNN: Any = torch.backends.mkldnn


def machine_with(monkeypatch: pytest.MonkeyPatch, *cards: str) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: bool(cards))
    monkeypatch.setattr(torch.cuda, "device_count", lambda: len(cards))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda card: cards[card])
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (9, 0))


def test_a_card_is_named_by_its_number(monkeypatch: pytest.MonkeyPatch) -> None:
    machine_with(monkeypatch, "H100", "H100")
    assert device_named("cuda:1") == torch.device("cuda", 1)
    assert device_named("auto") == device_named("cuda") == torch.device("cuda")
    assert device_named("cpu") == torch.device("cpu")


@pytest.mark.parametrize(
    ("cards", "message"), [((), "CUDA is not"), (("H100",), "1 CUDA card, from cuda:0")]
)
def test_an_absent_card_is_told(cards: Any, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    machine_with(monkeypatch, *cards)
    with pytest.raises(ConfigurationError, match=f"cuda:1: .*{message}"):
        device_named("cuda:1")


@pytest.mark.parametrize("name", ["gpu", "cuda:", "cuda:-1", "cuda:100", "cuda:1 ", "CPU", ""])
def test_other_names_are_refused_on_any_machine(name: str) -> None:
    for named in (device_named, card_index):
        with pytest.raises(ConfigurationError, match="unknown device"):
            named(name)
    card_index("cuda:99")


def test_workers_take_turns_on_cards_of_one_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    machine_with(monkeypatch, "H100", "T4", "H100")
    assert worker_devices("cuda", 3) == ["cuda:0", "cuda:2", "cuda:0"]
    assert worker_devices("cuda:1", 2) == ["cuda:1", "cuda:1"]
    assert worker_devices("cpu", 2) == ["cpu", "cpu"]
    machine_with(monkeypatch, "H100")
    assert worker_devices("cuda", 2) == ["cuda:0", "cuda:0"]


def test_too_little_memory_is_named_though_the_recording_failed_after_it() -> None:
    error = RuntimeError("CUDA error: operation failed due to a previous error during capture")
    error.__context__ = torch.OutOfMemoryError("CUDA out of memory")
    assert "memory is not enough" in str(card_failure(error))


@pytest.mark.parametrize(
    "choose",
    [
        lambda: torch.set_float32_matmul_precision("medium"),
        lambda: setattr(ONEDNN.matmul, "fp32_precision", "bf16"),
        lambda: setattr(ONEDNN, "enabled", False),
    ],
)
def test_a_scripts_choice_of_precision_changes_no_bits(choose: Callable[[], None]) -> None:
    generator = torch.Generator().manual_seed(1)
    left, right = torch.randn(2, 256, 256, generator=generator)
    images = torch.randn(8, 3, 16, 16, generator=generator)
    kernels = torch.randn(8, 3, 5, 5, generator=generator)

    def computed() -> list[bytes]:
        with reproducible(torch.device("cpu")):
            results = left @ right, torch.nn.functional.conv2d(images, kernels)
        return [result.numpy().tobytes() for result in results]

    expected = computed()
    precision = torch.get_float32_matmul_precision()
    try:
        choose()
        chosen = ONEDNN.matmul.fp32_precision, ONEDNN.enabled
        assert computed() == expected
        assert (ONEDNN.matmul.fp32_precision, ONEDNN.enabled) == chosen
    finally:
        ONEDNN.enabled = True
        torch.set_float32_matmul_precision(precision)
        ONEDNN.matmul.fp32_precision = "none"


OLD = {"vendor_id": "Maker", "cpu family": "6", "model": "7", "flags": "sse4_1 sse4_2 avx2 fma"}


@pytest.fixture
def processor(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    fields = dict(OLD)
    monkeypatch.setattr(devices, "_first_processor", lambda: fields)
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
