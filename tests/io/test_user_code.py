"""Code of a user's own: references to it, what it may be, and files made of live objects."""

from __future__ import annotations

import linecache
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest

from ledger.io.user_code import code_reference, package_of, user_code
from ledger.protocol.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SCRIPT = """
import math
import numpy as np
from collections import Counter

SCALE = 2.5
TABLE = object()

def helper(x):
    return SCALE * x

def mine(x, y):
    return np.sqrt(helper(x)) + math.pi * len(Counter(y))

@staticmethod
class Held:
    size = 3
    def double(self):
        return self.size * helper(2)

def torn(x):
    return TABLE

def shadowing(TABLE):
    return other_name(TABLE)

def even(x):
    return x == 0 or odd(x - 1)

def odd(x):
    return x != 0 and even(x - 1)

other_name = even

if SCALE:
    def indented():
        return 7

raise SystemExit("a script must not be run again")
"""


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """A notebook's `__main__`: its definitions are made, and its text is known to Python."""
    main = ModuleType("__main__")
    name = "<cell 1>"
    text = SCRIPT.replace("@staticmethod\n", "").replace('raise SystemExit("', '("')
    linecache.cache[name] = (len(SCRIPT), None, SCRIPT.splitlines(keepends=True), name)
    monkeypatch.setitem(sys.modules, "__main__", main)
    exec(compile(text, name, "exec"), main.__dict__)
    yield main.__dict__
    del linecache.cache[name]


def test_what_a_script_defines_is_written_with_what_it_uses(
    tmp_path: Path, script: dict[str, Any]
) -> None:
    reference = code_reference(script["mine"], tmp_path)
    assert reference == code_reference(script["mine"], tmp_path)
    code = user_code("here", reference)
    assert code.load_function("here")(1.0, "ab") == script["mine"](1.0, "ab")
    (file,) = tmp_path.iterdir()
    assert file.name.startswith("mine-")
    assert "SystemExit" not in file.read_text("utf-8")


def test_arguments_hide_what_the_script_has_and_functions_may_call_each_other(
    tmp_path: Path, script: dict[str, Any]
) -> None:
    code = user_code("here", code_reference(script["shadowing"], tmp_path))
    assert [code.load_function("here")(number) for number in (3, 4)] == [False, True]
    code = user_code("here", code_reference(script["indented"], tmp_path))
    assert code.load_function("here")() == 7


def test_what_no_file_can_hold_is_refused(tmp_path: Path, script: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match="uses 'TABLE', which is no module"):
        code_reference(script["torn"], tmp_path)
    for value in (lambda x: x, len, 3, _closure()):
        with pytest.raises(ConfigurationError, match="with a name at the top of a module"):
            code_reference(value, tmp_path)
    exec("def unknown(): pass", script)
    with pytest.raises(ConfigurationError, match="its source is not known"):
        code_reference(script["unknown"], tmp_path)
    assert not [*tmp_path.iterdir()]


def _closure() -> Any:
    def inner() -> None:
        """Stand below another function."""

    return inner


def test_a_package_is_bound_by_its_version() -> None:
    code = user_code("here", "numpy.linalg:norm")
    assert code.recorded()["package"].startswith("numpy==")
    assert len(code.digest()) == 32
    with pytest.raises(ConfigurationError, match="no installed package"):
        user_code("here", "tests.io:x").digest()


def test_a_package_installed_later_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ConfigurationError, match=r"late\.module belongs to no installed package"):
        package_of("late.module")
    about = tmp_path / "late-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: late\nVersion: 1.0\n")
    (about / "top_level.txt").write_text("late\n")
    assert package_of("late.module") == ("late", "1.0")


@pytest.mark.parametrize("reference", ["mine.py:", ":mine", "a b:mine", "mine.py:a.b", "\0.py:f"])
def test_a_malformed_reference_is_refused(reference: str) -> None:
    with pytest.raises(ConfigurationError, match=r"must be file\.py:function or"):
        user_code("here", reference)


def test_a_module_that_fails_when_it_is_asked_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "own.py"
    path.write_text("def __getattr__(name):\n    raise SystemExit(1)\n", "utf-8")
    with pytest.raises(ConfigurationError, match=r"own.py: mine: SystemExit: 1"):
        user_code("malice.attack", f"{path}:mine").load_function("malice.attack")


def test_an_error_that_cannot_be_printed_is_named(tmp_path: Path) -> None:
    path = tmp_path / "own.py"
    text = "class E(Exception):\n    def __str__(self):\n        raise SystemExit\nraise E()\n"
    path.write_text(text, "utf-8")
    with pytest.raises(ConfigurationError, match=r"cannot be loaded: E "):
        user_code("malice.attack", f"{path}:mine").load("function")


def test_a_function_that_a_package_imports_is_refused() -> None:
    assert callable(user_code("--rules", "_pytest.monkeypatch:resolve").load_function("--rules"))
    with pytest.raises(ConfigurationError, match="is no function that is defined there"):
        user_code("--rules", "_pytest.monkeypatch:contextmanager").load_function("--rules")
