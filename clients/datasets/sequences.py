"""Sequences of tokens that end with `NO_TOKEN`, and the targets that follow from them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from clients.datasets.federated_data import NO_TARGET, NO_TOKEN
from ledger.protocol.errors import ConfigurationError


def require_ends(where: str, x: NDArray[Any]) -> None:
    """Reject rows without a token, or with one after their end."""
    is_token = x != NO_TOKEN
    bad = ~is_token[:, 0] | (is_token[:, 1:] & ~is_token[:, :-1]).any(axis=1)
    if bad.any():
        raise ConfigurationError(
            f"{where}: x: row {int(np.argmax(bad))} has no token, or one after {NO_TOKEN}, which "
            f"ends a row"
        )


def next_tokens(where: str, x: NDArray[Any]) -> NDArray[np.int64]:
    """Return the next token of each, shape (n, length)."""
    y = np.full(x.shape, NO_TARGET, dtype=np.int64)
    y[:, :-1] = np.where(x[:, 1:] == NO_TOKEN, NO_TARGET, x[:, 1:])
    alone = (y == NO_TARGET).all(axis=1)
    if alone.any():
        raise ConfigurationError(
            f"{where}: x: row {int(np.argmax(alone))} has one token; there must be two or more"
        )
    return y


def require_targets(where: str, y: NDArray[Any]) -> None:
    """Reject targets of tokens that are neither classes nor `NO_TARGET`, and rows without any."""
    if ((y < 0) & (y != NO_TARGET)).any():
        raise ConfigurationError(
            f"{where}: y: must be classes from 0 on, or {NO_TARGET} for a token that does not count"
        )
    counted = (y != NO_TARGET).any(axis=1)
    if not counted.all():
        row = int(np.argmin(counted))
        raise ConfigurationError(f"{where}: y: row {row} has no token with a class")
