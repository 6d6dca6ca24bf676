"""Tables of the worst attacks on other data, sizes and shares.

From the rows of `cmfl experiment run robustness-worst`, all methods at one learning rate. A place
is a data set with a setting and a share of attackers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.paper.worst_table import CALM, SHARED, TUNED
from clients.experiments.catalogue import FAMILIES
from clients.experiments.drawing.series import grouped
from clients.experiments.report import DASH, format_estimate, markdown
from clients.experiments.statistics import mean_and_error, paired

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from clients.experiments.rows import CellRow, ExperimentRows

COMPARED = ("FedAvg", "own", "crowd-clipped", "peers-lot")
ATTACKS = ("target", "worst-back", "worst-drift", "adaptive", "min-max")

DATA = {
    SHARED: "digits",
    "robustness-worst-malice": "digits",
    "robustness-worst-settings": "digits",
    "robustness-worst-writers": "digits by writer",
    "robustness-worst-cnn": "digits by writer, CNN",
    "robustness-worst-femnist": "FEMNIST, CNN",
}

Finals = dict[str, dict[str, dict[int, float]]]
"""Final accuracies by method, attack and seed."""


def elsewhere_table(rows: Mapping[str, ExperimentRows]) -> list[str]:
    """Return what each rule is left without an attack, and by the worst that was played there.

    Args:
        rows: of the family's experiments, as far as there are any.
    """
    head = ("where", "seeds", *COMPARED)
    return markdown(
        head,
        [
            [place, _seeds(finals), *(_entry(finals.get(method, {})) for method in COMPARED)]
            for place, finals in _places(rows)
        ],
    )


def differences_table(rows: Mapping[str, ExperimentRows], method: str, other: str) -> list[str]:
    """Return accuracies of a method less those of another, seed by seed.

    Args:
        rows: of the family's experiments, as far as there are any.
        method: is compared.
        other: with which.
    """
    head = (f"{method} less {other}", CALM, *ATTACKS)
    return markdown(
        head,
        [
            [
                place,
                *(
                    _difference(finals.get(method, {}), finals.get(other, {}), attack)
                    for attack in (CALM, *ATTACKS)
                ),
            ]
            for place, finals in _places(rows)
        ],
    )


def _places(rows: Mapping[str, ExperimentRows]) -> Iterator[tuple[str, Finals]]:
    """Yield each place with its rows; those without an attack belong to all of a setting's."""
    for name in FAMILIES["robustness-worst"]:
        if name == TUNED or name not in rows:
            continue
        settings = grouped(rows[name].cells, lambda cell: ", ".join(cell.axes.values()))
        for setting, cells in settings.items():
            labels = grouped(cells, lambda cell: cell.condition.partition(", ")[2])
            calm = [cell for cell in cells if cell.condition == CALM]
            for label, own in labels.items():
                if any(cell.condition != CALM for cell in own):
                    place = ", ".join(part for part in (DATA[name], setting, label) if part)
                    yield place, _finals([*calm, *own])


def _finals(cells: Sequence[CellRow]) -> Finals:
    finals: Finals = {}
    for cell in cells:
        if cell.final is not None:
            attack = cell.condition.partition(", ")[0]
            finals.setdefault(cell.method, {}).setdefault(attack, {})[cell.seed] = cell.final
    return finals


def _seeds(finals: Finals) -> str:
    """Return how many seeds the attacks on the compared methods were played with."""
    counts = {
        len(own)
        for method in COMPARED
        for attack, own in finals.get(method, {}).items()
        if attack != CALM
    }
    return "–".join(map(str, sorted({min(counts), max(counts)})))  # noqa: RUF001


def _entry(finals: Mapping[str, Mapping[int, float]]) -> str:
    attacks = {attack: list(own.values()) for attack, own in finals.items() if attack != CALM}
    if not attacks or CALM not in finals:
        return DASH
    worst = min(attacks, key=lambda attack: mean_and_error(attacks[attack]).mean)
    calm = mean_and_error(list(finals[CALM].values())).mean
    return f"{calm:.3f}; {format_estimate(attacks[worst])} {worst}"


def _difference(
    ours: Mapping[str, Mapping[int, float]], theirs: Mapping[str, Mapping[int, float]], attack: str
) -> str:
    own, other = ours.get(attack, {}), theirs.get(attack, {})
    seeds = sorted(own.keys() & other.keys())
    if not seeds:
        return DASH
    difference = paired([own[seed] for seed in seeds], [other[seed] for seed in seeds])
    error = "" if difference.error is None else f" ± {difference.error:.3f}"
    return f"{difference.mean:+.3f}{error}"
