"""Who attacks, and what a whole round of clients sends."""

from __future__ import annotations

import numpy as np
import pytest

from clients.adversaries.attackers import Attackers, malicious_clients
from clients.adversaries.registry import ATTACKS
from clients.adversaries.updates.attack import AttackInput, AttackParameters, Update, UpdateAttack
from ledger.protocol.errors import ConfigurationError
from ledger.protocol.types import ClientId

SEED = bytes(range(32))
UPDATES = {ClientId(client): np.full(3, client, dtype=np.float32) for client in (9, 2, 5, 7)}


def attackers(*clients: int, attack: str | None = "back-gradient") -> Attackers:
    return Attackers(frozenset(map(ClientId, clients)), attack)


def test_the_honest_send_their_own_update_and_the_attackers_another() -> None:
    sent = attackers(2, 9, 11).corrupt(UPDATES, SEED)
    assert list(sent) == list(UPDATES)
    assert {client: vector[0] for client, vector in sent.items()} == {9: -9, 2: -2, 5: 5, 7: 7}
    assert UPDATES[ClientId(9)][0] == 9


@pytest.mark.parametrize(
    "nobody", [Attackers(), attackers(2, attack=None), attackers(1, 3), attackers()]
)
def test_without_an_attack_or_an_active_attacker_all_send_their_own(nobody: Attackers) -> None:
    assert nobody.corrupt(UPDATES, SEED) == UPDATES


def test_the_attackers_know_each_others_updates_and_nobody_elses(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[AttackInput] = []

    def look(asked: AttackInput) -> Update:
        seen.append(asked)
        return asked.own

    monkeypatch.setitem(ATTACKS, "look", UpdateAttack("look", look))
    attackers(9, 2, 4, attack="look").corrupt(UPDATES, SEED)
    assert [asked.own[0] for asked in seen] == [2, 9]
    assert [asked.colluders[:, 0].tolist() for asked in seen] == [[2, 9], [2, 9]]
    first, second = (asked.rng.random() for asked in seen)
    assert first != second, "each has a stream of its own"


def test_the_same_seed_gives_the_same_and_another_another() -> None:
    scaling = attackers(2, 9, attack="gradient-scaling")
    first, again, other = (scaling.corrupt(UPDATES, seed) for seed in (SEED, SEED, bytes(32)))
    assert np.array_equal(first[ClientId(9)], again[ClientId(9)])
    assert not np.array_equal(first[ClientId(9)], other[ClientId(9)])


def test_an_unknown_attack_and_a_wrong_factor_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="unknown attack 'noise'"):
        attackers(2, attack="noise").corrupt(UPDATES, SEED)
    wrong = Attackers(frozenset([ClientId(2)]), "back-gradient", AttackParameters(0.0))
    with pytest.raises(ConfigurationError, match=r"'back-gradient' takes 0\.01 to 1000"):
        wrong.corrupt(UPDATES, SEED)


@pytest.mark.parametrize(
    ("clients", "rate", "count"),
    [(60, 0.3, 18), (10, 0.25, 3), (10, 0.24, 2), (5, 0.0, 0), (5, 1.0, 5), (1, 0.5, 1)],
)
def test_the_malicious_are_as_many_as_the_rate_says_rounded_to_the_nearest(
    clients: int, rate: float, count: int
) -> None:
    chosen, again = (malicious_clients(clients, rate, np.random.default_rng(0)) for _ in "12")
    assert len(chosen) == count
    assert list(chosen) == sorted(set(chosen))
    assert all(type(client) is int and 0 <= client < clients for client in chosen)
    assert chosen == again


@pytest.mark.parametrize("rate", [-0.1, 1.1, float("nan")])
def test_a_rate_outside_zero_to_one_is_refused(rate: float) -> None:
    with pytest.raises(ConfigurationError, match="malicious_rate"):
        malicious_clients(10, rate, np.random.default_rng(0))
