"""Checks of a definition beyond the types of its values: unique and known names.

A learning rate is never chosen on the seeds that it is judged by, so that a seed of the one kind is
refused among the others.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from clients.experiments.definition import ANY, Tuning
from ledger.protocol.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from clients.experiments.definition import Definition, Method


def require_consistent(definition: Definition, name: str) -> None:
    """Refuse repeated or unknown names, and seeds that are used both for tuning and for reports.

    Args:
        definition: of an experiment.
        name: of it.

    Raises:
        ConfigurationError: names the first of them.
    """
    methods = [method.name for method in definition.methods]
    conditions = [condition.name for condition in definition.conditions]
    axes = {axis.name: [point.label for point in axis.values] for axis in definition.axes}
    pairs = [*definition.exclude, *definition.only]
    tuning, quick = definition.tuning or Tuning(), definition.quick
    once: tuple[tuple[str, Iterable[object]], ...] = (
        ("method", methods),
        ("condition", conditions),
        ("axis", [axis.name for axis in definition.axes]),
        *((f"label of axis {axis!r}", labels) for axis, labels in axes.items()),
        ("seed", definition.seeds),
        ("seed of quick", quick.seeds or ()),
        ("seed of tuning", tuning.seeds),
        ("rate of tuning", tuning.rates),
    )
    for what, names in once:
        _require_once(name, what, names)
    for what, used, allowed in (
        ("method", [pair[0] for pair in pairs], [*methods, ANY]),
        ("condition", [pair[1] for pair in pairs], [*conditions, ANY]),
        ("method of quick", quick.methods or [], methods),
        ("condition of quick", quick.conditions or [], conditions),
        ("condition of tuning", [tuning.condition] if tuning.condition else [], conditions),
        ("axis of tuning", tuning.axes, axes),
        ("axis of quick", quick.axes, axes),
    ):
        _require_known(name, what, used, allowed)
    for axis, labels in axes.items():
        _require_known(name, f"label of {axis!r}", [tuning.axes.get(axis, labels[0])], labels)
        _require_known(name, f"label of {axis!r}", quick.axes.get(axis, labels), labels)
    for method in definition.methods:
        _require_its_own(name, method)
    if definition.tuning is not None:
        _require_unreported(name, tuning, [*definition.seeds, *(quick.seeds or [])])


def _require_once(name: str, what: str, given: Iterable[object]) -> None:
    times = Counter(given)
    twice = next((repeated for repeated, count in times.items() if count > 1), None)
    if twice is not None:
        raise ConfigurationError(f"experiment {name}: {what} {twice!r} is repeated")


def _require_known(name: str, what: str, used: Iterable[str], known: Iterable[str]) -> None:
    unknown = next((used_name for used_name in used if used_name not in known), None)
    if unknown is not None:
        listed = ", ".join(known)
        raise ConfigurationError(
            f"experiment {name}: unknown {what} {unknown!r}; known are {listed}"
        )


def _require_its_own(name: str, method: Method) -> None:
    """Refuse a setting that a method of its kind does not look at."""
    allowed = {
        "cmfl": {"rules"},
        "theorem": {"rules", "options"},
        "federated": {"aggregator", "options", "pre", "participants"},
    }
    set_fields = {"rules", "aggregator", "options", "pre", "participants"} & method.model_fields_set
    unused = sorted(set_fields - allowed.get(method.kind, {"options"}))
    if unused:
        raise ConfigurationError(
            f"experiment {name}: method {method.name!r} is of kind {method.kind}, which takes no "
            f"{unused[0]}"
        )


def _require_unreported(name: str, tuning: Tuning, reported: Iterable[int]) -> None:
    both = sorted(set(tuning.seeds).intersection(reported))
    if both:
        raise ConfigurationError(
            f"experiment {name}: learning rates are tuned on seed {both[0]}, which is reported "
            f"too: a rate is never chosen on the seeds that it is judged by"
        )
