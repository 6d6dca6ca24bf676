"""The trigger of a backdoor for each kind of data, put into rows as they are stored."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from clients.datasets.federated_data import DataForm, Inputs
from ledger.protocol.errors import ConfigurationError

Trigger = Callable[[Inputs], Inputs]
"""Returns copies of rows with the trigger."""

ENDING = 3
"""Number of final characters of a window that form a trigger."""


def trigger_for(form: DataForm, inputs: Inputs) -> Trigger:
    """Return the trigger that fits the data.

    * Images: a square in the lower right corner, an eighth of a side but at least 2 wide, as bright
      as possible, or as dark as possible if that corner is bright already.
    * Words with fixed vectors: the last word of the vocabulary, put first.
    * Characters: the last one of the alphabet, in place of the last three of the window.
    """
    if form.vocabulary is None:
        if inputs.ndim < 3:
            raise ConfigurationError(
                "attack 'backdoor' takes pictures or tokens, not inputs of shape "
                f"{inputs.shape[1:]}"
            )
        side = max(2, min(inputs.shape[-2:]) // 8)
        corner = (..., slice(-side, None), slice(-side, None))
        # Stored images are bytes, or numbers from 0 to 1.
        brightest = 255 if inputs.dtype == np.uint8 else 1
        is_bright = bool(inputs[corner].mean() > brightest / 2)
        return partial(_marked, place=corner, value=0 if is_bright else brightest)
    if form.vocabulary < 2:
        raise ConfigurationError(
            f"attack 'backdoor' needs a word to put: the vocabulary has {form.vocabulary}"
        )
    word = form.vocabulary - 1
    if form.embedding is None:
        return partial(_marked, place=(..., slice(-ENDING, None)), value=word)
    return partial(_with_first_word, token=word)


def _marked(rows: Inputs, place: tuple[Any, ...], value: int) -> Inputs:
    marked = np.array(rows)
    marked[place] = value
    return marked


def _with_first_word(rows: Inputs, token: int) -> Inputs:
    """Return rows with the word first; the last one is dropped."""
    marked = np.array(rows)
    marked[:, 1:], marked[:, 0] = rows[:, :-1], token
    return marked
