"""The models by name; a built-in one needs its file and one line here, all others are a user's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from clients.models.alexnet import alexnet
from clients.models.cnn import cnn
from clients.models.leaf_cnn import leaf_cnn
from clients.models.model import Model, ModuleFactory, model_of
from clients.models.model_binding import option_files
from clients.models.softmax import softmax
from clients.models.text_lstm import sent140_lstm, shakespeare_lstm
from clients.models.user import user_module
from ledger.protocol.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from clients.datasets.federated_data import DataForm
    from clients.models.model import Option

MODELS: dict[str, ModuleFactory] = {
    "softmax": softmax,
    "cnn": cnn,
    "leaf_cnn": leaf_cnn,
    "alexnet": alexnet,
    "sent140_lstm": sent140_lstm,
    "shakespeare_lstm": shakespeare_lstm,
}


def model_named(name: str, form: DataForm, options: Mapping[str, Option] | None = None) -> Model:
    """Return a model for a data set.

    Args:
        name: one of `MODELS`, or a user's `file.py:Class` or `package:Class`.
        form: of the data.
        options: its settings; keyword arguments of a user's class.

    Raises:
        ConfigurationError: an unknown name or option, inputs that do not fit, or a class that
            cannot be loaded or makes no model.
    """
    verify_name(name)
    factory = MODELS[name] if name in MODELS else user_module(name)
    return model_of(factory, form, options)


def bound_paths(name: str, options: Mapping[str, Option]) -> dict[str, Any]:
    """Return the record of a model whose name or options are paths, with digests instead.

    A name in `MODELS` has an empty record.

    Raises:
        ConfigurationError: a file cannot be read.
    """
    if name in MODELS:
        return {}
    factory = user_module(name)
    record = {"name": factory.name, "options": {**options, **option_files(options)}}
    return record | factory.recorded()


def verify_name(name: str) -> None:
    """Reject a name that is neither built-in nor of a user's form, before anything is loaded."""
    if name not in MODELS and ":" not in name:
        raise ConfigurationError(
            f"unknown model {name!r}; known are {', '.join(MODELS)}, and classes of your own: "
            f"file.py:Class or package:Class"
        )
