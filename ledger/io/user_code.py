"""A user's own code: functions and classes in files or installed packages, and own rules.

Naming code runs it, as `python file.py` would: trust a configuration or an option like a program.
Nothing on a chain or in a blob can name a file. A run document names a rule by label and digest; a
rule is loaded only if the caller names it, and only if its digest is the document's. Each process
runs exactly the bytes whose sha256 is recorded.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import importlib
import importlib.metadata
import inspect
import linecache
import os
import sys
import textwrap
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from symtable import SymbolTable, symtable
from types import FunctionType, ModuleType
from typing import Any

import numpy as np

from ledger.io.home import DISK, read_bounded
from ledger.protocol.errors import ConfigurationError
from ledger.protocol.inputs import source_of_package
from ledger.protocol.parameters import Parameters
from ledger.protocol.rules.distance import OWN_DISTANCES, OwnDistance, OwnRuleName, own_distance
from ledger.protocol.types import Digest

MAX_FILE_BYTES = 1 << 20
_FILE = ".py"
_LONGEST = 300  # characters of a message


@dataclass(frozen=True, slots=True)
class UserCode:
    """A function or class of a user's; pickled by name, so each process loads the code itself."""

    place: str  # absolute path of a file, or the name of a package
    name: str
    sha256: str | None = None  # of the file, in hex; None for a package

    @property
    def label(self) -> str:
        """File or package and name; without the file's folder, which differs between machines."""
        place = self.place if self.sha256 is None else Path(self.place).name
        return f"{place}:{self.name}"

    def recorded(self) -> dict[str, str]:
        """Return the identification of the code besides its label."""
        if self.sha256 is not None:
            return {"sha256": self.sha256}
        return {"package": "==".join(package_of(self.place))}

    def digest(self) -> Digest:
        if self.sha256 is not None:
            return Digest(bytes.fromhex(self.sha256))
        package, version = package_of(self.place)
        return source_of_package(package, version, f"{self.place}.{self.name}")

    def load(self, kind: str) -> Any:
        if self.sha256 is not None:
            code = _file(self.place, self.sha256)
        else:
            with as_configuration_error(f"{self.place} cannot be imported"):
                code = importlib.import_module(self.place)
        with as_configuration_error(f"{self.place}: {self.name}"):  # it may have a __getattr__
            value = getattr(code, self.name, None)
        if value is None:
            raise ConfigurationError(f"{self.place} has no {kind} {self.name!r}")
        return value

    def load_function(self, setting: str) -> Callable[..., Any]:
        # A document may name the function, and only the user the file: no import of it is run.
        function = self.load("function")
        if isinstance(function, FunctionType):
            if self.sha256 is not None:
                is_own = function.__code__.co_filename == self.place
            else:
                is_own = _top(str(function.__module__)) == _top(self.place)
            if is_own:
                return function
        raise ConfigurationError(f"{setting} = {self.label!r}: is not a function defined there")


def is_reference(name: str) -> bool:
    """Return whether a name has the form of a user's code: `file.py:name` or `package:name`."""
    return ":" in name


def user_code(setting: str, reference: str, kind: str = "function") -> UserCode:
    """Return the code that `file.py:name` or `package:name` names, with the file's digest."""
    place, _, name = reference.rpartition(":")
    is_file = place.endswith(_FILE)
    is_place = is_file or all(map(str.isidentifier, place.split(".")))
    is_short = len(reference) <= 4096 and "\0" not in reference
    if not (is_short and is_place and name.isidentifier()):
        raise ConfigurationError(
            f"{setting} = {reference[:_LONGEST]!r}: must be file.py:{kind} or package:{kind}, "
            f"with a name as {kind}"
        )
    if not is_file:
        return UserCode(place, name)
    path = Path(place).absolute()
    return UserCode(str(path), name, hashlib.sha256(read_bounded(path, MAX_FILE_BYTES)).hexdigest())


def named_code(setting: str, group: str, name: str) -> UserCode | None:
    """Return the code behind a reference or a plain name; None if no package offers the name."""
    if is_reference(name):
        return user_code(setting, name)
    points = importlib.metadata.entry_points(group=group, name=name)
    values = sorted({point.value for point in points})
    if len(values) > 1:
        raise ConfigurationError(f"{name!r}: {' and '.join(values)} are both {group} of this name")
    return user_code(f"entry point {name}", values[0].replace(" ", "")) if values else None


def code_reference(obj: Any, folder: Path) -> str:
    """Return the text that names a function or class in a configuration.

    A module's object is named by its file, or by its installed package. To load a script or
    notebook again would run it again, so an object of `__main__` is written to a file in `folder`
    first, with what it uses; its digest is in the file's name.
    """
    name = str(getattr(obj, "__qualname__", ""))
    if not isinstance(obj, FunctionType | type) or not name.isidentifier():
        raise ConfigurationError(
            f"{obj!r:.80}: must be a named function or class at the top of a module, not a lambda"
        )
    module = sys.modules.get(obj.__module__)
    file = getattr(module, "__file__", None)
    if obj.__module__ != "__main__" and file and getattr(module, name, None) is obj:
        is_installed = _top(obj.__module__) in _distributions()
        return f"{obj.__module__ if is_installed else Path(file).absolute()}:{name}"
    imports: set[str] = set()
    parts: dict[str, str] = {}
    _collect(obj, imports, parts)
    head = "\n".join(["from __future__ import annotations", *sorted(imports)])
    source = ("\n\n\n".join([head, *parts.values()]) + "\n").encode()
    path = folder / f"{name}-{hashlib.sha256(source).hexdigest()[:12]}{_FILE}"
    if not path.exists():
        DISK.write_whole(path.absolute(), source)
    return f"{path.absolute()}:{name}"


def package_of(module: str) -> tuple[str, str]:
    """Return name and version of the installed distribution of a module."""
    distributions = _distributions().get(_top(module), [])
    if not distributions:
        raise ConfigurationError(f"{module} is not in an installed package; name the file instead")
    return distributions[0], importlib.metadata.version(distributions[0])


@contextmanager
def as_configuration_error(subject: str) -> Iterator[None]:
    """Turn any exception of user code, `sys.exit` too, into a ConfigurationError."""
    try:
        yield
    except (KeyboardInterrupt, ConfigurationError):
        raise
    except BaseException as error:
        raise ConfigurationError(f"{subject}: {_sentence(error)}") from error


def _sentence(error: BaseException) -> str:
    """Return an error's kind, its first line, and file and line in the user's code."""
    message = next(iter(message_of(error).splitlines()), "")[:_LONGEST]
    sentence = f"{type(error).__name__}: {message}" if message else type(error).__name__
    root = Path(__file__).parents[2]
    ours = [f"{root / package}/" for package in ("ledger", "clients", "cmfl", "api")]
    files = [getattr(sys.modules.get(name), "__file__", None) for name in ("torch", "numpy")]
    skipped = (*ours, *(str(Path(file).parent) for file in files if file), "<")
    lines = [
        f"{Path(frame.f_code.co_filename).name}, line {line}"
        for frame, line in traceback.walk_tb(error.__traceback__)
        if not frame.f_code.co_filename.startswith(skipped)
    ]
    return f"{sentence} ({lines[-1]})" if lines else sentence


def message_of(error: BaseException) -> str:
    """Return an error's message; empty if its own class fails to make it."""
    try:
        return str(error)
    except KeyboardInterrupt:
        raise
    except BaseException:  # noqa: BLE001 - the method is user code too
        return ""


def _distributions() -> Mapping[str, list[str]]:
    """Return all that is installed: looked up once, and again after a folder has changed."""
    changes = []
    for folder in sys.path:
        with suppress(OSError):
            changes.append((folder, os.stat(folder or ".").st_mtime_ns))  # noqa: PTH116 - in a loop
    return _distributions_in(tuple(changes))


@functools.lru_cache(maxsize=1)
def _distributions_in(_folders: tuple[tuple[str, int], ...]) -> Mapping[str, list[str]]:
    return importlib.metadata.packages_distributions()  # takes half a second


def _top(module: str) -> str:
    return module.partition(".")[0]


@functools.cache
def _file(path: str, sha256: str) -> ModuleType:
    """Return the module in a file, executed once per process without writing a cache."""
    source = read_bounded(Path(path), MAX_FILE_BYTES)
    current = hashlib.sha256(source).hexdigest()
    if current != sha256:
        raise ConfigurationError(f"{path} has changed; its sha256 was {sha256}, is {current}")
    module = ModuleType(f"cmfl_code_{sha256[:16]}")
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


def _collect(obj: Any, imports: set[str], parts: dict[str, str]) -> None:
    """Add the definition of a function or class, after the definitions that it uses."""
    name = obj.__qualname__
    text = _definition(obj)
    parts[name] = ""  # it may use itself, or what uses it
    known = vars(sys.modules[obj.__module__])
    for other in sorted(_global_names(symtable(text, name, "exec")) - {name}):
        if other not in known or other in parts:
            continue
        value = known[other]
        module = getattr(value, "__module__", None)
        if isinstance(value, ModuleType):
            imports.add(f"import {value.__name__} as {other}")
        elif isinstance(value, FunctionType | type) and module == obj.__module__:
            if value.__qualname__ not in parts:
                _collect(value, imports, parts)
            if value.__qualname__ != other:
                parts[other] = f"{other} = {value.__qualname__}"
        elif module is not None and hasattr(value, "__qualname__"):
            imports.add(f"from {module} import {value.__qualname__} as {other}")
        else:
            parts[other] = f"{other} = {value!r}"
            is_constant = False
            with suppress(ValueError, SyntaxError):
                is_constant = bool(ast.literal_eval(repr(value)) == value)
            if not is_constant:
                raise ConfigurationError(
                    f"{name}: uses {other!r}, which is not a module, function, class or plain "
                    f"constant; put both into a file, and name it as file.py:{name}"
                )
    del parts[name]  # which comes after what it uses
    parts[name] = text


def _global_names(table: SymbolTable) -> set[str]:
    names = {symbol.get_name() for symbol in table.get_symbols() if symbol.is_global()}
    return names.union(*map(_global_names, table.get_children()))


def _definition(obj: Any) -> str:
    codes = [obj] if isinstance(obj, FunctionType) else vars(obj).values()
    code = next((part.__code__ for part in codes if isinstance(part, FunctionType)), None)
    file = code.co_filename if code is not None else inspect.getmodule(obj).__dict__.get("__file__")
    text = "".join(linecache.getlines(str(file)))
    name = obj.__qualname__
    kinds = (ast.FunctionDef, ast.ClassDef)
    statements = _statements(ast.parse(text).body)
    nodes = [node for node in statements if isinstance(node, kinds) and node.name == name]
    if not nodes:
        raise ConfigurationError(f"{name}: unknown source; put it into a file, as file.py:{name}")
    node = nodes[-1]
    first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
    return textwrap.dedent("\n".join(text.splitlines()[first - 1 : node.end_lineno]))


def _statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    for statement in body:
        yield statement
        if not isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            for part in ("body", "orelse", "finalbody"):
                yield from _statements(getattr(statement, part, []))


DISTANCE_GROUP = "cmfl.distances"  # entry points of packages that offer distances
_SETTING = "protocol.distance"


def own_rule(reference: str) -> str | None:
    """Load the distance that a setting names; return its name in parameters, None if unknown."""
    code = named_code(_SETTING, DISTANCE_GROUP, reference)
    if code is None:
        return None
    name = OwnRuleName(code.label, code.name, code.digest().hex())
    if OwnRuleName.of(str(name)) is None:
        raise ConfigurationError(
            f"{_SETTING} = {code.label!r}: must have a file name of at most 100 letters, "
            "digits and . _ + -"
        )
    _load(name, code)
    return str(name)


def use_rule(name: OwnRuleName, reference: str) -> None:
    """Load the rule of a run document from the code that this participant names."""
    code = user_code(_SETTING, reference)
    if code.digest().hex() != name.digest or code.name != name.function:
        raise ConfigurationError(
            f"{_SETTING} = {reference!r}: the run's rule is {name.label} with sha256 "
            f"{name.digest}, and this is {code.label} with {code.digest().hex()}"
        )
    _load(name, code)


def use_rules(parameters: Parameters, sources: Sequence[str]) -> frozenset[str]:
    """Load the own rule from an auditor's files or packages; return what may be computed."""
    name = OwnRuleName.of(parameters.distance)
    for source in sources:
        if name is None:
            raise ConfigurationError(f"--rules {source}: the run does not have its own rule")
        code = user_code("--rules", f"{source}:{name.function}")
        if code.digest().hex() != name.digest:
            raise ConfigurationError(
                f"--rules {source}: the run's distance is {name.label} with sha256 {name.digest}, "
                f"and this file has {code.digest().hex()}"
            )
        _load(name, code)
    return frozenset({parameters.distance} if sources else ())


def sources_of(parameters: Parameters, sources: Sequence[str]) -> tuple[str, ...]:
    """Return an operator's sources that have a run's rule; an unreadable one has none."""
    name = OwnRuleName.of(parameters.distance)
    if name is None:
        return ()
    found = []
    for source in sources:
        with suppress(ConfigurationError):
            if user_code("--rules", f"{source}:{name.function}").digest().hex() == name.digest:
                found.append(source)
    return tuple(found)


def require_source(source: str) -> None:
    """Refuse a source of rules that cannot be read, without running it."""
    user_code("--rules", f"{source}:rule").digest()


def try_rules(parameters: Parameters) -> None:
    """Call own rules on random arrays of a run's size, before anything is written."""
    name, rng = OwnRuleName.of(parameters.distance), np.random.default_rng(0)
    if name is None:
        return
    measure, subject = parameters.distance_rule.between, f"{_SETTING} = {name.label!r}"
    assert isinstance(measure, OwnDistance)
    update = rng.standard_normal(parameters.dimension)
    references = rng.standard_normal((3, parameters.dimension))
    for array in (update, references):
        array.flags.writeable = False
    together, again = (measure.all(update, references) for _ in range(2))
    if together.tobytes() != again.tobytes():
        raise ConfigurationError(f"{subject}: must return the same result for equal arguments")
    alone = [measure.all(update, reference[None])[0] for reference in references]
    if not np.allclose(together, alone, rtol=1e-9, atol=1e-9):
        raise ConfigurationError(f"{subject}: a distance must not depend on the other references")


def _load(name: OwnRuleName, code: UserCode) -> None:
    subject = f"{_SETTING} = {name.label!r}"
    function = code.load_function(_SETTING)

    def guarded(*arguments: Any) -> Any:
        with as_configuration_error(f"{subject}: it fails, or changes its input"):
            return function(*arguments)

    OWN_DISTANCES.setdefault(str(name), own_distance(name, guarded))
