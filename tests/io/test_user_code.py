"""Code of a user's own: references, own rules of a run, and extras that it lacks."""

from __future__ import annotations

import json
import linecache
import shlex
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from ledger.io.extras import NAME, install_command, require_extra
from ledger.io.user_code import (
    code_reference,
    own_rule,
    package_of,
    try_rules,
    use_rule,
    use_rules,
    user_code,
)
from ledger.protocol.errors import ConfigurationError
from ledger.protocol.parameters import Parameters
from ledger.protocol.rules.distance import OwnRuleName
from tests.packaging.metadata import extra, names, project

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
    text = SCRIPT.replace('raise SystemExit("', '("')
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
    with pytest.raises(ConfigurationError, match="uses 'TABLE', which is not a module"):
        code_reference(script["torn"], tmp_path)
    for value in (lambda x: x, len, 3, _closure()):
        with pytest.raises(ConfigurationError, match="at the top of a module"):
            code_reference(value, tmp_path)
    exec("def unknown(): pass", script)
    with pytest.raises(ConfigurationError, match="unknown source"):
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
    with pytest.raises(ConfigurationError, match="not in an installed package"):
        user_code("here", "tests.io:x").digest()


def test_a_package_installed_later_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ConfigurationError, match=r"late\.module is not in an installed package"):
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
    with pytest.raises(ConfigurationError, match="is not a function defined there"):
        user_code("--rules", "_pytest.monkeypatch:contextmanager").load_function("--rules")


PLAIN = Parameters(
    clients=12,
    active_ppm=1_000_000,
    committee_ppm=400_000,
    aggregation_ppm=500_000,
    rounds=1,
    dimension=4,
)
RULE = """
import numpy as np
from math import fsum

calls = 0

def far(update, references):
    return np.abs(references - update).sum(axis=1)

def most(update, references):
    return np.abs(references - update).max(axis=1)
"""


def written(folder: Path, text: str = RULE, name: str = "rule.py") -> Path:
    path = folder / name
    path.write_text(text, "utf-8")
    return path


def parameters(path: Path) -> Parameters:
    distance = own_rule(f"{path}:far")
    assert distance is not None
    return replace(PLAIN, distance=distance)


def test_a_rule_is_named_by_file_function_and_digest(tmp_path: Path) -> None:
    path = written(tmp_path)
    name = OwnRuleName.of(parameters(path).distance)
    assert name is not None
    assert name.label == "rule.py:far"
    assert own_rule("nothing") is None
    with pytest.raises(ConfigurationError, match="at most 100 "):
        own_rule(f"{written(tmp_path, name='my rule.py')}:far")


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("return references[:, 0]", "at least 0 and finite"),
        ("return np.zeros(len(references) + 1)", r"returns float64 of shape \(4,\)"),
        ("raise KeyError('x')", "it fails, or changes its input: KeyError: 'x'"),
        ("update[0] = 0", "it fails, or changes its input: ValueError: assign"),
        ("return np.random.rand(len(references))", "must return the same result"),
        ("d = ((references - update) ** 2).sum(1); return d / d.max()", "other references"),
    ],
)
def test_a_rule_that_breaks_its_form_is_refused(tmp_path: Path, body: str, message: str) -> None:
    text = f"{RULE}\ndef far(update, references):\n    {body}\n"
    with pytest.raises(ConfigurationError, match=f"rule.py:far.*{message}"):
        try_rules(parameters(written(tmp_path, text)))


def test_a_participant_names_its_own_copy(tmp_path: Path) -> None:
    path = written(tmp_path)
    name = OwnRuleName.of(parameters(path).distance)
    assert name is not None
    use_rule(name, f"{written(tmp_path, name='copy.py')}:far")
    other = written(tmp_path, RULE + "# more\n", "other.py")
    with pytest.raises(ConfigurationError, match=f"sha256 {name.digest}, and this is other.py:far"):
        use_rule(name, f"{other}:far")
    with pytest.raises(ConfigurationError, match=r"and this is rule\.py:most"):
        use_rule(name, f"{path}:most")


def test_an_auditor_runs_only_what_it_names(tmp_path: Path) -> None:
    path = written(tmp_path)
    named = parameters(path)
    assert use_rules(named, ()) == frozenset()
    assert use_rules(named, (str(path),)) == {named.distance}
    other = written(tmp_path, RULE + "raise SystemExit\n", "other.py")
    with pytest.raises(ConfigurationError, match=r"other\.py: the run's distance is rule"):
        use_rules(named, (str(path), str(other)))
    with pytest.raises(ConfigurationError, match="the run does not have its own rule"):
        use_rules(PLAIN, (str(path),))


def test_a_document_cannot_pick_what_a_file_has_imported(tmp_path: Path) -> None:
    path = written(tmp_path)
    own = OwnRuleName.of(parameters(path).distance)
    assert own is not None
    for function in ("fsum", "np", "calls"):
        name = OwnRuleName(f"rule.py:{function}", function, own.digest)
        picked = replace(PLAIN, distance=str(name))
        with pytest.raises(ConfigurationError, match="is not a function defined there"):
            use_rules(picked, (str(path),))


EDITABLE = {"dir_info": {"editable": True}}


def command_beside(
    monkeypatch: pytest.MonkeyPatch, folder: Path, name: str, origin: dict[str, object] | None
) -> list[str]:
    """Return the words of the command where pip has noted this origin (PEP 610)."""
    about = folder / "site" / "cmfl_ledger-0.1.0.dist-info"
    about.mkdir(parents=True)
    lines = ["Metadata-Version: 2.4", f"Name: {NAME}", f"Version: {project()['version']}"]
    for one, requirements in project()["optional-dependencies"].items():
        lines.append(f"Provides-Extra: {one}")
        lines += [f'Requires-Dist: {each}; extra == "{one}"' for each in requirements]
    (about / "METADATA").write_text("\n".join([*lines, ""]), "utf-8")
    if origin is not None:
        (about / "direct_url.json").write_text(json.dumps(origin), "utf-8")
    monkeypatch.setattr(sys, "path", [str(folder / "site"), str(folder)])
    return shlex.split(install_command(name))


@pytest.mark.parametrize(("noted", "option"), [(EDITABLE, ["-e"]), ({"dir_info": {}}, [])])
def test_a_checkout_is_installed_again_with_the_extra(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, noted: dict[str, object], option: list[str]
) -> None:
    checkout = tmp_path / "a checkout"
    checkout.mkdir()
    words = command_beside(monkeypatch, tmp_path, "plots", {"url": checkout.as_uri(), **noted})
    assert words == ["pip", "install", *option, f"{checkout}[plots]"]


def test_other_installations_get_the_missing_packages(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A wheel that is gone, or an index: no index that we name has the package."""
    gone: dict[str, object] = {"url": (tmp_path / "gone.whl").as_uri(), "archive_info": {}}
    words = command_beside(monkeypatch, tmp_path / "gone", "clients", gone)
    assert sorted(words[2:]) == requirements_of("clients")
    rich = tmp_path / "rich-14.0.dist-info"
    rich.mkdir()
    (rich / "METADATA").write_text("Metadata-Version: 2.1\nName: rich\nVersion: 14.0\n", "utf-8")
    lacking = command_beside(monkeypatch, tmp_path, "clients", None)[2:]
    assert sorted(lacking) == [one for one in requirements_of("clients") if "rich" not in one]


def requirements_of(name: str) -> list[str]:
    """Return what an extra needs, as the project's metadata state it, with inner extras."""
    wanted = names(extra(name))
    every = {one for lines in project()["optional-dependencies"].values() for one in lines}
    return sorted(one for one in every if names_of(one) in wanted)


def names_of(requirement: str) -> str:
    return requirement.partition(">=")[0].partition("[")[0].replace("_", "-")


def test_only_a_missing_extra_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    require_extra("plots", "figures need")
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ConfigurationError, match=r"figures need the extra \[plots\]: pip install"):
        require_extra("plots", "figures need")
