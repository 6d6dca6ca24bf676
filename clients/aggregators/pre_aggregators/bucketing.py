"""`Bucketing` (Karimireddy, He, Jaggi 2022, arXiv 2006.09365)."""

from __future__ import annotations

import math
from typing import Annotated, ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from clients.aggregators.mixture import Mixture
from clients.aggregators.pre_aggregators.pre_aggregator import PreAggregator


class Bucketing(PreAggregator):
    """The vectors are shuffled and dealt into buckets, each of which becomes its mean.

    Attributes:
        s: vectors in a bucket; the last may have fewer.
    """

    name: ClassVar[str] = "Bucketing"

    s: Annotated[int, Field(ge=1, le=2**31 - 1, description="how many vectors are in a bucket")]

    def count(self, vectors: int) -> int:
        """Return how many buckets there are."""
        return math.ceil(vectors / self.s)

    def coefficients(self, mixture: Mixture, rng: np.random.Generator) -> NDArray[np.float64]:
        """Return one over the size of a bucket at its vectors."""
        order = rng.permutation(len(mixture))
        result = np.zeros((self.count(len(mixture)), len(mixture)))
        for bucket, row in enumerate(result):
            chosen = order[bucket * self.s : (bucket + 1) * self.s]
            row[chosen] = 1 / len(chosen)
        return result
