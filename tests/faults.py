"""How often faults are provoked: a few times in every test run, many times by `make faults`."""

from __future__ import annotations

import os


def times(ordinary: int, many: int) -> int:
    """Return how often, as `CMFL_FAULTS` says."""
    return many if os.environ.get("CMFL_FAULTS") else ordinary
