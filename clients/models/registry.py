"""The models by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from clients.models.cnn import ConvolutionalNetwork
from clients.models.softmax import SoftmaxRegression
from ledger.protocol.errors import ConfigurationError

if TYPE_CHECKING:
    from clients.models.model import Model

MODELS = ("softmax", "cnn")


def model_named(name: str, input_shape: tuple[int, ...], classes: int) -> Model:
    """Return a model that fits a data set.

    Args:
        name: one of `MODELS`.
        input_shape: shape of one input, (channels, height, width).
        classes: number of classes.

    Returns:
        The model.

    Raises:
        ConfigurationError: unknown name, or inputs that are no images for a model of images.
    """
    if name == "softmax":
        return SoftmaxRegression(input_shape, classes)
    if name == "cnn":
        if len(input_shape) != 3:
            raise ConfigurationError(
                f"model 'cnn' needs images (channels, height, width), not shape {input_shape}"
            )
        return ConvolutionalNetwork(input_shape, classes)
    raise ConfigurationError(f"unknown model {name!r}; known are {', '.join(MODELS)}")
