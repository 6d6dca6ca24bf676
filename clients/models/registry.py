"""The models by name: a new one takes its file and one line here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from clients.models.cnn import convolutional_network
from clients.models.softmax import SoftmaxRegression
from ledger.protocol.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable

    from clients.models.model import Model

MODELS: dict[str, Callable[[tuple[int, ...], int], Model]] = {
    "softmax": SoftmaxRegression,
    "cnn": convolutional_network,
}


def model_named(name: str, input_shape: tuple[int, ...], classes: int) -> Model:
    """Return a model that fits a data set.

    Args:
        name: one of `MODELS`.
        input_shape: shape of one input, such as (channels, height, width).
        classes: number of classes.

    Returns:
        The model.

    Raises:
        ConfigurationError: unknown name, or inputs that the model cannot take.
    """
    if name not in MODELS:
        raise ConfigurationError(f"unknown model {name!r}; known are {', '.join(MODELS)}")
    return MODELS[name](input_shape, classes)
