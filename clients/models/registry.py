"""The models by name; a built-in one needs its file and one line here, all others are a user's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from clients.datasets.federated_data import DataForm
from clients.models.alexnet import alexnet
from clients.models.cnn import cnn
from clients.models.hf import hf
from clients.models.leaf_cnn import leaf_cnn
from clients.models.mlp import mlp
from clients.models.model import ForeignFactory, Model, ModuleFactory, Option, model_of
from clients.models.softmax import softmax
from clients.models.text_lstm import sent140_lstm, shakespeare_lstm
from clients.models.user import user_module
from ledger.protocol.errors import ConfigurationError

MODELS: dict[str, ModuleFactory] = {
    "softmax": softmax,
    "cnn": cnn,
    "leaf_cnn": leaf_cnn,
    "alexnet": alexnet,
    "sent140_lstm": sent140_lstm,
    "shakespeare_lstm": shakespeare_lstm,
    "mlp": mlp,
    "hf": hf,
}


def model_named(name: str, form: DataForm, options: Mapping[str, Option] | None = None) -> Model:
    """Return a model for a data set.

    Args:
        name: one of `MODELS`, or a user's `file.py:Class` or `package:Class`.
        options: its settings; keyword arguments of a user's class.
    """
    verify_name(name)
    factory = MODELS[name] if name in MODELS else user_module(name)
    return model_of(factory, form, options)


def bound_paths(name: str, options: Mapping[str, Option]) -> dict[str, Any]:
    """Return the record of a model whose name or options are paths, with digests instead.

    A built-in model without files has an empty record.
    """
    factory = MODELS[name] if name in MODELS else user_module(name)
    if not isinstance(factory, ForeignFactory):
        return {}
    record = {"name": factory.name, "options": {**options, **factory.files(options)}}
    return record | factory.recorded()


def file_options(name: str, options: Mapping[str, Option]) -> list[str]:
    """Return the options of a model that name files, which each machine has its own copy of."""
    factory = MODELS[name] if name in MODELS else user_module(name)
    return [*factory.files(options)] if isinstance(factory, ForeignFactory) else []


def verify_name(name: str) -> None:
    """Reject a name that is neither built-in nor of a user's form, before anything is loaded."""
    if name not in MODELS and ":" not in name:
        raise ConfigurationError(
            f"unknown model {name!r}; known are {', '.join(MODELS)}, and classes of your own: "
            f"file.py:Class or package:Class"
        )
