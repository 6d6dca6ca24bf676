"""Check that the modules `ledger`, `clients`, `api` and `contracts` are this project's.

The names are common. A folder `api` in a working directory hides ours, and the package `clients` of
PyPI overwrites ours without a word. Each of our packages says in its `__init__.py` that it is of
`cmfl-ledger`; nothing is imported to see it, and nothing but `os` and `sys` here.
"""

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

MODULES = ("ledger", "clients", "api", "contracts")
MARK = b'__distribution__ = "cmfl-ledger"'
"""The line by which a package's `__init__.py` says that it is ours."""

WRONG = 2  # exit code of the command, which must not be 1: that is a verdict
_MOST_BYTES = 1 << 16
_REINSTALL = "pip install --force-reinstall --no-deps CHECKOUT_OR_WHEEL"


def require_own_modules() -> None:
    """Refuse to go on if a foreign module has one of our names."""
    for name in MODULES:
        path = _path_of(name)
        if path is None:
            _refuse(f"the package {name!r} of cmfl-ledger is missing: {_REINSTALL}")
        elif not _is_marked(path):
            _refuse(_explained(name, path))


def _path_of(name: str) -> str | None:
    if name in sys.modules:
        return getattr(sys.modules[name], "__file__", None) or "a module without a file"
    for finder in sys.meta_path:
        find = getattr(finder, "find_spec", None)
        spec = None if find is None else find(name, None)
        if spec is not None:
            folders = spec.submodule_search_locations or ["a module without a file"]
            return str(spec.origin or next(iter(folders)))
    return None


def _is_marked(path: str) -> bool:
    try:
        with open(path, "rb") as file:  # noqa: PTH123 - pathlib would be imported for it
            return MARK in file.read(_MOST_BYTES)
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError, PermissionError):
        return False
    except OSError:  # the machine lacks something, which the command explains later
        return True


def _explained(name: str, path: str) -> str:
    ours = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH100, PTH120
    sentence = f"the module {name!r} at {path} is not cmfl-ledger's"
    if os.path.abspath(path).startswith(os.path.join(ours, name) + os.sep):  # noqa: PTH100, PTH118
        return (
            f"{sentence}: another package has overwritten it; uninstall that package (pip "
            f"uninstall {name}), then {_REINSTALL}"
        )
    return (
        f"{sentence}, and hides it: rename it, or start Python in another folder and without it "
        f"on the path (sys.path, PYTHONPATH)"
    )


def _refuse(sentence: str) -> "NoReturn":
    """End the command `cmfl` or `python -m cmfl` with one line, or fail the import."""
    program = next(iter(getattr(sys, "argv", [])), "")
    is_command = os.path.splitext(os.path.basename(program))[0] == "cmfl"  # noqa: PTH119, PTH122
    if program == "-m":  # while Python looks for the module
        is_command = any(word.partition(".")[0] == "cmfl" for word in sys.orig_argv)
    if is_command:
        sys.stderr.write(f"cmfl: {sentence}\n")
        raise SystemExit(WRONG)
    raise ImportError(f"cmfl: {sentence}")
