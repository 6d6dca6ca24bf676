"""Own distances: loaded from files or packages that a participant or auditor names.

A run document names a rule by label and digest. No code is run because a document names it: only
what the caller names is loaded, and only if its digest is the document's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np

from ledger.io.user_code import UserCode, as_configuration_error, named_code, user_code
from ledger.protocol.errors import ConfigurationError
from ledger.protocol.parameters import Parameters
from ledger.protocol.rules.own import OWN_DISTANCES, OwnDistance, OwnRuleName, own_distance

RuleKind = Literal["distance"]
KINDS: tuple[RuleKind, ...] = ("distance",)
GROUPS = {"distance": "cmfl.distances"}
"""Entry points of packages that offer rules."""
_TRIAL_REFERENCES = 3
_TRIAL_MARGIN = 1e-9


def own_rules_of(parameters: Parameters) -> dict[RuleKind, OwnRuleName]:
    """Return the own rules that parameters name, by kind."""
    names = {kind: OwnRuleName.of(getattr(parameters, kind)) for kind in KINDS}
    return {kind: name for kind, name in names.items() if name is not None}


def own_rule(kind: RuleKind, reference: str) -> str | None:
    """Load the function that a setting names, and return the rule's name in parameters.

    Args:
        reference: `file.py:name`, `package:name`, or a plain name that a package offers.

    Returns:
        None if no package offers the plain name.
    """
    code = named_code(f"protocol.{kind}", GROUPS[kind], reference)
    if code is None:
        return None
    name = OwnRuleName(code.label, code.name, code.digest().hex())
    if OwnRuleName.of(str(name)) is None:
        raise ConfigurationError(
            f"protocol.{kind} = {code.label!r}: the name of a rule's file must be up to 100 "
            f"letters, digits and . _ + -"
        )
    _load(kind, name, code)
    return str(name)


def use_rule(kind: RuleKind, name: OwnRuleName, reference: str) -> None:
    """Load the rule of a run document from the code that this participant names."""
    code = user_code(f"protocol.{kind}", reference)
    if code.digest().hex() != name.digest or code.name != name.function:
        raise ConfigurationError(
            f"protocol.{kind} = {reference!r}: the run's rule is {name.label} with sha256 "
            f"{name.digest}, and this is {code.label} with {code.digest().hex()}"
        )
    _load(kind, name, code)


def use_rules(parameters: Parameters, sources: Sequence[str]) -> frozenset[str]:
    """Load the own rules of parameters from the files or packages that an auditor names.

    Args:
        sources: paths of files, or names of packages; none loads nothing.

    Returns:
        The names of the rules that may be computed.
    """
    wanted, loaded = own_rules_of(parameters), set()
    for source in sources:
        if not wanted:
            raise ConfigurationError(f"--rules {source}: the run has no rule of its owner's own")
        codes = {
            kind: user_code("--rules", f"{source}:{name.function}") for kind, name in wanted.items()
        }
        for kind, code in codes.items():
            if code.digest().hex() == wanted[kind].digest:
                _load(kind, wanted[kind], code)
                loaded.add(str(wanted[kind]))
        if not any(codes[kind].digest().hex() == name.digest for kind, name in wanted.items()):
            kind, name = next(iter(wanted.items()))
            raise ConfigurationError(
                f"--rules {source}: the run's {kind} is {name.label} with sha256 {name.digest}, "
                f"and this file has {codes[kind].digest().hex()}"
            )
    return frozenset(loaded)


def sources_of(parameters: Parameters, sources: Sequence[str]) -> tuple[str, ...]:
    """Return those of an operator's sources that have a rule of a run; others are of other runs.

    Args:
        sources: paths of files, or names of packages; one that cannot be read has no rule.
    """
    return tuple(
        source
        for source in sources
        if any(_has_rule(source, name) for name in own_rules_of(parameters).values())
    )


def _has_rule(source: str, name: OwnRuleName) -> bool:
    try:
        return user_code("--rules", f"{source}:{name.function}").digest().hex() == name.digest
    except ConfigurationError:
        return False


def require_source(source: str) -> None:
    """Refuse a source of rules that cannot be read, without running it."""
    user_code("--rules", f"{source}:rule").digest()


def try_rules(parameters: Parameters) -> None:
    """Call own rules on random arrays of a run's size, before anything is written."""
    name, rng = own_rules_of(parameters).get("distance"), np.random.default_rng(0)
    if name is None:
        return
    measure, subject = parameters.distance_rule.between, f"protocol.distance = {name.label!r}"
    assert isinstance(measure, OwnDistance)
    update = rng.standard_normal(parameters.dimension)
    references = rng.standard_normal((_TRIAL_REFERENCES, parameters.dimension))
    for array in (update, references):
        array.flags.writeable = False
    together, again = (measure.all(update, references) for _ in range(2))
    if together.tobytes() != again.tobytes():
        raise ConfigurationError(
            f"{subject}: is not the same twice; must follow from its arguments alone"
        )
    alone = [measure.all(update, reference[None])[0] for reference in references]
    if not np.allclose(together, alone, rtol=_TRIAL_MARGIN, atol=_TRIAL_MARGIN):
        raise ConfigurationError(
            f"{subject}: a distance depends on the other references; must depend on the update "
            f"and its own reference alone"
        )


def _load(kind: RuleKind, name: OwnRuleName, code: UserCode) -> None:
    function = _guarded(f"protocol.{kind} = {name.label!r}", code.load_function(f"protocol.{kind}"))
    OWN_DISTANCES.setdefault(str(name), own_distance(name, function))


def _guarded(subject: str, function: Callable[..., Any]) -> Callable[..., Any]:
    def call(*arguments: Any) -> Any:
        with as_configuration_error(f"{subject}: it fails, or changes its input"):
            return function(*arguments)

    return call
