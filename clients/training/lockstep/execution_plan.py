"""The training path of a run, and how the lockstep path computes each layer of a chain.

The updates of the two paths differ in their last digits, so everyone who trains or repeats an
update has to take the same path: it is chosen once and written into the run document.

The rules are constants that were measured once, never a timing at run time: the plan affects an
update's last digits and has to be the same on every machine of a run. It depends on the model, the
training settings and the data alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from clients.datasets.federated_data import FederatedData
from clients.devices import card_gib, device_named
from clients.models.model import Model
from clients.training.lockstep.layers import (
    Chain,
    Convolution,
    Layer,
    Linear,
    ShapedLayer,
    pooled_first,
)
from clients.training.lockstep.stack import aligned, row_shape
from clients.training.lockstep.tracing import UnknownLayerError, chain_of
from clients.training.port import TrainingPath

if TYPE_CHECKING:
    from clients.local_sgd import LocalTraining

NO_PROXIMAL = "training.proximal is set, and lockstep takes steps of plain SGD alone"
"""Reason against lockstep: the low-rank changes would have to shrink at every step."""

# Below this many parameters a call costs more than its arithmetic; all clients share one call.
SMALL = 100_000
# Sharing a smaller matrix gains nothing: its products are short either way.
_LARGE_MATRIX = 250_000
# Rank of a client's change, relative to the smaller side, up to which factors are cheaper.
_LOW_RANK = 0.5
# Rows with which a product runs at nearly the full speed of a core.
_ROWS = 100
# More clients gained nothing, and the last chunk would be emptier.
_LARGEST_CHUNK = 10
# Limit of a chunk's matrices in memory.
_CHUNK_BYTES = 512_000_000
# On a card launches count, not a cache; more clients leave the last chunk emptier. Not measured.
_LARGEST_CARD_CHUNK = 32
# Part of a card's memory for a chunk: updates stay there too, and workers may share it.
_CARD_SHARE = 8


class LayerMethod(Enum):
    """A way to compute a layer for all clients of a chunk."""

    SHARED = "one shared matrix, low-rank changes"
    STACKED = "one matrix for each client, in one call"
    BY_CLIENT = "client by client, channels last"
    WHOLE = "all clients in one call"


@dataclass(frozen=True, slots=True)
class ExecutionPlan:
    """The computation of a chain.

    Attributes:
        batch: rows per client and step; a shorter batch is padded.
        steps: most local steps of any client.
    """

    kinds: tuple[LayerMethod, ...]
    chunk: int
    batch: int
    steps: int


def most_steps(samples: Sequence[int], settings: LocalTraining) -> int:
    """Return the most local steps that any client takes, given their numbers of samples."""
    if settings.local_epochs is None:
        return settings.local_steps or 0
    batches = math.ceil(max(samples) / min(settings.batch_size, max(samples)))
    return settings.local_epochs * batches


def execution_plan(
    chain: Chain, samples: Sequence[int], settings: LocalTraining, card_gib: int | None = None
) -> ExecutionPlan:
    """Return how a chain is computed.

    Args:
        samples: number of training samples of each client.
        card_gib: memory of the card, in GiB; None on a processor.
    """
    batch = min(settings.batch_size, max(samples))
    steps = most_steps(samples, settings)
    parameters = sum(_size(link.layer) for link in chain)
    is_stacked = parameters < SMALL or card_gib is not None
    kinds = [_kind(link.layer, steps * batch, is_stacked=is_stacked) for link in chain]
    if LayerMethod.BY_CLIENT in kinds:
        first = next((i for i, link in enumerate(chain) if isinstance(link.layer, Linear)), 0)
        last = max(i for i, kind in enumerate(kinds) if kind is LayerMethod.BY_CLIENT)
        # Layers between the convolutions and before the first matrix stay in the client's cache;
        # with a convolution after a matrix there are none.
        front = max(first, last + 1)
        kinds[:front] = [LayerMethod.BY_CLIENT] * front
    if card_gib is not None:
        each = sum(
            _card_bytes(link, kind, batch, steps) for link, kind in zip(chain, kinds, strict=True)
        )
        chunk = max(1, min(_LARGEST_CARD_CHUNK, (card_gib << 30) // _CARD_SHARE // each))
        return ExecutionPlan(tuple(kinds), chunk, batch, steps)
    by_client = sum(
        _size(link.layer)
        for link, kind in zip(chain, kinds, strict=True)
        if kind != LayerMethod.SHARED
    )
    chunk_limit = max(1, _CHUNK_BYTES // max(1, 4 * by_client))
    # Calls dominate for small models, arithmetic for large ones.
    useful_chunk = _LARGEST_CHUNK if parameters < SMALL else max(2, math.ceil(_ROWS / batch))
    return ExecutionPlan(tuple(kinds), min(useful_chunk, _LARGEST_CHUNK, chunk_limit), batch, steps)


def _kind(layer: Layer, rank: int, *, is_stacked: bool) -> LayerMethod:
    if isinstance(layer, Linear):
        is_low = rank <= _LOW_RANK * min(layer.inputs, layer.outputs)
        return LayerMethod.SHARED if is_low and layer.size >= _LARGE_MATRIX else LayerMethod.STACKED
    if isinstance(layer, Convolution):
        return LayerMethod.STACKED if is_stacked else LayerMethod.BY_CLIENT
    return LayerMethod.WHOLE


def _card_bytes(link: ShapedLayer, kind: LayerMethod, batch: int, steps: int) -> int:
    """Return what a layer takes on a card for each client: parameters, rows and their gradients."""
    layer = link.layer
    inputs, outputs = math.prod(link.input_shape), math.prod(link.output_shape)
    numbers = 2 * batch * (inputs + outputs)
    if kind is LayerMethod.SHARED:
        numbers += batch * steps * (inputs + outputs)
    elif isinstance(layer, Linear):
        numbers += layer.outputs * aligned(layer.inputs + 1)
    elif isinstance(layer, Convolution):
        columns = aligned(math.prod(row_shape(layer)) + 1)
        positions = math.prod(link.output_shape[1:])
        numbers += (layer.kernels[0] + 2 * batch * positions) * columns
    return 4 * numbers


def _size(layer: Layer) -> int:
    return layer.size if isinstance(layer, Linear | Convolution) else 0


@dataclass(frozen=True, slots=True)
class PathPlan:
    """The training path of a run.

    Attributes:
        layers: how each layer with parameters is computed, in order; empty on the plain path.
    """

    path: TrainingPath
    reason: str
    layers: tuple[str, ...] = ()


def plan(model: Model, data: FederatedData, settings: LocalTraining, device: str) -> PathPlan:
    """Return the training path of a run that does not set it.

    Every module that is a chain of known layers takes the lockstep path: it was never slower in the
    measurements.
    """
    memory = card_gib(device_named(device))
    if settings.proximal is not None:
        return PathPlan("plain", NO_PROXIMAL)
    if model.form.task != "classify":
        return PathPlan("plain", f"the task is {model.form.task}, and lockstep classifies alone")
    try:
        chain = pooled_first(chain_of(model.module(), model.form))
    except UnknownLayerError as error:
        return PathPlan("plain", str(error))
    choice = execution_plan(chain, data.sample_counts, settings, memory)
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
