"""The environment class of this process."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from clients.configuration.loading import load
from clients.instruction_sets import processor_kind
from clients.training.environment import environment_here, environment_of
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
    with pytest.raises(ConfigurationError, match="cannot be stated"):
        environment_of(load("smoke", settings=settings))
    assert environment_of(load("smoke", settings=("training.path=plain",))).device == "cpu"


def test_an_unknown_device_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="unknown device"):
        environment_here("plain", "tpu")
