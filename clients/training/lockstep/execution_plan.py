"""How each layer of a chain is computed, and for how many clients at once.

The rules are fixed numbers that were measured once, never a timing at run time: what is chosen
changes an update's last digits, and so has to be the same on every machine of a run. All of them
depend on the model, on how the clients train and on the data alone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from clients.training.lockstep.layers import Convolution, Linear

if TYPE_CHECKING:
    from collections.abc import Sequence

    from clients.local_sgd import LocalTraining
    from clients.training.lockstep.layers import Chain, Layer

NO_PROXIMAL = "training.proximal is set, and lockstep takes steps of plain SGD alone"
"""Why the lockstep path is not taken: its low-rank changes would have to shrink at every step."""

# Below this many parameters a call costs more than its arithmetic, so that all clients share it.
SMALL = 100_000
# A matrix below this size is no gain to share: its products are short either way.
_LARGE_MATRIX = 250_000
# The rank of a client's change, as a part of the smaller side, up to which factors are cheaper.
_LOW_RANK = 0.5
# Rows of a product from which on it runs at nearly the full speed of a core.
_ROWS = 100
# More clients than these gained nothing, and leave the last chunk emptier.
_LARGEST_CHUNK = 10
# What the matrices of a chunk may take in memory.
_CHUNK_BYTES = 512_000_000


class LayerMethod(Enum):
    """A way to compute a layer for all clients of a chunk."""

    SHARED = "one shared matrix, low-rank changes"
    STACKED = "one matrix for each client, in one call"
    BY_CLIENT = "client by client, channels last"
    WHOLE = "all clients in one call"


@dataclass(frozen=True, slots=True)
class ExecutionPlan:
    """How a chain is computed.

    Attributes:
        kinds: of each link.
        chunk: clients that take their steps together.
        batch: rows of one client in one step; a shorter batch is filled up.
        steps: most local steps of any client.
    """

    kinds: tuple[LayerMethod, ...]
    chunk: int
    batch: int
    steps: int


def most_steps(samples: Sequence[int], settings: LocalTraining) -> int:
    """Return the most local steps that any client takes.

    Args:
        samples: training samples of each client.
        settings: how each client trains.
    """
    if settings.local_epochs is None:
        return settings.local_steps or 0
    batches = math.ceil(max(samples) / min(settings.batch_size, max(samples)))
    return settings.local_epochs * batches


def execution_plan(
    chain: Chain, samples: Sequence[int], settings: LocalTraining, *, on_cpu: bool
) -> ExecutionPlan:
    """Return how a chain is computed.

    Args:
        chain: the layers.
        samples: training samples of each client.
        settings: how each client trains.
        on_cpu: rather than on CUDA, where the number of calls counts and not the cache.
    """
    batch = min(settings.batch_size, max(samples))
    steps = most_steps(samples, settings)
    parameters = sum(_size(link.layer) for link in chain)
    is_stacked = parameters < SMALL or not on_cpu
    kinds = [_kind(link.layer, steps * batch, is_stacked=is_stacked) for link in chain]
    if LayerMethod.BY_CLIENT in kinds:
        first = next((i for i, link in enumerate(chain) if isinstance(link.layer, Linear)), 0)
        last = max(i for i, kind in enumerate(kinds) if kind is LayerMethod.BY_CLIENT)
        # What stands between the convolutions and before the first matrix stays in the cache of
        # its client; with a convolution after a matrix there is no such part.
        front = max(first, last + 1)
        kinds[:front] = [LayerMethod.BY_CLIENT] * front
    by_client = sum(
        _size(link.layer)
        for link, kind in zip(chain, kinds, strict=True)
        if kind != LayerMethod.SHARED
    )
    most = max(1, _CHUNK_BYTES // max(1, 4 * by_client))
    # Small models wait for calls, large ones for arithmetic.
    enough = _LARGEST_CHUNK if parameters < SMALL else max(2, math.ceil(_ROWS / batch))
    return ExecutionPlan(tuple(kinds), min(enough, _LARGEST_CHUNK, most), batch, steps)


def _kind(layer: Layer, rank: int, *, is_stacked: bool) -> LayerMethod:
    if isinstance(layer, Linear):
        is_low = rank <= _LOW_RANK * min(layer.inputs, layer.outputs)
        return LayerMethod.SHARED if is_low and layer.size >= _LARGE_MATRIX else LayerMethod.STACKED
    if isinstance(layer, Convolution):
        return LayerMethod.STACKED if is_stacked else LayerMethod.BY_CLIENT
    return LayerMethod.WHOLE


def _size(layer: Layer) -> int:
    return layer.size if isinstance(layer, Linear | Convolution) else 0
