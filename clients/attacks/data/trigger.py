"""What a backdoor's trigger is for each kind of data: put into rows as they are stored."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from clients.datasets.federated_data import Inputs
from ledger.protocol.errors import ConfigurationError

if TYPE_CHECKING:
    from clients.datasets.federated_data import DataForm

Trigger = Callable[[Inputs], Inputs]
"""Makes rows with the trigger of rows without it, which are left alone."""

ENDING = 3
"""Characters at the end of a window that are a trigger."""


def trigger_for(form: DataForm, seen: Inputs) -> Trigger:
    """Return the trigger that fits the data.

    * Pictures: a square in the corner below on the right, an eighth of a side but at least 2 wide,
      as bright as a pixel can be; where that corner is bright already, as dark as can be.
    * Words, which have vectors that are not trained: the last word of the vocabulary, put first.
    * Characters: the last one of the alphabet, in place of the last three of the window.

    Args:
        form: what a model has to know of the data.
        seen: stored inputs by which the corner's brightness is told.

    Raises:
        ConfigurationError: inputs that are neither pictures nor tokens, or a vocabulary of one.
    """
    if form.vocabulary is None:
        if seen.ndim < 3:
            raise ConfigurationError(
                f"attack 'backdoor' takes pictures or tokens, not inputs of shape {seen.shape[1:]}"
            )
        return _square(seen)
    if form.vocabulary < 2:
        raise ConfigurationError(
            f"attack 'backdoor' needs a word to put: the vocabulary has {form.vocabulary}"
        )
    put = _with_ending if form.embedding is None else _with_first_word
    return partial(put, token=form.vocabulary - 1)


def _square(seen: Inputs) -> Trigger:
    side = max(2, min(seen.shape[-2:]) // 8)
    # Stored pictures are bytes, or numbers from 0 to 1.
    brightest = 255 if seen.dtype == np.uint8 else 1
    is_bright = bool(seen[..., -side:, -side:].mean() > brightest / 2)
    return partial(_with_square, side=side, value=0 if is_bright else brightest)


def _with_square(rows: Inputs, side: int, value: int) -> Inputs:
    marked = np.array(rows)
    marked[..., -side:, -side:] = value
    return marked


def _with_first_word(rows: Inputs, token: int) -> Inputs:
    """Return rows with the word first; what was last falls off."""
    marked = np.array(rows)
    marked[:, 1:], marked[:, 0] = rows[:, :-1], token
    return marked


def _with_ending(rows: Inputs, token: int) -> Inputs:
    marked = np.array(rows)
    marked[:, -ENDING:] = token
    return marked
