"""Weighted sums of updates in float64, compiled: the bytes of NumPy's loop over the updates.

Each coordinate's sum begins at zero and takes the products in the order of the updates, each
rounded before it is added. It stays in registers meanwhile, and the updates are read once.
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from ledger.distances.composed_rules import is_vector
from ledger.distances.machine_code import linked_function

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

LANES = 128
"""Coordinates whose sums are in registers at once."""

LEAST_NUMBERS = 1 << 16
"""NumPy has added shorter updates of many rounds before the loop is compiled."""


def weighted_sum(
    updates: Sequence[NDArray[Any]], weights: Sequence[float]
) -> NDArray[np.float64] | None:
    """Return the sum of float32 updates, each times its weight; None where NumPy must form it.

    Args:
        updates: of one length, at least one.
        weights: of each.
    """
    if len(updates[0]) < LEAST_NUMBERS or not all(map(is_vector, updates)):
        return None
    code = _adding_code()
    if code is None:
        return None
    rows = [np.ascontiguousarray(row) for row in updates]
    addresses = np.array([row.ctypes.data for row in rows], dtype=np.uintp)
    factors = np.array(weights, dtype=np.float64)
    result = np.zeros(len(rows[0]))
    whole = len(result) - len(result) % LANES
    add_rows, _engine = code
    arrays = (addresses.ctypes.data, factors.ctypes.data, len(rows))
    add_rows(*arrays, whole, result.ctypes.data)
    for row, factor in zip(rows, factors, strict=True):
        result[whole:] += factor * row[whole:]
    return result


@cache
def _adding_code() -> tuple[Callable[..., None], object] | None:
    """Return the loop and the engine that holds it; None where nothing can be compiled."""
    pointer, number = ctypes.c_void_p, ctypes.c_int64
    return linked_function(_ADDING_LOOP, "add_rows", pointer, pointer, number, number, pointer)


_ADDING_LOOP = f"""
; Sums coordinates [0, stop) of the rows; stop is a multiple of the lanes.
define void @add_rows(ptr %rows, ptr %weights, i64 %row_count, i64 %stop, ptr noalias %result) {{
entry:
  br label %step

step:
  %at = phi i64 [0, %entry], [%next, %store]
  %is_left = icmp slt i64 %at, %stop
  br i1 %is_left, label %add, label %end

add:
  %row = phi i64 [0, %step], [%next_row, %add]
  %sum = phi <{LANES} x double> [zeroinitializer, %step], [%next_sum, %add]
  %row_at = getelementptr ptr, ptr %rows, i64 %row
  %row_start = load ptr, ptr %row_at
  %source = getelementptr float, ptr %row_start, i64 %at
  %numbers = load <{LANES} x float>, ptr %source, align 4
  %wide = fpext <{LANES} x float> %numbers to <{LANES} x double>
  %weight_at = getelementptr double, ptr %weights, i64 %row
  %weight = load double, ptr %weight_at
  %first = insertelement <{LANES} x double> poison, double %weight, i64 0
  %factors = shufflevector <{LANES} x double> %first, <{LANES} x double> poison,
    <{LANES} x i32> zeroinitializer
  %product = fmul <{LANES} x double> %wide, %factors
  %next_sum = fadd <{LANES} x double> %sum, %product
  %next_row = add i64 %row, 1
  %is_row = icmp slt i64 %next_row, %row_count
  br i1 %is_row, label %add, label %store

store:
  %target = getelementptr double, ptr %result, i64 %at
  store <{LANES} x double> %next_sum, ptr %target, align 8
  %next = add i64 %at, {LANES}
  br label %step

end:
  ret void
}}
"""
