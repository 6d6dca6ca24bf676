"""All claims in the paper's order: a new one takes its entry in the file of its section."""

from __future__ import annotations

from benchmarks.paper import complexity
from benchmarks.paper.claims import (
    committee,
    confound,
    efficiency,
    grids,
    normal,
    robustness,
    theorem,
)

CLAIMS = (
    *theorem.CLAIMS,
    *complexity.CLAIMS,
    *normal.CLAIMS,
    *robustness.CLAIMS,
    *grids.CLAIMS,
    *efficiency.CLAIMS,
    *committee.CLAIMS,
    *confound.CLAIMS,
)
