"""What a scoring rule is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class ScoringRule:
    """A way to combine distances.

    Attributes:
        name: as in TOML and in the run document.
        combine: from shape (members, ·), members in ascending client order, to shape (·,).
        sentence: what is taken of the distances, for a reader: "the ... of their".
    """

    name: str
    combine: Callable[[NDArray[np.float64]], NDArray[np.float64]]
    sentence: str
