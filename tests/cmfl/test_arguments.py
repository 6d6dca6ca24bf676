"""Arguments of wrong types: one sentence that names argument, value and rule."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from inspect import isfunction, signature
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cmfl
from cmfl.keywords import RunKeywords
from tests.cmfl.conftest import FACE

pytestmark = FACE
call_of: Any = partial

NODE = {"rpc_url": "http://127.0.0.1:1", "address": "0x" + "1" * 40, "blobs": "."}
VALID: dict[str, dict[str, Any]] = {
    "run": {},
    "compare": {"methods": ["krum"], "preset": "smoke"},
    "sweep": {"preset": "smoke", "over": {"strategy": [1]}},
    "open": {"home": "."},
    "connect": {"url": NODE["rpc_url"]},
    "runs": {},
    "audit": {"run": "."},
    "verify": {"proof": "p.json"},
    "verify_training": {"run": "."},
    "coverage": {"run": "."},
}
"""What each function takes beside the argument that is wrong."""

SETTINGS = {"strategy": "x", "rounds": "x", "protocol": 5, "seed": "x"}
INNER: list[tuple[str, dict[str, Any]]] = [
    *(("run", {name: value}) for name, value in SETTINGS.items()),
    ("compare", {"methods": [{"name": "x", "settings": ["seed=1"]}]}),
    ("compare", {"attacks": [{"attack": "alie", "name": 5}]}),
    ("compare", {"seeds": [0.5]}),
    ("compare", {"over": {"strategy": [object()]}}),
    ("compare", {"over": {"learning_rate": [float("nan")]}}),
    ("compare", {"over": {5: [1]}}),
    ("open", {**NODE, "chain_id": "x"}),
    ("audit", {"checkpoints": [5]}),
    *(("coverage", {"rounds": rounds}) for rounds in (["x"], 5)),
    ("coverage", {"auditors": [5]}),
    ("verify_training", {"client": ["x"]}),
]


def wrong() -> list[tuple[str, dict[str, Any]]]:
    """Return an object of no type for each argument of each public function, and inner values."""
    functions = [name for name in cmfl.__all__ if isfunction(getattr(cmfl, name))]
    return [
        (name, {each.name: object()})
        for name in functions
        for each in signature(getattr(cmfl, name)).parameters.values()
        if each.kind is not each.VAR_KEYWORD
        and (name == "run" or each.name not in RunKeywords.__annotations__)  # all read them alike
    ] + INNER


@pytest.mark.parametrize(("function", "arguments"), wrong())
def test_a_wrong_type_is_one_sentence_that_names_the_argument(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, function: str, arguments: dict[str, Any]
) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    with pytest.raises(cmfl.ConfigurationError) as refused:
        getattr(cmfl, function)(**{**VALID[function], **arguments})
    sentence = str(refused.value)
    name, value = list(arguments.items())[-1]
    tables = value if isinstance(value, list) else [value]
    inner = [str(key) for table in tables if isinstance(table, dict) for key in table]
    assert any(word in sentence for word in (name, name.rstrip("s"), *inner))
    assert "\n" not in sentence
    assert not [*tmp_path.glob("here/*"), *tmp_path.glob("cmfl-*/*/*")]


def test_wrong_types_are_refused_by_a_run_too(run: cmfl.Run) -> None:
    rounds: Any = run.rounds
    with pytest.raises(TypeError, match="a round must be given by its number"):
        rounds["x"]
    assert rounds[np.int64(2)].round == 2
    calls: list[Callable[[Any], object]] = [run.rounds[1].prove, run.save, run.plot]
    for call in calls:
        with pytest.raises(cmfl.ConfigurationError, match=r"= 1\.5: must be a"):
            call(1.5)


@pytest.mark.parametrize("home", ["h" * 300, "h\0"])
def test_a_home_that_cannot_be_is_refused_everywhere(run: cmfl.Run, home: str) -> None:
    calls: list[Callable[..., object]] = [cmfl.open, cmfl.runs, cmfl.audit, run.save]
    calls.append(lambda name: cmfl.run("smoke", home=name))
    for call in calls:
        with pytest.raises(cmfl.ConfigurationError):
            call(home)


@pytest.mark.parametrize(
    "call",
    [
        call_of(cmfl.rules.squared, "x", [[1.0]]),
        call_of(cmfl.rules.direction, [[1.0]], [[1.0]], 5),
        call_of(cmfl.rules.nearest, [1.0, 2.0], "x"),
        call_of(cmfl.rules.accept, [[1.0]], [[1.0]], accepted="x", strategy=1),
        call_of(cmfl.rules.accept, [[1.0]], [[1.0]], distance=[], strategy=1),
        call_of(cmfl.aggregators.krum, [[1.0]], "x"),
        call_of(cmfl.aggregators.aggregate, 5, [[1.0]]),
        call_of(cmfl.aggregators.median, [[1.0]], pre=5),
        call_of(cmfl.aggregators.centered_clipping, [[1.0]], 1.0, last="x"),
    ],
)
def test_what_is_no_array_or_number_is_a_value_error(call: Callable[[], object]) -> None:
    with pytest.raises((ValueError, cmfl.ConfigurationError)):
        call()
