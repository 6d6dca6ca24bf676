"""The fastest distances of this installation, used by members and auditors.

They are compiled where the extra `fast` is installed and the machine allows it, else computed by
NumPy in blocks. The two differ by far less than any verdict tolerates.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from ledger.distances.blocked import BlockedSquares
from ledger.distances.composed_rules import distances_by
from ledger.distances.machine_code import MachineCode, NoMachineCodeError, machine_code
from ledger.distances.streaming import StreamedSquares
from ledger.protocol.rules.distance import DistanceRule, Distances, Travel, Updates
from ledger.protocol.types import ClientId


def fast_distances(threads: int = 1) -> Distances:
    """Return a function that computes all distances of a round.

    The bytes of a distance do not depend on the number of threads; those of a squared distance do
    not depend on the other updates either. Nothing is compiled or imported before the first call.

    Returns:
        The counterpart of `plain_distances`, equal within each rule's tolerance; it raises
        ValueError for updates of different lengths.
    """
    if threads < 1:
        raise ValueError(f"distances on {threads} threads")

    def distances(
        rule: DistanceRule, travel: Travel, updates: Updates, members: Sequence[ClientId]
    ) -> NDArray[np.float64]:
        try:
            compute = distances_with(machine_code(), threads)
        except NoMachineCodeError:
            compute = distances_by(BlockedSquares)
        return compute(rule, travel, updates, members)

    return distances


def distances_with(code: MachineCode, threads: int = 1) -> Distances:
    """Return a function that computes all distances of a round by a compiled loop."""
    return distances_by(partial(StreamedSquares, code, threads))


def fallback_reason() -> str:
    """Return why distances are computed in NumPy here; empty if they are compiled."""
    try:
        machine_code()
    except NoMachineCodeError as error:
        return str(error)
    return ""


def usable_cores() -> int:
    """Return the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
