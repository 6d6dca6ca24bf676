"""Units of work of an experiment: reported cells, and trials for tuning.

The name identifies a cell. The digest changes with everything that determines the result: not with
paths, workers or devices.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from clients.configuration.schema import Configuration
    from clients.experiments.definition import Method

_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9.+]+")


@dataclass(frozen=True, slots=True)
class Cell:
    """One run of an experiment.

    Attributes:
        number: the experiment's; None for one that has none.
        configuration: of the run, before a learning rate is chosen; on the memory ledger.
        is_recorded: whether the run goes over a chain and is audited.
        is_tuned: whether its learning rate is that which was chosen for its method.
        content: digest of all that its result follows from, but the seed.
    """

    experiment: str
    number: int | None
    method: Method
    condition: str
    axes: dict[str, str]
    seed: int
    configuration: Configuration
    is_recorded: bool
    is_tuned: bool
    counts_bytes: bool
    content: str

    @property
    def point(self) -> str:
        """Its name without the seed."""
        labels = [f"{axis}-{label}" for axis, label in self.axes.items()]
        return "__".join(_plain(part) for part in (self.method.name, self.condition, *labels))

    @property
    def name(self) -> str:
        """Its name, unique in its experiment, and a file's name."""
        return f"{self.point}__seed{self.seed}"

    @property
    def digest(self) -> str:
        """Of all that its result follows from, 0x-hex."""
        return self.digest_with(self.seed)

    @property
    def rounds(self) -> int:
        """T."""
        return self.configuration.protocol.rounds

    def digest_with(self, seed: int) -> str:
        """Return the digest of the same with another seed, 0x-hex."""
        return digest_of([self.content, seed])

    def at_rate(self, factor: float) -> Cell:
        """Return the cell with another learning rate."""
        training = self.configuration.training
        rate = training.learning_rate * factor
        changed = training.model_copy(update={"learning_rate": rate})
        return replace(
            self, configuration=self.configuration.model_copy(update={"training": changed})
        )


@dataclass(frozen=True, slots=True)
class Trial:
    """A run that is there only to choose its method's learning rate.

    Attributes:
        cell: what is run; never one that is reported.
    """

    cell: Cell
    factor: float

    @property
    def name(self) -> str:
        """Its name, unique in its experiment."""
        return f"tuning__{self.cell.name}__rate{self.factor:g}"

    @property
    def digest(self) -> str:
        """Of all that its result follows from, 0x-hex."""
        return digest_of([self.cell.digest, self.factor])

    @property
    def rounds(self) -> int:
        """T."""
        return self.cell.rounds


def digest_of(value: object) -> str:
    """Return the sha256 of a value's canonical JSON, 0x-hex."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return f"0x{hashlib.sha256(text.encode()).hexdigest()}"


def _plain(part: str) -> str:
    """Return a name's part as a file's name may have it."""
    return _NOT_IN_NAMES.sub("-", part).strip("-.")
