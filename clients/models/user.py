"""A user's own model: a class in a file, or in an installed package.

Naming a model runs its code, as `python file.py` would, so a configuration must be trusted like a
program; nothing on a chain or in a blob can name one. Each process runs exactly the bytes whose
sha256 is recorded.
"""

from __future__ import annotations

import functools
import hashlib
import importlib
import sys
import traceback
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import torch
from torch import nn

from clients.models.model_binding import package_of
from clients.models.parameter_rules import require_tensors
from ledger.io.home import read_file
from ledger.protocol.bound_inputs import source_of_package
from ledger.protocol.errors import ConfigurationError
from ledger.protocol.types import Digest

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from clients.datasets.federated_data import DataForm
    from clients.models.model import Option

_OURS = str(Path(__file__).parents[1])
_TORCHS = str(Path(torch.__file__).parent)
_LONGEST = 300
MAX_FILE_BYTES = 1 << 20
_FILE = ".py"


@contextmanager
def as_configuration_error(subject: str) -> Iterator[None]:
    """Turn any exception of user code, `sys.exit` too, into a ConfigurationError.

    Args:
        subject: first half of the message.

    Raises:
        ConfigurationError: names what was raised inside the `with` block.
        KeyboardInterrupt: passes unchanged.
    """
    try:
        yield
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise ConfigurationError(f"{subject}: {describe_error(error)}") from error


def describe_error(error: BaseException) -> str:
    """Return an error's kind, its first line, and file and line in the user's code."""
    message = next(iter(message_of(error).splitlines()), "")[:_LONGEST]
    sentence = f"{type(error).__name__}: {message}" if message else type(error).__name__
    lines = [
        f"{Path(frame.f_code.co_filename).name}, line {line}"
        for frame, line in traceback.walk_tb(error.__traceback__)
        if not frame.f_code.co_filename.startswith((_OURS, _TORCHS, "<"))
    ]
    return f"{sentence} ({lines[-1]})" if lines else sentence


def message_of(error: BaseException) -> str:
    """Return an error's message; empty if its own class fails to make it."""
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - the method is user code too
        return ""


@dataclass(frozen=True, slots=True)
class UserModule:
    """A factory of a user's class; pickled by name, so each process loads the code itself.

    Attributes:
        place: absolute path of a file, or the name of a package.
        class_name: of the class.
        sha256: of the file, in hex; None for a package.
    """

    place: str
    class_name: str
    sha256: str | None = None

    @property
    def name(self) -> str:
        """File or package and class; without the file's folder, which differs between machines."""
        place = self.place if self.sha256 is None else Path(self.place).name
        return f"{place}:{self.class_name}"

    def recorded(self) -> dict[str, str]:
        """Return the identification of the code besides its name."""
        if self.sha256 is not None:
            return {"sha256": self.sha256}
        return {"package": "==".join(package_of(self.place))}

    def source(self) -> Digest:
        """Return the sha256 of the file, or the digest of package, version and name."""
        if self.sha256 is not None:
            return Digest(bytes.fromhex(self.sha256))
        package, version = package_of(self.place)
        return source_of_package(package, version, f"{self.place}.{self.class_name}")

    def __call__(self, form: DataForm, options: Mapping[str, Option]) -> nn.Module:
        """Return a new module.

        Args:
            form: of the data; only `check_model` compares it.
            options: keyword arguments of the class.

        Raises:
            ConfigurationError: the code cannot be loaded or has changed, the class is not a module
                or cannot be instantiated, or its parameters do not form a vector.
        """
        del form
        class_ = self._class()
        with as_configuration_error(f"model.name = {self.name!r}: cannot be made"):
            module = class_(**options)
            list(module.parameters())  # fails if the constructor has not called super().__init__
        require_tensors(self.name, module)
        return module

    def _class(self) -> type[nn.Module]:
        code = _package(self.place) if self.sha256 is None else _file(self.place, self.sha256)
        class_ = getattr(code, self.class_name, None)
        if class_ is None:
            raise ConfigurationError(f"{self.place} has no class {self.class_name!r}")
        if not (isinstance(class_, type) and issubclass(class_, nn.Module)):
            raise ConfigurationError(
                f"model.name = {self.name!r}: is not a class of torch.nn.Module"
            )
        return class_


def user_module(name: str) -> UserModule:
    """Return the factory for `file.py:Class` or `package:Class`, with the file's current digest.

    Raises:
        ConfigurationError: the name has another form, or the file cannot be read.
    """
    place, _, class_name = name.rpartition(":")
    is_file = place.endswith(_FILE)
    if not class_name.isidentifier() or not (is_file or _is_package(place)):
        raise ConfigurationError(
            f"model.name = {name!r}: must be file.py:Class or package:Class, and Class a name"
        )
    if not is_file:
        return UserModule(place, class_name)
    path = Path(place).absolute()
    return UserModule(str(path), class_name, hashlib.sha256(_source(path)).hexdigest())


def _is_package(place: str) -> bool:
    return all(part.isidentifier() for part in place.split("."))


def _source(path: Path) -> bytes:
    try:
        source = read_file(path, MAX_FILE_BYTES)
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror}") from error
    if len(source) > MAX_FILE_BYTES:
        raise ConfigurationError(f"{path} is over {MAX_FILE_BYTES} bytes")
    return source


def _package(name: str) -> ModuleType:
    with as_configuration_error(f"{name} cannot be imported"):
        return importlib.import_module(name)


@functools.cache
def _file(path: str, sha256: str) -> ModuleType:
    """Return the module in a file, executed once per process without writing a cache.

    Raises:
        ConfigurationError: it cannot be read or run, or has changed.
    """
    source = _source(Path(path))
    current = hashlib.sha256(source).hexdigest()
    if current != sha256:
        raise ConfigurationError(f"{path} has changed: its sha256 was {sha256}, and is {current}")
    module = ModuleType(f"cmfl_model_{sha256[:16]}")
    module.__file__ = path
    sys.modules[module.__name__] = module  # where dataclasses and pickle look for it
    try:
        with as_configuration_error(f"{path} cannot be loaded"):
            # Not by importlib, which would read the file a second time.
            exec(compile(source, path, "exec"), module.__dict__)  # noqa: S102 - asked for by name
    except ConfigurationError:
        del sys.modules[module.__name__]
        raise
    return module
