"""The attacks on training samples by name; a new one needs its file and one line here."""

from __future__ import annotations

from clients.attacks.data.backdoor import BACKDOOR
from clients.attacks.data.data_attack import DataAttack
from clients.attacks.data.label_flip import LABEL_FLIP

DATA_ATTACKS: dict[str, DataAttack] = {attack.name: attack for attack in (LABEL_FLIP, BACKDOOR)}
