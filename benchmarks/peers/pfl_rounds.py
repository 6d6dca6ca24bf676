"""The contender pfl-research: FedAvg in its simulated backend, each process by torchrun."""

from __future__ import annotations

import functools
import os
from typing import Any

import numpy as np
import torch
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.pytorch import PyTorchTensorDataset
from pfl.data.sampling import get_user_sampler
from pfl.hyperparam import NNEvalHyperParams, NNTrainHyperParams
from pfl.metrics import Metrics, Weighted
from pfl.model.pytorch import PyTorchModel
from torch import nn

from benchmarks import workloads
from benchmarks.workloads import PeerWorkload, RoundClock


class TrainedModule(nn.Module):
    """A workload's module with the two methods that pfl asks for."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def loss(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return nn.functional.cross_entropy(self.module(x), y)

    def metrics(self, x: torch.Tensor, y: torch.Tensor) -> dict[str, Any]:
        with torch.no_grad():
            return {"loss": Weighted(float(self.loss(x, y)) * len(y), len(y))}


class RememberedModel(PyTorchModel):  # type: ignore[misc]
    """Keeps the first aggregate, to compare it with the other contenders'."""

    first: np.ndarray[Any, Any] | None = None

    def apply_model_update(self, statistics: Any) -> Any:
        """Apply an aggregate; pfl's is the mean of w_end − w_start."""
        if self.first is None:
            parts = [-statistics[name].reshape(-1) for name in self.variable_map]
            self.first = torch.cat(parts).numpy().copy()
        return super().apply_model_update(statistics)


class Laps(TrainingProcessCallback):  # type: ignore[misc]
    """Times every round."""

    def __init__(self, clock: RoundClock) -> None:
        self._clock = clock

    def on_train_begin(self, **_: Any) -> Metrics:
        self._clock.start()
        return Metrics()

    def after_central_iteration(self, *_: Any, **__: Any) -> tuple[bool, Metrics]:
        """End a round and begin the next."""
        self._clock.stop()
        self._clock.start()
        return False, Metrics()


def main() -> None:
    """Run the rounds and hand in what they took."""
    arguments = workloads.contender_arguments()
    torch.set_num_threads(1)
    workload = workloads.read_workload(arguments.work)
    np.random.seed(0)  # noqa: NPY002 - pfl draws from it, the same in every process
    model = _model(workload)
    clock = RoundClock(root=os.getppid())  # torchrun, above all processes
    work = workload.work

    @functools.cache
    def user(client: int) -> PyTorchTensorDataset:
        return PyTorchTensorDataset(workload.tensors(client), user_id=str(client))

    users = range(len(workload.y))
    data = FederatedDataset(user, get_user_sampler("minimize_reuse", users))
    FederatedAveraging().run(
        NNAlgorithmParams(
            central_num_iterations=arguments.rounds + 1,
            evaluation_frequency=1_000_000,  # never
            train_cohort_size=len(users),
            val_cohort_size=0,
        ),
        SimulatedBackend(training_data=data, val_data=data),
        model,
        NNTrainHyperParams(
            local_num_epochs=1, local_learning_rate=work.learning_rate, local_batch_size=work.batch
        ),
        NNEvalHyperParams(local_batch_size=None),
        callbacks=[Laps(clock)],
        send_metrics_to_platform=False,
    )
    if int(os.environ["RANK"]) == 0:
        assert model.first is not None, "a round was run"
        workloads.hand_in(arguments.out, clock, model.first, ["pfl", "torch"])


def _model(workload: PeerWorkload) -> RememberedModel:
    module = workloads.module_of(workload.work)
    workloads.load_flat(module, torch.from_numpy(workload.start))
    trained = TrainedModule(module)
    return RememberedModel(
        trained,
        local_optimizer_create=torch.optim.SGD,
        central_optimizer=torch.optim.SGD(trained.parameters(), lr=1.0),
    )


if __name__ == "__main__":
    main()
