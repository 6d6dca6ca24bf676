"""The choice of a run's training path, made once and written into its run document.

The updates of the two paths differ in their last digits, so everyone who trains or repeats an
update has to take the same path. The choice follows from model, data and settings by fixed rules
that were measured once (`lockstep/execution_plan.py`), never from a timing.
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
    """The training path of a run.

    Attributes:
        path: plain, or lockstep.
        reason: explanation, for people.
        layers: how each layer with parameters is computed, in order; empty on the plain path.
    """

    path: Path
    reason: str
    layers: tuple[str, ...] = ()


def plan(model: Model, data: FederatedData, settings: LocalTraining, device: str) -> PathPlan:
    """Return the training path of a run that does not set it.

    Every module that is a chain of known layers takes the lockstep path: it was never slower in the
    measurements.

    Args:
        model: the model.
        data: the divided data.
        settings: of the local training.
        device: "cpu", "cuda" or "auto".

    Raises:
        ConfigurationError: the device is not available.
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
