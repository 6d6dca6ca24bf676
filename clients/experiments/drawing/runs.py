"""Figure of plain runs: accuracy over rounds, with the attackers among the accepted updates."""

from __future__ import annotations

from json import loads
from typing import TYPE_CHECKING

from clients.experiments.canvas import (
    MARKERS,
    count_rounds,
    draw_floor,
    draw_line,
    panels,
    write,
)
from clients.experiments.series import line_through
from ledger.protocol.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from ledger.claims import ClaimedRound

MOST_RUNS = len(MARKERS)
"""Runs in one figure: no two of them share dashes and marker."""


def draw_runs(
    runs: Mapping[str, Sequence[ClaimedRound]],
    settings: Mapping[str, Mapping[str, str]],
    folder: Path,
    name: str,
) -> list[Path]:
    """Draw some runs, each as a line of its own.

    Args:
        runs: the rounds of each run, by its name.
        settings: of each run, by its name, as `ledger.claims.recorded_settings` returns them.
        folder: where to; it is made if need be.
        name: of the files, without an extension.

    Returns:
        The files, SVG and PNG.

    Raises:
        ConfigurationError: a run has no round yet, there are too many to be told apart, or
            matplotlib is not installed.
        OSError: the files cannot be written.
    """
    if len(runs) > MOST_RUNS:
        raise ConfigurationError(
            f"{len(runs)} runs: a figure tells at most {MOST_RUNS} apart; name those to draw"
        )
    empty = next((run for run, rounds in runs.items() if not rounds), None)
    if empty is not None:
        raise ConfigurationError(
            f"run {empty!r} has no row in its metrics.jsonl, which only the process that plays it "
            f"writes: name runs that were played in this home"
        )
    with panels(2, size=(4.6, 2.9)) as drawn:
        accuracy, attackers = drawn.axes
        for place, (run, rounds) in enumerate(runs.items()):
            measured = {
                float(row.round): [row.accuracy] for row in rounds if row.accuracy is not None
            }
            draw_line(accuracy, line_through(run, measured), place)
            shares = {
                float(row.round): [row.malicious_accepted / row.accepted]
                for row in rounds
                if row.accepted
            }
            draw_line(attackers, line_through(run, shares), place)
        floors = {rounds[-1].floor for rounds in runs.values()}
        draw_floor(accuracy, floors.pop() if len(floors) == 1 else None)
        accuracy.set(title="test accuracy", ylabel="test accuracy")
        attackers.set(title="attackers' share of the accepted updates", ylabel="share")
        for axes in drawn.axes:
            count_rounds(axes)
        folder.mkdir(parents=True, exist_ok=True)
        return write(drawn, folder, name, _caption(runs, settings))


def _caption(
    runs: Mapping[str, Sequence[ClaimedRound]], settings: Mapping[str, Mapping[str, str]]
) -> str:
    described = "; ".join(
        f"{run}: {adversary_text(settings[run])}, seed {settings[run].get('seed', 'unknown')}, "
        f"head {rounds[-1].head} after round {rounds[-1].round}"
        for run, rounds in runs.items()
    )
    return (
        f"Accuracy and accepted attackers as the runs' own files claim them; cmfl audit proves the "
        f"decisions. {described}. A line is one run, and so has no errors."
    )


def adversary_text(settings: Mapping[str, str]) -> str:
    """Return who attacks in a run, by its settings."""
    attack = loads(settings.get("malice.attack", "null"))
    rate = loads(settings.get("malice.malicious_rate", "0"))
    texts = [f"{attack} by {100 * rate:g} % of the clients"] if attack and rate else []
    for group in ("member", "trainer"):
        prefix = f"malice.{group}s."
        texts += [
            f"{key.removeprefix(prefix)} ({count} {group}{'' if count == '1' else 's'})"
            for key, count in settings.items()
            if key.startswith(prefix) and count != "0"
        ]
    return " and ".join(texts) or "nobody attacks"
