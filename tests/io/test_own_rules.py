"""Own rules come from files that somebody names, with the digest that the document has."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from ledger.io.own_rules import own_rule, own_rules_of, try_rules, use_rule, use_rules
from ledger.protocol.errors import ConfigurationError
from ledger.protocol.parameters import Parameters
from ledger.protocol.rules.own import OwnRuleName

if TYPE_CHECKING:
    from pathlib import Path

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
    distance = own_rule("distance", f"{path}:far")
    assert distance is not None
    return replace(PLAIN, distance=distance)


def test_a_rule_is_named_by_file_function_and_digest(tmp_path: Path) -> None:
    path = written(tmp_path)
    own = own_rules_of(parameters(path))
    assert [name.label for name in own.values()] == ["rule.py:far"]
    assert own_rules_of(PLAIN) == {}
    assert own_rule("distance", "nothing") is None
    with pytest.raises(ConfigurationError, match="must be up to 100 "):
        own_rule("distance", f"{written(tmp_path, name='my rule.py')}:far")


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("return references[:, 0]", "at least 0 and finite"),
        ("return np.zeros(len(references) + 1)", r"returns float64 of shape \(4,\)"),
        ("raise KeyError('x')", "it fails, or changes its input: KeyError: 'x'"),
        ("update[0] = 0", "it fails, or changes its input: ValueError: assign"),
        ("return np.random.rand(len(references))", "is not the same twice"),
        ("d = ((references - update) ** 2).sum(1); return d / d.max()", "other references"),
    ],
)
def test_a_rule_that_breaks_its_form_is_refused(tmp_path: Path, body: str, message: str) -> None:
    text = f"{RULE}\ndef far(update, references):\n    {body}\n"
    with pytest.raises(ConfigurationError, match=f"rule.py:far.*{message}"):
        try_rules(parameters(written(tmp_path, text)))


def test_a_participant_names_its_own_copy(tmp_path: Path) -> None:
    path = written(tmp_path)
    name = own_rules_of(parameters(path))["distance"]
    use_rule("distance", name, f"{written(tmp_path, name='copy.py')}:far")
    other = written(tmp_path, RULE + "# more\n", "other.py")
    with pytest.raises(ConfigurationError, match=f"sha256 {name.digest}, and this is other.py:far"):
        use_rule("distance", name, f"{other}:far")
    with pytest.raises(ConfigurationError, match=r"and this is rule\.py:most"):
        use_rule("distance", name, f"{path}:most")


def test_an_auditor_runs_only_what_it_names(tmp_path: Path) -> None:
    path = written(tmp_path)
    named = parameters(path)
    assert use_rules(named, ()) == frozenset()
    assert use_rules(named, (str(path),)) == {named.distance}
    other = written(tmp_path, RULE + "raise SystemExit\n", "other.py")
    with pytest.raises(ConfigurationError, match=r"other\.py: the run's distance is rule"):
        use_rules(named, (str(path), str(other)))
    with pytest.raises(ConfigurationError, match="the run has no rule of its owner's own"):
        use_rules(PLAIN, (str(path),))


def test_a_document_cannot_pick_what_a_file_has_imported(tmp_path: Path) -> None:
    path = written(tmp_path)
    own = own_rules_of(parameters(path))["distance"]
    for function in ("fsum", "np", "calls"):
        name = OwnRuleName(f"rule.py:{function}", function, own.digest)
        picked = replace(PLAIN, distance=str(name))
        with pytest.raises(ConfigurationError, match="is no function that is defined there"):
            use_rules(picked, (str(path),))
