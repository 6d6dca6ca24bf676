"""Caps of the instruction set: in force in the processes that train, or refused."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
import torch

from clients.configuration.loading import load
from clients.instruction_sets import CAPS, SET_LATE, available_caps, cap_of
from clients.training.engine_factory import LocalEngine, open_engine, require_engine
from clients.training.environment import (
    environment_here,
    environment_of,
    isa_in_force,
    require_known,
)
from ledger.protocol.errors import ConfigurationError
from tests.clients.training.made import BRANCHED, DATA, SETTINGS
from tests.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    from clients.instruction_sets import InstructionSet
    from clients.training.port import Engine

pytestmark = pytest.mark.xdist_group("engine")

OTHER_CAP: InstructionSet = "default" if cap_of(os.environ) != "default" else "avx2"
"""A cap under which this process has not started."""
CAPPABLE = pytest.mark.skipif(
    OTHER_CAP not in available_caps(), reason="this processor has no instruction set to choose"
)
SAYS = """
import json, os, sys
from clients.instruction_sets import instruction_set_here
said = [instruction_set_here(sys.argv[1])]
os.environ["MKL_CBWR"] = "AVX"
print(json.dumps([*said, instruction_set_here(sys.argv[1])]))
"""


def opened(cap: InstructionSet | None) -> Engine:
    return open_engine(
        BRANCHED, DATA, SETTINGS, device="cpu", workers=1, path="plain", sets={}, rows=2, isa=cap
    )


@CAPPABLE
@pytest.mark.usefixtures("forked_children")
def test_a_cap_that_does_not_hold_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("clients.training.workers.worker_group.capped", lambda _: nullcontext())
    with pytest.raises(ConfigurationError, match=f"machine.isa = {OTHER_CAP}: this torch computes"):
        opened(OTHER_CAP)


def test_a_process_under_the_cap_trains_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("clients.training.engine_factory.isa_in_force", lambda: OTHER_CAP)
    monkeypatch.setattr("clients.training.engine_factory.require_cap", lambda _: None)
    with opened(OTHER_CAP) as engine:
        assert isinstance(engine, LocalEngine)


@CAPPABLE
def test_variables_count_from_the_start_of_a_process_alone() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", SAYS, OTHER_CAP],
        env={**os.environ, **CAPS[OTHER_CAP]},
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=True,
    )
    first, second = json.loads(ended.stdout)
    assert first == OTHER_CAP
    assert second == f"{OTHER_CAP} {SET_LATE}"


def test_variables_set_after_torchs_import_are_no_cap(monkeypatch: pytest.MonkeyPatch) -> None:
    require_known(environment_here("plain", "cpu"))
    for name, value in CAPS[OTHER_CAP].items():
        monkeypatch.setenv(name, value)
    here = environment_here("plain", "cpu")
    assert here.isa == f"{torch.backends.cpu.get_cpu_capability().lower()} {SET_LATE}"
    with pytest.raises(ConfigurationError, match="after this process had started"):
        require_known(here)
    require_known(environment_here("plain", "cpu", OTHER_CAP))  # another process trains


def test_a_cap_this_processor_lacks_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("clients.instruction_sets._first_processor", dict)
    for name in CAPS:
        with pytest.raises(ConfigurationError, match=f"machine.isa = {name}: "):
            opened(name)
        with pytest.raises(ConfigurationError, match=f"machine.isa = {name}: "):
            require_engine("cpu", None, name)


def test_a_cap_of_a_gpu_or_a_cluster_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigurationError, match=r"with machine\.engine = ray"):
        require_engine("cpu", "local", "default")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    with pytest.raises(ConfigurationError, match=r"with machine\.device = cuda"):
        require_engine("auto", None, "default")


def test_the_environment_of_a_clusters_actors_is_unknown() -> None:
    settings = ("training.path=plain", "machine.engine=ray", "machine.ray_address=10.0.0.1:1")
    there = environment_of(load("smoke", settings=settings))
    here = environment_of(load("smoke", settings=("training.path=plain",)))
    assert there != here == replace(there, isa=isa_in_force())
