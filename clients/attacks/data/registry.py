"""The attacks on training samples by name; a new one needs its file and one line here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from clients.attacks.data.backdoor import BACKDOOR
from clients.attacks.data.label_flip import LABEL_FLIP
from ledger.protocol.errors import ConfigurationError

if TYPE_CHECKING:
    from clients.attacks.data.data_attack import DataAttack

DATA_ATTACKS: dict[str, DataAttack] = {attack.name: attack for attack in (LABEL_FLIP, BACKDOOR)}


def data_attack_named(name: str) -> DataAttack:
    """Return an attack on training samples by name.

    Raises:
        ConfigurationError: unknown name.
    """
    if name not in DATA_ATTACKS:
        names = ", ".join(DATA_ATTACKS)
        raise ConfigurationError(f"unknown attack on samples {name!r}; known are {names}")
    return DATA_ATTACKS[name]
