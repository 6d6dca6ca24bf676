"""Arguments of wrong types: one sentence that names argument, value and rule."""

from __future__ import annotations

from functools import partial
from inspect import isfunction, signature
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import cmfl
from tests.cmfl.conftest import FACE
from tests.cmfl.own_parts import reversed_mean

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = FACE

NODE = {"rpc_url": "http://127.0.0.1:1", "address": "0x" + "1" * 40, "blobs": "."}


def compare(**arguments: Any) -> cmfl.Comparison:
    return cmfl.compare(**{"methods": ["krum"], "preset": "smoke", **arguments})


def sweep(**arguments: Any) -> cmfl.Comparison:
    return cmfl.sweep(**{"preset": "smoke", "over": {"strategy": [1]}, **arguments})


WRONG: list[tuple[Callable[..., Any], dict[str, Any]]] = [
    *(
        (cmfl.run, {name: value})
        for name, value in {
            "preset": 5,
            "home": 5,
            "name": 5,
            "model": 5,
            "data": 5,
            "attack": 5,
            "distance": 5,
            "scoring": 5,
            "resume": "yes",
            "progress": "yes",
            "settings": 5,
            "strategy": "x",
            "rounds": "x",
            "protocol": 5,
            "seed": "x",
        }.items()
    ),
    *(
        (compare, {name: value})
        for name, value in {
            "methods": "krum",
            "attacks": reversed_mean,
            "seeds": 1,
            "preset": 5,
            "model": 5,
            "data": 5,
            "over": [1],
            "recorded": 1,
            "out": 5,
            "jobs": "x",
            "progress": 5,
            "settings": 5,
            "strategy": "x",
            "protocol": 5,
            "attack": "alie",
        }.items()
    ),
    (compare, {"methods": 5}),
    (compare, {"methods": [5]}),
    (compare, {"methods": [{"name": 5}]}),
    (compare, {"methods": [{"name": "x", "rules": 5}]}),
    (compare, {"methods": [{"name": "x", "aggregator": 5}]}),
    (compare, {"methods": [{"name": "x", "settings": ["seed=1"]}]}),
    (compare, {"attacks": "alie"}),
    (compare, {"attacks": [5]}),
    (compare, {"attacks": [{"attack": "alie", "name": 5}]}),
    (compare, {"seeds": ["x"]}),
    (compare, {"seeds": [0.5]}),
    (compare, {"over": {"strategy": 3}}),
    (compare, {"over": {"strategy": [object()]}}),
    (compare, {"over": {"learning_rate": [float("nan")]}}),
    (compare, {"over": {5: [1]}}),
    (sweep, {"over": 5}),
    (sweep, {"preset": 5}),
    (sweep, {"seeds": 1}),
    (sweep, {"attack": 5}),
    *((cmfl.open, {name: 5}) for name in ("home", "rpc_url", "blobs", "address")),
    (cmfl.open, {"home": ".", "name": 5}),
    (cmfl.open, {**NODE, "chain_id": "x"}),
    *((cmfl.connect, {"url": url}) for url in (None, 5)),
    *(
        (cmfl.connect, {"url": NODE["rpc_url"], name: value})
        for name, value in {
            "name": 5,
            "address": 5,
            "chain_id": "x",
            "token": 5,
            "timeout_seconds": "x",
        }.items()
    ),
    (cmfl.runs, {"home": None}),
    *(
        (cmfl.audit, {"run": ".", name: value})
        for name, value in {
            "run": 5,
            "name": 5,
            "rpc_url": 5,
            "address": 5,
            "chain_id": "x",
            "blobs": 5,
            "head": 5,
            "strict": 5,
            "since": 5,
            "jobs": "x",
            "rules": 5,
            "witness_policy": 5,
            "checkpoints": "x",
            "checkpoint_max_age": "x",
            "progress": 5,
        }.items()
    ),
    *(
        (cmfl.verify, {"proof": "p.json", name: value})
        for name, value in {
            "proof": 5,
            "round": "x",
            "client": "x",
            "head": 5,
            "run": 5,
            "rpc_url": 5,
            "address": 5,
            "chain_id": "x",
        }.items()
    ),
    (cmfl.Proof, {"data": "text"}),
    *(
        (cmfl.verify_training, {"run": ".", name: value})
        for name, value in {
            "run": 5,
            "name": 5,
            "round": "x",
            "rounds": 5,
            "client": "x",
            "sample": "x",
            "seed": "x",
            "data": 5,
            "salts": 5,
            "poisoned": 5,
            "trained_here": 5,
            "mailbox": 5,
            "settings": 5,
            "rpc_url": 5,
            "address": 5,
            "chain_id": "x",
            "blobs": 5,
            "device": 5,
            "jobs": "x",
            "log": 5,
            "progress": 5,
        }.items()
    ),
    *(
        (cmfl.coverage, {"run": ".", name: value})
        for name, value in {
            "run": 5,
            "name": 5,
            "rounds": 5,
            "auditors": "0x12",
            "mailbox": 5,
            "rpc_url": 5,
            "address": 5,
            "chain_id": "x",
            "blobs": 5,
        }.items()
    ),
    (cmfl.audit, {"run": ".", "checkpoints": [5]}),
    (cmfl.coverage, {"run": ".", "rounds": ["x"]}),
    (cmfl.coverage, {"run": ".", "auditors": [5]}),
    (cmfl.verify_training, {"run": ".", "settings": [5]}),
    (cmfl.verify_training, {"run": ".", "rounds": ["x"]}),
    (cmfl.verify_training, {"run": ".", "client": ["x"]}),
]


def test_every_public_argument_is_tried() -> None:
    tried: dict[str, set[str]] = {}
    for function, arguments in WRONG:
        tried.setdefault(function.__name__, set()).update(arguments)
    for name in cmfl.__all__:
        function = getattr(cmfl, name)
        if isfunction(function):
            parameters = signature(function).parameters.values()
            named = {each.name for each in parameters if each.kind is not each.VAR_KEYWORD}
            assert named <= tried[name], name


@pytest.mark.parametrize(
    ("function", "arguments"),
    WRONG,
    ids=[f"{function.__name__}-{[*arguments][-1]}" for function, arguments in WRONG],
)
def test_a_wrong_type_is_one_sentence_that_names_the_argument(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    function: Callable[..., Any],
    arguments: dict[str, Any],
) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    with pytest.raises(cmfl.ConfigurationError) as refused:
        function(**arguments)
    sentence = str(refused.value)
    name = next(reversed(arguments))
    named = {name, name.rstrip("s"), *(map(str, _inner_names(arguments[name])))}
    assert any(word in sentence for word in named)
    assert "\n" not in sentence
    assert not [*tmp_path.glob("here/*"), *tmp_path.glob("cmfl-*/*/*")]


def _inner_names(value: object) -> list[object]:
    tables = value if isinstance(value, list) else [value]
    return [key for table in tables if isinstance(table, dict) for key in table]


def test_wrong_types_are_refused_by_a_run_too(run: cmfl.Run, tmp_path: Path) -> None:
    rounds: Any = run.rounds
    with pytest.raises(TypeError, match="rounds are looked up by their numbers"):
        rounds["x"]
    assert rounds[np.int64(2)].round == 2
    calls: list[Callable[[Any], object]] = [run.rounds[1].prove, run.save, run.plot]
    for call in calls:
        with pytest.raises(cmfl.ConfigurationError, match=r"= 1\.5: must be a"):
            call(1.5)
    with pytest.raises(cmfl.ConfigurationError, match="axes = 5: must be axes of matplotlib"):
        run.plot(axes=5)  # type: ignore[arg-type]
    with pytest.raises(cmfl.ConfigurationError, match="no column 5"):
        run.rounds.rows().column(5)  # type: ignore[arg-type]


def _called(function: Callable[..., Any], **arguments: object) -> Callable[..., Any]:
    return partial(function, **arguments)


@pytest.mark.parametrize("home", ["h" * 300, "h\0"])
def test_a_home_that_cannot_be_is_refused_everywhere(run: cmfl.Run, home: str) -> None:
    calls: list[Callable[[str], object]] = [cmfl.open, cmfl.runs, cmfl.audit, run.save]
    for call in calls:
        with pytest.raises(cmfl.ConfigurationError):
            call(home)


@pytest.mark.parametrize(
    ("function", "arguments"),
    [
        (cmfl.rules.squared, ("x", [[1.0]])),
        (cmfl.rules.squared, (None, [[1.0]])),
        (cmfl.rules.direction, ([[1.0]], [[1.0]], 5)),
        (cmfl.rules.mean, ("x",)),
        (cmfl.rules.nearest, ("x", 1)),
        (cmfl.rules.nearest, ([1.0, 2.0], "x")),
        (cmfl.rules.within, ([1.0, 2.0], "x")),
        (cmfl.aggregators.median, ("x",)),
        (cmfl.aggregators.median, (None,)),
        (cmfl.aggregators.krum, ([[1.0]], "x")),
        (cmfl.aggregators.fedavg, ([[1.0]], "x")),
        (cmfl.aggregators.aggregate, (5, [[1.0]])),
        (cmfl.aggregators.aggregate, ("Median", [[1.0]], 5)),
        (cmfl.aggregators.centered_clipping, ([[1.0]], "x")),
        (_called(cmfl.aggregators.median, pre=5), ([[1.0]],)),
        (_called(cmfl.aggregators.centered_clipping, last="x"), ([[1.0]], 1.0)),
        (_called(cmfl.aggregators.geometric_median, nu=None), ([[1.0]],)),
        (_called(cmfl.rules.accept, strategy="x"), ([[1.0]], [[1.0]])),
        (_called(cmfl.rules.accept, accepted="x", strategy=1), ([[1.0]], [[1.0]])),
        (_called(cmfl.rules.accept, distance=[]), ([[1.0]], [[1.0]])),
        (_called(cmfl.rules.accept, distance=[], strategy=1), ([[1.0]], [[1.0]])),
    ],
)
def test_what_is_no_array_or_number_is_a_value_error(
    function: Callable[..., Any], arguments: tuple[Any, ...]
) -> None:
    with pytest.raises((ValueError, cmfl.ConfigurationError)):
        function(*arguments)
