"""A step recorded once and played again: CUDA graphs, and on a CPU the step itself.

A step of a small model is a hundred kernels that each take less time than their launch; a graph
launches all of them at once. What is recorded reads and writes the same buffers every time, so
that inputs are copied into them before, and nothing may be allocated or asked back meanwhile.
Capture and replay have never run on a GPU; all the rest of this file runs on a CPU, too.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Protocol

import torch

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from clients.training.lockstep.network import Network

_WARM_UPS = 3  # as torch's notes on CUDA graphs have it: libraries choose kernels at first


class Recorder(Protocol):
    """Makes of a piece of work one that is quicker to repeat."""

    def record(self, work: Callable[[], None]) -> Callable[[], None]:
        """Return what does the same work again; the work may be done meanwhile."""


class EagerRecorder:
    """Repeats the work by doing it."""

    def record(self, work: Callable[[], None]) -> Callable[[], None]:
        """Return the work itself."""
        return work


class CudaGraphRecorder:
    """Captures the work in a CUDA graph."""

    def record(self, work: Callable[[], None]) -> Callable[[], None]:
        """Return the replay of the work, which has been done a few times."""
        aside = torch.cuda.Stream()
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside):
            for _ in range(_WARM_UPS):
                work()
        torch.cuda.current_stream().wait_stream(aside)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            work()
        return graph.replay


class RecordedSteps:
    """The steps of a network, each recorded before it is first taken.

    The factors of low rank grow from step to step, so that every step is a recording of its own.

    Args:
        network: whose steps.
        recorder: by what.
    """

    def __init__(self, network: Network, recorder: Recorder) -> None:
        self._network = network
        self._recorder = recorder
        self._steps: list[Callable[[], None]] = []

    def prepare(self, steps: int, start: Tensor) -> None:
        """Record the steps that are not recorded yet; what the network has loaded is lost.

        Args:
            steps: how many local steps will be taken.
            start: any parameters, shape (d,).
        """
        for step in range(len(self._steps), steps):
            self._network.load(start)
            self._steps.append(self._recorder.record(partial(self._network.step, step)))

    def take(self, step: int) -> None:
        """Take a step.

        Args:
            step: local steps already taken.
        """
        self._steps[step]()


def recorder_for(device: torch.device) -> Recorder:
    """Return what records the steps on a device.

    Args:
        device: where they are taken.
    """
    return EagerRecorder() if device.type == "cpu" else CudaGraphRecorder()
