"""Claims of a run's own files: accuracy, attackers among the accepted updates, an early stop.

Nothing proves them. Chain and blobs record the decisions, and the audit verifies those; only the
process that played the run reports the quality of the model and the attackers of a simulation. The
rule of an early stop is in the run document, and the decision is a function of the rows, so that a
run which has stopped stays stopped when it is resumed.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, Literal

from ledger.io.home import RunPaths, naming, open_file, read_text
from ledger.io.parsing import MAX_TOML_BYTES, parse_json, parse_toml
from ledger.protocol.errors import ConfigurationError, EncodingError

MAX_ROW_BYTES = 1 << 22  # of one row, which holds an accuracy of each client at most
MAX_ANSWERED_BYTES = 1 << 25  # of the rows that are read for an answer of a service
_UNIT = (1, "a number in [0, 1]")
_RANGES = {
    "accuracy": _UNIT,
    "floor": _UNIT,
    "loss": (sys.float_info.max, "a finite number, at least 0"),
}
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ClaimedRound:
    """One row of a run's metrics."""

    round: int
    head: str  # of the ledger after the round, 0x-hex
    accuracy: float | None  # on the test set, in [0, 1]; None where not measured
    loss: float | None  # mean, on the test set; None where not measured or not finite
    floor: float
    accepted: int
    malicious_accepted: int


@dataclass(frozen=True, slots=True)
class ClaimedRun:
    """Summary of all rows of a run; a run that was not played has none."""

    rounds: int
    head: str | None  # after the last round, 0x-hex
    accuracy: float | None  # the last that was measured
    floor: float | None  # accuracy of always answering the most frequent class
    accepted_attackers: float | None  # share of the accepted updates that are attackers'
    last_round: int | None  # round of `head`


def last_known(values: Sequence[float | None]) -> float | None:
    """Return the last value that is known; None if none is."""
    return next((value for value in reversed(values) if value is not None), None)


def is_below_floor(accuracy: float | None, floor: float) -> bool:
    """Return whether a measured model is worse than always answering the most frequent class."""
    return accuracy is not None and accuracy < floor


def claimed_run(paths: RunPaths) -> ClaimedRun:
    """Return the summary of a run's rows; a run that was not played has none."""
    rounds = accepted = malicious = 0
    last: ClaimedRound | None = None
    accuracy: float | None = None
    for last in claimed_rounds(paths):
        rounds += 1
        accuracy = accuracy if last.accuracy is None else last.accuracy
        accepted += last.accepted
        malicious += last.malicious_accepted
    share = malicious / accepted if accepted else None
    if last is None:
        return ClaimedRun(rounds, None, accuracy, None, share, None)
    return ClaimedRun(rounds, last.head, accuracy, last.floor, share, last.round)


def claims_of(paths: RunPaths, rounds: Collection[int]) -> dict[int, ClaimedRound]:
    """Return the rows of some rounds, by round."""
    rows = claimed_rounds(paths, MAX_ANSWERED_BYTES)
    return {row.round: row for row in rows if row.round in rounds}


def claimed_rounds(paths: RunPaths, max_bytes: int | None = None) -> Iterator[ClaimedRound]:
    """Yield the rows of a run's metrics, as `whole_rows` does."""
    return (row for row, _ in whole_rows(paths, max_bytes))


def whole_rows(
    paths: RunPaths, max_bytes: int | None = None
) -> Iterator[tuple[ClaimedRound, dict[str, Any]]]:
    """Yield each row of a run's metrics, and all its values, one line in memory at a time.

    A last line without an end is being written, and is left out. Two processes may have written
    rows of one round: the first counts, and a warning names the round.
    """
    path, before = paths.metrics, 0
    seen: set[int] = set()
    doubled: list[int] = []
    if not path.exists():
        return
    with open_file(path) as file:
        size = os.fstat(file.fileno()).st_size
        if max_bytes is not None and size > max_bytes:
            raise EncodingError(f"{path} has {size} bytes, more than {max_bytes}")
        for number in count(1):
            line = file.readline(MAX_ROW_BYTES + 1)
            place = f"{path}: line {number}"
            if len(line) > MAX_ROW_BYTES:
                raise EncodingError(f"{place} is over {MAX_ROW_BYTES} bytes")
            if not line.endswith(b"\n"):
                break
            row, values = _row(line, place)
            if row.round in seen:
                doubled.append(row.round)
                continue
            if row.round <= before:
                raise EncodingError(f"{place}: round {row.round} comes after round {before}")
            before = row.round
            seen.add(before)
            yield row, values
    warn_of_doubled_rows(path, doubled)


def warn_of_doubled_rows(path: Path, rounds: Collection[int]) -> None:
    """Log which rounds have more than one row in a file; nothing if none has."""
    if rounds:
        numbers = sorted(set(rounds))
        shown = ", ".join(map(str, numbers[:10])) + (", ..." if len(numbers) > 10 else "")
        _log.warning(
            "%s: more than one row of round %s; only the first row of a round counts", path, shown
        )


def _row(line: bytes, place: str) -> tuple[ClaimedRound, dict[str, Any]]:
    try:
        values = parse_json(line)
    except (ValueError, RecursionError) as error:
        raise EncodingError(f"{place} is not JSON: {error!s:.200}") from error
    if not isinstance(values, dict):
        raise EncodingError(f"{place} is not a row of metrics; must be a JSON object")
    accepted = values.get("accepted")
    row = ClaimedRound(
        round=_whole(values, "round", place),
        head=str(values.get("head"))[:80],
        accuracy=None if values.get("accuracy") is None else _number(values, "accuracy", place),
        loss=None if values.get("loss") is None else _number(values, "loss", place),
        floor=_number(values, "floor", place),
        accepted=len(accepted) if isinstance(accepted, list) else -1,
        malicious_accepted=_whole(values, "malicious_accepted", place),
    )
    if row.malicious_accepted > row.accepted:
        raise EncodingError(
            f"{place}: malicious_accepted = {row.malicious_accepted} must be at most the number "
            f"of the accepted, which must be a list"
        )
    return row, values


def _whole(values: Mapping[str, Any], name: str, place: str) -> int:
    value = values.get(name)
    if type(value) is not int or value < 0:
        raise EncodingError(f"{place}: {name} = {value!s:.80} must be a whole number, at least 0")
    return value


def _number(values: Mapping[str, Any], name: str, place: str) -> float:
    value, (most, rule) = values.get(name), _RANGES[name]
    # A truth value is a whole number to Python, and NaN is in no range.
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= most:
        raise EncodingError(f"{place}: {name} = {value!s:.80} must be {rule}")
    return float(value)


def recorded_settings(paths: RunPaths) -> dict[str, str]:
    """Return all settings of a run by their names in its file, `section.key`, as JSON."""
    with naming(paths.configuration, ConfigurationError):
        return settings_by_name(parse_toml(read_text(paths.configuration, MAX_TOML_BYTES)))


def settings_by_name(values: Mapping[str, Any]) -> dict[str, str]:
    """Return nested settings by their names, `section.key`, each as JSON; bytes as 0x-hex."""

    def text(value: object) -> str:
        return f"0x{value.hex()}" if isinstance(value, bytes) else str(value)

    settings: dict[str, str] = {}
    pending: list[tuple[str, Any]] = list(values.items())
    while pending:
        name, value = pending.pop()
        if isinstance(value, dict):
            pending += [(f"{name}.{key}", nested) for key, nested in value.items()]
        else:
            settings[name] = json.dumps(value, default=text)
    return dict(sorted(settings.items()))


SECTION = "early_stop"  # the table of the rule in a run's settings and in its document
Metric = Literal["accuracy", "loss"]


@dataclass(frozen=True, slots=True)
class EarlyStopRule:
    """A rule that ends a run; at least one of target and patience is set."""

    metric: Metric  # more accuracy is better, or less loss
    target: float | None = None  # the run ends with the first model that is as good
    patience: int | None = None  # it ends after so many evaluations without a better model
    min_delta: float = 0.0  # a better model exceeds the best one so far by more than this

    @classmethod
    def of(cls, table: Mapping[str, Any]) -> EarlyStopRule | None:
        values = table.get(SECTION)
        if values is None:
            return None
        is_rule = isinstance(values, dict) and values.keys() <= cls.__dataclass_fields__.keys()
        rule = cls(**{"metric": None, **(values if is_rule else {})})
        if not (
            rule.metric in ("accuracy", "loss")  # no set: a list has no hash
            and (rule.target is None or _is_number(rule.target))
            and (rule.patience is None or (type(rule.patience) is int and rule.patience > 0))
            and _is_number(rule.min_delta)
        ):
            raise EncodingError(f"{SECTION} = {values!s:.80} is not a rule")
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
    """An early-stop rule, applied to one evaluation after another."""

    rule: EarlyStopRule | None  # None if the run has none
    stop: EarlyStop | None = None  # None while the run goes on
    _best: tuple[float, int] | None = None
    _without: int = 0

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
