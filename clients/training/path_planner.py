"""Which path a run's training takes, decided once and written into its run document.

The two paths' updates differ in their last digits, so all who train or repeat an update have to
take the same one. What is decided here follows from model, data and settings: fixed rules out of
measurements (`clients/training/lockstep/execution_plan.py`), and no timing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from clients.devices import device_named
from clients.training.lockstep.execution_plan import NO_PROXIMAL, execution_plan
from clients.training.lockstep.layers import Convolution, Linear, pooled_first
from clients.training.lockstep.tracing import UnknownLayerError, chain_of

if TYPE_CHECKING:
    from clients.datasets.federated_data import FederatedData
    from clients.local_sgd import LocalTraining
    from clients.models.model import Model
    from clients.training.workload import Path


@dataclass(frozen=True, slots=True)
class PathPlan:
    """How the clients of a run train.

    Attributes:
        path: plain, or lockstep.
        reason: why, or how, in words.
        layers: how each layer with parameters is computed, in order; none on the plain path.
    """

    path: Path
    reason: str
    layers: tuple[str, ...] = ()


def plan(model: Model, data: FederatedData, settings: LocalTraining, device: str) -> PathPlan:
    """Return which path a run's training takes where it is left to us.

    Every module that is a chain of known layers goes in lockstep: for none of those measured was
    the plain path quicker.

    Args:
        model: the model.
        data: the divided data.
        settings: how each client trains.
        device: "cpu", "cuda" or "auto".

    Returns:
        The plan.

    Raises:
        ConfigurationError: the device is not there.
    """
    on_cpu = device_named(device).type == "cpu"
    if settings.proximal is not None:
        return PathPlan("plain", NO_PROXIMAL)
    try:
        chain = pooled_first(chain_of(model.module(), model.form))
    except UnknownLayerError as error:
        return PathPlan("plain", str(error))
    sizes = [len(samples.y) for samples in data.train]
    choice = execution_plan(chain, sizes, settings, on_cpu=on_cpu)
    layers = tuple(
        f"{_described(link.layer)}: {kind.value}"
        for link, kind in zip(chain, choice.kinds, strict=True)
        if isinstance(link.layer, Linear | Convolution)
    )
    return PathPlan("lockstep", f"{choice.chunk} clients take each step at once", layers)


def _described(layer: Linear | Convolution) -> str:
    if isinstance(layer, Linear):
        return f"linear {layer.inputs} to {layer.outputs}"
    outputs, inputs, height, width = layer.kernels
    return f"convolution {inputs} to {outputs}, {height} × {width}"
