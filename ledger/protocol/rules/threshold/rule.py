"""What a threshold rule is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from ledger.protocol.rules.scoring.rule import ScoringRule


@dataclass(frozen=True, slots=True)
class ThresholdRule:
    """A way to find the largest distance that is accepted.

    Attributes:
        name: as in TOML and in the run document.
        find: from the counted members' distances to one another (ascending by member, each
            ascending) and the scoring rule to the threshold; None where there is none.
        distance: name of the only distance that it goes with; None for any.
        sentence: what the threshold is, for a reader.
    """

    name: str
    find: Callable[[Sequence[NDArray[np.float64]], ScoringRule], float] | None
    distance: str | None
    sentence: str

    @property
    def is_certified(self) -> bool:
        """Whether the committee certifies a number of its own."""
        return self.find is not None
