"""Which payloads are usable updates."""

from __future__ import annotations

import numpy as np
import pytest

from ledger.protocol.encoding import vector_bytes
from ledger.protocol.rules.usable_update import update_of
from tests.protocol.support import f32


def test_a_payload_of_four_bytes_for_each_parameter_is_usable() -> None:
    found = update_of(vector_bytes(f32(1.0, -2.0)), 2)
    assert found is not None
    assert found.tolist() == [1.0, -2.0]


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        bytes(7),
        bytes(9),
        bytes(12),
        *(vector_bytes(f32(1.0, value)) for value in (np.nan, np.inf, -np.inf)),
    ],
)
def test_a_payload_of_wrong_length_or_non_finite_is_unusable(
    payload: bytes,
) -> None:
    assert update_of(payload, 2) is None
