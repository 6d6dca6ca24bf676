"""What an attack on training samples is.

Its clients train as everybody does, on samples that they have changed; what they send is an honest
update of these. Their test samples stay as they are, and so do the files of which a run records
the digests: what was done to the samples follows from the attack's name and number, and the seed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from clients.attacks.updates.update_attack import AttackParameters, Factor, factor_for

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np

    from clients.datasets.federated_data import DataForm, FederatedData, Inputs, Samples


@dataclass(frozen=True, slots=True, eq=False)
class PoisonInput:
    """What an attacker poisons. It never sees another client's samples.

    Attributes:
        own: its training samples, as stored.
        form: what a model has to know of the data.
        seen: stored inputs that everybody knows: those of the test set.
        rng: its own stream.
        factor: the number that the attack leaves open.
    """

    own: Samples
    form: DataForm
    seen: Inputs
    rng: np.random.Generator
    factor: float


@dataclass(frozen=True, slots=True)
class DataAttack:
    """An attack on training samples.

    Attributes:
        name: as in TOML.
        poison: makes what is trained on instead of the attacker's own samples: as many, of the
            same form, for their number is the weight of its update.
        factor: the number that it leaves open; None if there is none.
        backdoor: makes of test samples those that a model should answer as the attacker wants;
            None for an attack without a backdoor.
    """

    name: str
    poison: Callable[[PoisonInput], Samples]
    factor: Factor | None = None
    backdoor: Callable[[FederatedData, Samples], Samples] | None = None

    def factor_for(self, parameters: AttackParameters) -> float:
        """Return the number that the attack gets.

        Args:
            parameters: what the configuration says.

        Raises:
            ConfigurationError: a number out of range, or one for an attack that takes none.
        """
        return factor_for(self.name, self.factor, parameters)
