"""A user's own aggregator: a function in a file or package, from updates to one vector."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import numpy as np
from pydantic import ConfigDict

from clients.aggregators.aggregator import Aggregator, AggregatorSelection, everybody
from clients.aggregators.mixture import Mixture, Vector
from ledger.io.user_code import UserCode, as_configuration_error
from ledger.protocol.errors import ConfigurationError


class OwnAggregator(Aggregator):
    """A function `(updates, **options)` from shape (n, d), float64, to shape (d,).

    Attributes:
        label: file or package and name.
        function: the user's.
        options: its keyword arguments.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True)

    name: ClassVar[str] = "own aggregator"

    label: str
    function: Callable[..., Any]
    options: Mapping[str, Any]

    def aggregate(self, mixture: Mixture, weights: Vector, last: Vector) -> AggregatorSelection:
        """Return the function's vector, made of all updates."""
        updates = np.empty((len(mixture), mixture.dimension))
        for part, rows in mixture.blocks():
            updates[:, part] = rows
        updates.flags.writeable = False
        subject = f"aggregator = {self.label!r}"
        with as_configuration_error(f"{subject}: it fails, or changes its input"):
            vector = np.asarray(self.function(updates.view(), **self.options))
        if vector.shape != (mixture.dimension,) or vector.dtype.kind != "f":
            raise ConfigurationError(
                f"{subject}: returns {vector.dtype} of shape {vector.shape}; must return floats of "
                f"shape ({mixture.dimension},)"
            )
        if not np.isfinite(vector).all():
            raise ConfigurationError(f"{subject}: returns numbers that are not finite")
        return AggregatorSelection(vector.astype(np.float64), everybody(mixture))


def own_aggregator(code: UserCode, options: Mapping[str, object]) -> OwnAggregator:
    """Return the aggregator of a user's function."""
    function = code.load_function("aggregator")
    return OwnAggregator(label=code.label, function=function, options=dict(options))
