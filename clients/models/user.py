"""A user's own model: a class in a file, or in an installed package.

Naming a model runs its code, as `python file.py` would, so a configuration is to be trusted like a
program; nothing on a chain or in a blob can name one. What is run of a file are the very bytes
whose sha256 is recorded, in every process that loads it.
"""

from __future__ import annotations

import functools
import hashlib
import importlib
import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from torch import nn

from clients.models.model_binding import package_of
from clients.models.parameter_rules import require_tensors
from clients.models.user_code_errors import as_configuration_error
from ledger.io.home import read_file
from ledger.protocol.bound_inputs import source_of_package
from ledger.protocol.errors import ConfigurationError
from ledger.protocol.types import Digest

if TYPE_CHECKING:
    from collections.abc import Mapping

    from clients.datasets.federated_data import DataForm
    from clients.models.model import Option

MAX_FILE_BYTES = 1 << 20
_FILE = ".py"


@dataclass(frozen=True, slots=True)
class UserModule:
    """Makes modules of a user's class; pickled by name, so that each process loads it anew.

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
        """File or package and class; without the file's folder, which is another elsewhere."""
        place = self.place if self.sha256 is None else Path(self.place).name
        return f"{place}:{self.class_name}"

    def recorded(self) -> dict[str, str]:
        """Return what identifies the code beside its name."""
        if self.sha256 is not None:
            return {"sha256": self.sha256}
        return {"package": "==".join(package_of(self.place))}

    def source(self) -> Digest:
        """Return the sha256 of the file, or the digest of package, version and name.

        Raises:
            ConfigurationError: the class is of no installed package.
        """
        if self.sha256 is not None:
            return Digest(bytes.fromhex(self.sha256))
        package, version = package_of(self.place)
        return source_of_package(package, version, f"{self.place}.{self.class_name}")

    def __call__(self, form: DataForm, options: Mapping[str, Option]) -> nn.Module:
        """Return a new module.

        Args:
            form: of the data, which only `check_model` holds against it.
            options: keyword arguments of the class.

        Raises:
            ConfigurationError: the code cannot be loaded or has changed, the class is no module or
                cannot be made, or its parameters make up no vector.
        """
        del form
        made = self._class()
        with as_configuration_error(f"model.name = {self.name!r}: cannot be made"):
            module = made(**options)
            list(module.parameters())  # fails where the constructor has not called its super's
        require_tensors(self.name, module)
        return module

    def _class(self) -> type[nn.Module]:
        code = _package(self.place) if self.sha256 is None else _file(self.place, self.sha256)
        found = getattr(code, self.class_name, None)
        if found is None:
            raise ConfigurationError(f"{self.place} has no class {self.class_name!r}")
        if not (isinstance(found, type) and issubclass(found, nn.Module)):
            raise ConfigurationError(f"model.name = {self.name!r}: is no class of torch.nn.Module")
        return found


def user_module(name: str) -> UserModule:
    """Return the factory that a name stands for; of a file, as it is now.

    Args:
        name: `file.py:Class` or `package:Class`.

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
    """Return the module that a file makes: once in a process, and nothing is written beside it.

    Raises:
        ConfigurationError: it cannot be read or run, or is not what it was.
    """
    source = _source(Path(path))
    found = hashlib.sha256(source).hexdigest()
    if found != sha256:
        raise ConfigurationError(f"{path} has changed: its sha256 was {sha256}, and is {found}")
    module = ModuleType(f"cmfl_model_{sha256[:16]}")
    module.__file__ = path
    sys.modules[module.__name__] = module  # where dataclasses and pickle look for it
    try:
        with as_configuration_error(f"{path} cannot be loaded"):
            # Not importlib, which reads the file a second time.
            exec(compile(source, path, "exec"), module.__dict__)  # noqa: S102 - asked for by name
    except ConfigurationError:
        del sys.modules[module.__name__]
        raise
    return module
