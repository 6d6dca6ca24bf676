"""Devices, and the settings with which equal inputs give equal bytes."""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch

from ledger.protocol.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterator

DEVICES = ("cpu", "cuda", "auto")


def device_named(name: str) -> torch.device:
    """Return the device of a setting: "cpu", "cuda", or "auto" for CUDA where available.

    Raises:
        ConfigurationError: unknown name, or CUDA is not available.
    """
    if name not in DEVICES:
        raise ConfigurationError(
            f"machine.device: unknown device {name!r}; known are {', '.join(DEVICES)}"
        )
    available = torch.cuda.is_available()
    if name == "cuda" and not available:
        raise ConfigurationError("machine.device = cuda: this machine, or this torch, has no CUDA")
    return torch.device("cuda" if available and name != "cpu" else "cpu")


@contextmanager
def reproducible(device: torch.device) -> Iterator[None]:
    """Compute with one intra-op thread and deterministic kernels; restore the settings after.

    The thread count changes the order of sums inside an operation, and so the bytes of a result.
    Parallelism comes from processes instead, each of which trains whole clients.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        if device.type == "cuda":
            with _deterministic_cuda():
                yield
        else:
            yield
    finally:
        torch.set_num_threads(threads)


@contextmanager
def _deterministic_cuda() -> Iterator[None]:
    # cuBLAS reads this with its first handle, and is not deterministic without it.
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    before = torch.are_deterministic_algorithms_enabled()
    # Not on the CPU, whose kernels here are deterministic: the first call costs a second.
    torch.use_deterministic_algorithms(True)
    try:
        with torch.backends.cudnn.flags(
            enabled=True, benchmark=False, deterministic=True, allow_tf32=False
        ):
            yield
    finally:
        torch.use_deterministic_algorithms(before)
