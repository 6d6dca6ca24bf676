"""The end of a run before its last round, by what is measured of its models.

The rule is in the run document, and so on the chain; the measured values are claims of the run's
own files (`ledger.claims`). Whoever has both can repeat the decision: it is a function of the rows,
so that a run which has stopped stays stopped when it is resumed.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from ledger.claims import ClaimedRound, claimed_rounds, recorded_settings
from ledger.io.home import RunPaths
from ledger.protocol.errors import EncodingError

SECTION = "early_stop"
"""The table of the rule in a run's settings and in its document."""

Metric = Literal["accuracy", "loss"]


@dataclass(frozen=True, slots=True)
class EarlyStopRule:
    """A rule that ends a run; at least one of target and patience is set.

    Attributes:
        metric: "accuracy", of which more is better, or "loss", of which less is.
        target: the run ends with the first model that is as good; None for no target.
        patience: it ends after so many evaluations in a row without a better model; None: never.
        min_delta: by how much a model must exceed the best one so far to count as better, at
            least 0.
    """

    metric: Metric
    target: float | None = None
    patience: int | None = None
    min_delta: float = 0.0

    @classmethod
    def of(cls, table: Mapping[str, Any]) -> EarlyStopRule | None:
        """Return the rule of a run document's or a file's settings; None if they have none."""
        values = table.get(SECTION)
        if values is None:
            return None
        if not (isinstance(values, dict) and values.keys() <= cls.__dataclass_fields__.keys()):
            raise EncodingError(f"{SECTION} = {values!s:.80} is no rule")
        rule = cls(**{"metric": None, **values})
        if (
            rule.metric not in ("accuracy", "loss")  # no set: a list has no hash
            or not (rule.target is None or _is_number(rule.target))
            or not (rule.patience is None or (type(rule.patience) is int and rule.patience > 0))
            or not _is_number(rule.min_delta)
        ):
            raise EncodingError(f"{SECTION} = {values!s:.80} is no rule")
        return rule


@dataclass(frozen=True, slots=True)
class EarlyStop:
    """The end of a run by its rule."""

    rule: EarlyStopRule
    round: int
    reason: Literal["target", "patience"]
    value: float
    best: float
    best_round: int

    @property
    def sentence(self) -> str:
        """The reason in words."""
        rule = self.rule
        if self.reason == "target":
            return (
                f"early_stop ends the run after round {self.round}: {rule.metric} {self.value:.4g} "
                f"has reached early_stop.target = {rule.target:g}"
            )
        more = f" by more than {rule.min_delta:g}" if rule.min_delta else ""
        return (
            f"early_stop ends the run after round {self.round}: {rule.metric} has not improved on "
            f"{self.best:.4g} of round {self.best_round}{more} for early_stop.patience = "
            f"{rule.patience}"
        )


@dataclass(slots=True)
class StopWatch:
    """An early-stop rule, applied to one evaluation after another.

    Attributes:
        rule: of the run; None if it has none.
        stop: the end of the run; None while it goes on.
    """

    rule: EarlyStopRule | None
    stop: EarlyStop | None = None
    _best: tuple[float, int] | None = None
    _without: int = field(default=0)

    def take(self, number: int, accuracy: float | None, loss: float | None) -> None:
        """Take the measured values of a round; None where it was not measured."""
        rule = self.rule
        value = None if rule is None else accuracy if rule.metric == "accuracy" else loss
        if rule is None or value is None or self.stop is not None:
            return
        sign = 1 if rule.metric == "accuracy" else -1
        if self._best is None or sign * (value - self._best[0]) > rule.min_delta:
            self._best, self._without = (value, number), 0
        else:
            self._without += 1
        if rule.target is not None and sign * value >= sign * rule.target:
            self.stop = EarlyStop(rule, number, "target", value, *self._best)
        elif self._without == rule.patience:
            self.stop = EarlyStop(rule, number, "patience", value, *self._best)


def stop_after(rule: EarlyStopRule | None, rows: Iterable[ClaimedRound]) -> StopWatch:
    """Return the rule's state after the rows of a run, in order; without a rule none is read."""
    watch = StopWatch(rule)
    for row in rows if rule is not None else ():
        watch.take(row.round, row.accuracy, row.loss)
    return watch


def claimed_stop(paths: RunPaths) -> EarlyStop | None:
    """Return the early stop of a run by its own files; None if there was none."""
    settings = recorded_settings(paths)
    values = {
        name.partition(".")[2]: json.loads(text)
        for name, text in settings.items()
        if name.startswith(f"{SECTION}.")
    }
    rule = EarlyStopRule.of({SECTION: values} if values else {})
    return None if rule is None else stop_after(rule, claimed_rounds(paths)).stop


def _is_number(value: object) -> bool:
    return type(value) in {int, float} and 0 <= value <= sys.float_info.max  # type: ignore[operator]
