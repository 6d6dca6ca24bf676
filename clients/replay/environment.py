"""The environment class of this machine's training."""

from __future__ import annotations

import platform
from typing import TYPE_CHECKING

import torch

from ledger.protocol.training_replay import TrainingEnvironment

if TYPE_CHECKING:
    from clients.training.port import TrainingPath


def environment_here(path: TrainingPath, device: torch.device) -> TrainingEnvironment:
    """Return the class of this machine for a training path on a device."""
    kind = "cpu" if device.type == "cpu" else torch.cuda.get_device_name(device)
    return TrainingEnvironment(
        torch=str(torch.__version__),
        path=path,
        processor=platform.machine() or "unknown",
        isa=torch.backends.cpu.get_cpu_capability().lower(),
        device=kind,
        threads=1,  # whatever the machine has: see `devices.reproducible`
    )
