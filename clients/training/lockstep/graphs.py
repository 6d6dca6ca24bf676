"""Recorded steps: CUDA graphs; on a CPU the steps themselves.

A step of a small model is a hundred kernels, each shorter than its launch; a graph launches all of
them at once. A recording reads and writes the same buffers every time: inputs are copied into them
first, and nothing may be allocated or read back meanwhile. Capture and replay have never run on a
GPU; the rest of this module also runs on a CPU.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Protocol

import torch

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from clients.training.lockstep.network import Network

_WARM_UPS = 3  # as torch's notes on CUDA graphs recommend: libraries choose kernels first


class Recorder(Protocol):
    """Records a piece of work for repetition."""

    def record(self, work: Callable[[], None]) -> Callable[[], None]:
        """Return a function that repeats the work; the work may be done meanwhile."""


class EagerRecorder:
    """Repeats the work itself."""

    def record(self, work: Callable[[], None]) -> Callable[[], None]:
        """Return the work itself."""
        return work


class CudaGraphRecorder:
    """Captures the work in a CUDA graph."""

    def record(self, work: Callable[[], None]) -> Callable[[], None]:
        """Return the replay of the work, after a few warm-up runs."""
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(_WARM_UPS):
                work()
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            work()
        return graph.replay


class RecordedSteps:
    """The steps of a network, each recorded before it is first taken.

    The low-rank factors grow from step to step, so every step has its own recording.
    """

    def __init__(self, network: Network, recorder: Recorder) -> None:
        self._network = network
        self._recorder = recorder
        self._steps: list[Callable[[], None]] = []

    def prepare(self, steps: int, start: Tensor) -> None:
        """Record the missing steps; the parameters in the network are lost.

        Args:
            steps: number of local steps to come.
            start: any parameters, shape (d,).
        """
        for step in range(len(self._steps), steps):
            self._network.load(start)
            self._steps.append(self._recorder.record(partial(self._network.step, step)))

    def take(self, step: int) -> None:
        """Take a step, given the number of earlier ones."""
        self._steps[step]()


def recorder_for(device: torch.device) -> Recorder:
    """Return the recorder of a device."""
    return EagerRecorder() if device.type == "cpu" else CudaGraphRecorder()
