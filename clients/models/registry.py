"""The models by name; a built-in one needs its file and one line here, all others are a user's.

Naming a model runs its code, as `python file.py` would, so a configuration must be trusted like a
program; nothing on a chain or in a blob can name one. Each process runs the recorded bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import nn

from clients.datasets.federated_data import DataForm, named
from clients.models import builtin
from clients.models.huggingface import hf
from clients.models.model import (
    ForeignFactory,
    Model,
    ModuleFactory,
    Option,
    model_error,
    model_of,
    option_files,
    require_tensors,
)
from ledger.io.user_code import UserCode, as_configuration_error, user_code
from ledger.protocol.types import Digest


@dataclass(frozen=True, slots=True)
class UserModule:
    """A factory of a user's class; pickled by name, so each process loads the code itself."""

    code: UserCode

    @property
    def name(self) -> str:
        return self.code.label

    def recorded(self) -> dict[str, str]:
        return self.code.recorded()

    def source(self) -> Digest:
        return self.code.digest()

    def files(self, options: Mapping[str, Option]) -> dict[str, str]:
        return option_files(options)

    def __call__(self, _: DataForm, options: Mapping[str, Option]) -> nn.Module:
        """Return a new module; only `check_model` compares it with the form of the data."""
        class_ = self.code.load("class")
        if not (isinstance(class_, type) and issubclass(class_, nn.Module)):
            raise model_error(self.name, "is not a class of torch.nn.Module")
        with as_configuration_error(f"model.name = {self.name!r}: cannot be made"):
            module = class_(**options)
            list(module.parameters())  # fails if the constructor has not called super().__init__
        require_tensors(self.name, module)
        return module


def user_module(name: str) -> UserModule:
    """Return the factory for `file.py:Class` or `package:Class`, with the file's current digest."""
    return UserModule(user_code("model.name", name, "Class"))


MODELS: dict[str, ModuleFactory] = {
    "softmax": builtin.softmax,
    "cnn": builtin.cnn,
    "leaf_cnn": builtin.leaf_cnn,
    "alexnet": builtin.alexnet,
    "sent140_lstm": builtin.sent140_lstm,
    "shakespeare_lstm": builtin.shakespeare_lstm,
    "mlp": builtin.mlp,
    "hf": hf,
}


def model_named(name: str, form: DataForm, options: Mapping[str, Option] | None = None) -> Model:
    """Return a built-in model, or a user's, whose options are its arguments, for a data set."""
    verify_name(name)
    return model_of(_factory(name), form, options)


def bound_paths(name: str, options: Mapping[str, Option]) -> dict[str, Any]:
    """Return the record of a model whose name or options are paths, with digests instead."""
    factory = _factory(name)
    if not isinstance(factory, ForeignFactory):
        return {}
    record = {"name": factory.name, "options": {**options, **factory.files(options)}}
    return record | factory.recorded()


def file_options(name: str, options: Mapping[str, Option]) -> list[str]:
    """Return the options of a model that name files, which each machine has its own copy of."""
    factory = _factory(name)
    return [*factory.files(options)] if isinstance(factory, ForeignFactory) else []


def verify_name(name: str) -> None:
    """Reject a name that is neither built-in nor of a user's form, before anything is loaded."""
    if ":" not in name:
        named("unknown model", MODELS, name, "classes of your own: file.py:Class or package:Class")


def _factory(name: str) -> ModuleFactory:
    return MODELS[name] if name in MODELS else user_module(name)
