"""`alexnet`: AlexNet for 28 × 28 images.

The layers are those of Krizhevsky's second AlexNet ("One weird trick", arXiv 1404.5997: 64, 192,
384, 256, 256 channels and no response normalisation), also torchvision's. Its kernels and strides
are for 224 × 224 images; here every kernel is 3 × 3 and every pool 2 × 2, after the first, second
and fifth convolution, so that 28 × 28 becomes 3 × 3.

There is no dropout: an update has to follow from the client's data and its batch order alone, so
that its owner can repeat it.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

import numpy as np
from torch import Tensor, nn

from clients.datasets.federated_data import DataForm
from clients.models.initial_weights import draw_in_turn, he_normal
from clients.models.model import Option
from clients.models.model_options import require_images, require_known, width

_SIDES = (28, 28)
_CHANNELS = (64, 192, 384, 256, 256)
_POOLED = (0, 1, 4)
_LEFT = 3 * 3
_HIDDEN = 4096


class AlexNet(nn.Module):
    """Five convolutions with ReLU, three of them max-pooled, then three linear layers."""

    def __init__(self, channels: int, classes: int, hidden: int) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for index, (before, after) in enumerate(pairwise((channels, *_CHANNELS))):
            layers += [nn.Conv2d(before, after, 3, padding=1), nn.ReLU()]
            if index in _POOLED:
                layers.append(nn.MaxPool2d(2))
        self.features = nn.Sequential(*layers)
        self.classifier = nn.Sequential(
            nn.Linear(_CHANNELS[-1] * _LEFT, hidden),
            nn.ReLU(),
            nn.Linear(hidden, hidden),
            nn.ReLU(),
            nn.Linear(hidden, classes),
        )

    def forward(self, x: Tensor) -> Tensor:
        """Return the class scores of images x, (n, channels, 28, 28), in shape (n, classes)."""
        scores: Tensor = self.classifier(self.features(x).flatten(1))
        return scores

    def draw_start(self, rng: np.random.Generator) -> None:
        """Draw He-normal weights and zero biases, as eight layers of ReLU need."""
        draw_in_turn(self, rng, he_normal)


def alexnet(form: DataForm, options: Mapping[str, Option]) -> AlexNet:
    """Return the network for 28 × 28 images; option `hidden` is the width of two linear layers."""
    require_known("alexnet", options, ("hidden",))
    require_images("alexnet", form, sides=_SIDES)
    hidden = width("alexnet", options, "hidden", _HIDDEN)
    return AlexNet(form.input_shape[0], form.classes, hidden)
