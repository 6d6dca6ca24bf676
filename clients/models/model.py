"""What a model is here: a function of a flat parameter vector, with a gradient.

There is no module object that holds state. The vector is what is trained, sent, scored,
averaged and digested: the trainable parameters as float32, in the order of the model's layout.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from torch import Tensor

    from ledger.protocol.rules.distance.rule import Layout

ParameterVector = NDArray[np.float32]


class Model(Protocol):
    """A classifier whose parameters are one flat vector of length `dimension`."""

    @property
    def dimension(self) -> int:
        """Number of trainable parameters d."""

    @property
    def layout(self) -> Layout:
        """Name and shape of each tensor, in the order in which the vector joins them."""

    def initial(self, rng: np.random.Generator) -> ParameterVector:
        """Return starting parameters drawn from `rng` alone, never from torch's own state."""

    def logits(self, vector: Tensor, x: Tensor) -> Tensor:
        """Return one row of class scores for each input, shape (n, classes)."""

    def gradient(self, vector: Tensor, x: Tensor, y: Tensor) -> Tensor:
        """Return the gradient of the mean cross-entropy over a batch, shape (d,)."""
