"""The cells of an experiment: method x condition x point of the axes x seed, each checked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import TypeAlias

from clients.experiments.cell_factory import CellFactory
from clients.experiments.cells import Cell, Trial
from clients.experiments.definition import Definition, Quick
from clients.experiments.rows import CellRow
from ledger.protocol.errors import ConfigurationError

_Place: TypeAlias = tuple[str, str, tuple[tuple[str, str], ...]]
"""Method, condition, and the label on each axis."""

MAX_CELLS = 20_000
LONGEST_NAME = 200


@dataclass(frozen=True, slots=True)
class ExperimentPlan:
    """All that an experiment runs.

    Attributes:
        is_quick: whether it is run as `--quick` has it.
        cells: in the order in which they are run.
        trials: what has to be run before; empty where no learning rate is chosen.
        data: the folder of the data; None where no file is needed.
    """

    experiment: str
    definition: Definition
    is_quick: bool
    cells: tuple[Cell, ...]
    trials: tuple[Trial, ...] = ()
    data: Path | None = None
    _named: dict[str, Cell] = field(init=False, repr=False)
    _places: dict[_Place, Cell] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Index the cells."""
        tried = [trial.name for trial in self.trials]
        if len(tried) > len(set(tried)):
            raise ConfigurationError(
                f"experiment {self.experiment}: two trials are called "
                f"{Counter(tried).most_common(1)[0][0]!r}: rates of tuning must differ in their "
                f"first six digits"
            )
        named: dict[str, Cell] = {}
        for cell in self.cells:
            if cell.name in named:
                raise ConfigurationError(
                    f"experiment {self.experiment}: two cells are called {cell.name!r}: their "
                    f"names differ only in signs that a file's name has not"
                )
            if len(cell.name) > LONGEST_NAME:
                raise ConfigurationError(
                    f"experiment {self.experiment}: cell {cell.name!r}: a name of over "
                    f"{LONGEST_NAME} letters"
                )
            named[cell.name] = cell
        places = {_place_of(c.method.name, c.condition, c.axes): c for c in self.cells}
        object.__setattr__(self, "_named", named)
        object.__setattr__(self, "_places", places)

    def cell(self, name: str) -> Cell:
        """Return the cell of a name."""
        if name not in self._named:
            shown = ", ".join(list(self._named)[:3])
            raise ConfigurationError(
                f"experiment {self.experiment} has no cell {name!r}; it has {len(self.cells)}, "
                f"such as {shown} (cmfl experiment list {self.experiment})"
            )
        return self._named[name]

    def row_digest(self, row: CellRow) -> str | None:
        """Return the digest that a row must have, 0x-hex; None if it is of no method here.

        A row of another seed is one of the experiment, too.
        """
        cell = self._places.get(_place_of(row.method, row.condition, row.axes))
        return None if cell is None else cell.digest_with(row.seed)


def plan_experiment(
    name: str,
    definition: Definition,
    *,
    seeds: int | None = None,
    is_quick: bool = False,
    data: Path | None = None,
) -> ExperimentPlan:
    """Return what an experiment runs.

    Args:
        seeds: how many of its seeds; more than it names go on after its last. None for all.

    Returns:
        Cells whose configurations hold; whether their data can be had is not looked at.
    """
    missing = missing_files(definition, data)
    if missing:
        where = "say with --data which folder it is in" if data is None else f"there is no {data}/"
        raise ConfigurationError(
            f"experiment {name} reads {missing[0]}: {where}{'' if data is None else missing[0]}"
        )
    maker = CellFactory(name, definition, definition.quick if is_quick else Quick(), is_quick, data)
    # A few axes span more points than any memory holds: no more are made than may be.
    points = list(islice(maker.points(), MAX_CELLS + 1))
    if not points:
        raise ConfigurationError(f"experiment {name}: no pair of method and condition is left")
    every = _seeds(definition, maker.quick, seeds)
    if len(points) * len(every) > MAX_CELLS:
        raise ConfigurationError(f"experiment {name} has over {MAX_CELLS} cells")
    if maker.most_trials > MAX_CELLS:
        raise ConfigurationError(f"experiment {name} tries over {MAX_CELLS} learning rates")
    first = [maker.cell(*point, every[0]) for point in points]
    # Seed by seed, so that what was cut short has whole seeds.
    audited = every[: definition.audited]
    cells = [_seeded(cell, seed, audited) for seed in every for cell in first]
    return ExperimentPlan(name, definition, is_quick, tuple(cells), tuple(maker.trials()), data)


def missing_files(definition: Definition, data: Path | None) -> tuple[str, ...]:
    """Return the files that an experiment reads and that are not there."""
    return tuple(name for name in definition.files if data is None or not (data / name).is_file())


def _place_of(method: str, condition: str, axes: Mapping[str, str]) -> _Place:
    return method, condition, tuple(sorted(axes.items()))


def _seeds(definition: Definition, quick: Quick, count: int | None) -> list[int]:
    """Return `count` seeds: the named ones, then the next ones without tuning."""
    named = list(quick.seeds or definition.seeds)
    if count is None:
        return named
    tuned_on = set() if definition.tuning is None else set(definition.tuning.seeds)
    following = max(named)
    while len(named) < count:
        following += 1
        if following not in tuned_on:
            named.append(following)
    return named[:count]


def _seeded(cell: Cell, seed: int, audited: Sequence[int]) -> Cell:
    """Return a cell with another seed, on a chain only if that seed is audited."""
    configuration = cell.configuration.model_copy(update={"seed": seed})
    return replace(
        cell,
        seed=seed,
        configuration=configuration,
        is_recorded=cell.is_recorded and seed in audited,
    )
