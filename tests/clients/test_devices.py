"""Names of devices, and the card of each worker."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
import torch

from clients.devices import (
    card_failure,
    card_gib,
    device_named,
    reproducible,
    require_device_name,
    worker_devices,
)
from ledger.protocol.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable

ONEDNN: Any = torch.backends.mkldnn


def machine_with(monkeypatch: pytest.MonkeyPatch, *cards: str) -> None:
    """Let this machine seem to have the named cards; one name is one kind."""
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
    ("cards", "message"), [((), "has no CUDA"), (("H100",), "1 CUDA card, from cuda:0")]
)
def test_an_absent_card_is_refused(
    cards: tuple[str, ...], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine_with(monkeypatch, *cards)
    with pytest.raises(ConfigurationError, match=f"cuda:1: .*{message}"):
        device_named("cuda:1")


@pytest.mark.parametrize("name", ["gpu", "cuda:", "cuda:-1", "cuda:100", "cuda:1 ", "CPU", ""])
def test_other_names_are_refused_on_any_machine(name: str) -> None:
    for named in (device_named, require_device_name):
        with pytest.raises(ConfigurationError, match="unknown device"):
            named(name)
    require_device_name("cuda:99")


def test_workers_take_turns_on_cards_of_one_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    machine_with(monkeypatch, "H100", "T4", "H100")
    assert worker_devices("cuda", 3) == ["cuda:0", "cuda:2", "cuda:0"]
    assert worker_devices("cuda:1", 2) == ["cuda:1", "cuda:1"]
    assert worker_devices("cpu", 2) == ["cpu", "cpu"]
    machine_with(monkeypatch, "H100")
    assert worker_devices("cuda", 2) == ["cuda:0", "cuda:0"]


def test_the_memory_of_a_card_is_counted_in_whole_gib(monkeypatch: pytest.MonkeyPatch) -> None:
    memory = SimpleNamespace(total_memory=(80 << 30) - 1)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: memory)
    assert card_gib(torch.device("cuda:1")) == 79
    assert card_gib(torch.device("cpu")) is None


def test_an_error_that_no_card_caused_has_no_sentence() -> None:
    assert card_failure(RuntimeError("shapes do not fit")) is None
    assert card_failure(ValueError("CUDA error: of a user's own")) is None


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
