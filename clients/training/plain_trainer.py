"""The plain path: one client after another, any module, by automatic differentiation.

A client's training is what line 3 of Algorithm 3 says and no more: parameters loaded, tau steps of
SGD on its own batches, and the difference Δ = w_t − w_end written where it will stay.
"""

from __future__ import annotations

from itertools import accumulate, pairwise
from typing import TYPE_CHECKING

import torch
from torch.nn.functional import cross_entropy

from clients.devices import device_named, reproducible
from clients.models.model import load_vector, trainable
from clients.training.batching import batches_on

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from clients.datasets.federated_data import Collate, Samples
    from clients.local_sgd import LocalTraining
    from clients.models.model import Model, ParameterVector
    from clients.training.port import TrainingJob


class PlainTrainer:
    """Trains the clients of one process by one module, whose parameters each of them starts anew.

    Attributes:
        chunk: clients that it likes to take at once: more gain nothing.

    Args:
        model: the model.
        train: training samples of client i at index i.
        collate: makes a model's inputs of stored rows.
        settings: how each client trains.
        device: "cpu", "cuda" or "auto".

    Raises:
        ConfigurationError: a device that is not there.
    """

    chunk = 1

    def __init__(
        self,
        model: Model,
        train: Sequence[Samples],
        collate: Collate,
        settings: LocalTraining,
        device: str,
    ) -> None:
        self._device = device_named(device)
        self._module = model.module().to(self._device).train()
        self._parameters = [tensor for _, tensor in trainable(self._module)]
        ends = accumulate((tensor.numel() for tensor in self._parameters), initial=0)
        self._places = [slice(start, end) for start, end in pairwise(ends)]
        self._rate = settings.learning_rate
        self._proximal = settings.proximal
        self._batches = batches_on(self._device, train, collate, settings)

    def train(
        self,
        start: ParameterVector,
        jobs: Sequence[TrainingJob],
        rows: Sequence[NDArray[np.float32]],
    ) -> None:
        """Write the update of every job into its row.

        Args:
            start: the global model w_t, shape (d,).
            jobs: the jobs.
            rows: where the update of each goes, each of shape (d,).
        """
        with reproducible(self._device):
            # torch warns of arrays that nobody may write to.
            mine = start if start.flags.writeable else start.copy()
            w_start = torch.from_numpy(mine).to(self._device)
            for job, row in zip(jobs, rows, strict=True):
                load_vector(self._module, w_start)
                self._descend(job, w_start)
                self._write_difference(w_start, row)

    def _descend(self, job: TrainingJob, w_start: torch.Tensor) -> None:
        for inputs, labels in self._batches.of(job):
            with torch.enable_grad():
                loss = cross_entropy(self._module(inputs), labels)
            loss.backward()
            with torch.no_grad():
                for tensor, place in zip(self._parameters, self._places, strict=True):
                    if tensor.grad is not None:  # None: the forward pass does not use it
                        if self._proximal is not None:
                            moved = tensor - w_start[place].view_as(tensor)
                            tensor.grad.add_(moved, alpha=self._proximal)
                        tensor.sub_(tensor.grad, alpha=self._rate)
                        # Not zeroed: the next backward pass hands over its own buffer.
                        tensor.grad = None

    @torch.no_grad()
    def _write_difference(self, w_start: torch.Tensor, row: NDArray[np.float32]) -> None:
        target = torch.from_numpy(row)
        difference = target.to(self._device)  # on a CPU the target itself
        for tensor, place in zip(self._parameters, self._places, strict=True):
            torch.sub(w_start[place], tensor.reshape(-1), out=difference[place])
        target.copy_(difference)
