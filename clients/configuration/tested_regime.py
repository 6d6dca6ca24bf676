"""Tested settings of the rules (`docs/explanation/robustness.md`), and the risk of a committee.

Accuracy under attack is lower outside of them, as `cmfl experiment run robustness-worst-parts`
shows. The risk is of the first committee alone, which is drawn: later ones are elected.
"""

from __future__ import annotations

from fractions import Fraction
from math import comb, inf

from clients.configuration.schema import Configuration
from clients.datasets.partition import DirichletPartition
from clients.datasets.registry import data_set_named
from ledger.protocol.parameters import Parameters, replies_needed
from ledger.protocol.types import Quorum


def chance_of_at_least(needed: int, members: int, malicious: int, clients: int) -> Fraction:
    """Return the chance that a drawn committee has at least a number of malicious members."""
    if not (0 <= malicious <= clients and 0 <= members <= clients):
        raise ValueError(f"{members} members, {malicious} malicious, of {clients} clients")
    ways = sum(
        comb(malicious, held) * comb(clients - malicious, members - held)
        for held in range(max(0, needed), members + 1)
    )
    return Fraction(ways, comb(clients, members))


def blocking_members(members: int, quorum: Quorum) -> int:
    """Return how many silent members prevent a decision: a primary and its replies are too few."""
    return members - replies_needed(members, quorum)


def risk_sentence(parameters: Parameters) -> str:
    """Return the chances of a run's first committee, for a reader."""
    clients, members = parameters.clients, parameters.members
    needed = (members + 1) // 2, blocking_members(members, parameters.quorum)
    chances = []
    for percent in (10, 20, 30, 40):
        malicious = (percent * clients + 50) // 100  # as many as malice.malicious_rate draws
        held = [float(chance_of_at_least(n, members, malicious, clients)) for n in needed]
        chances.append(f"{percent} %: {' and '.join(map(_percent, held))}")
    return (
        f"{members} of {clients} clients; chance that at least half of the first committee is "
        f"malicious, and that enough to block are ({needed[1]}), by the share of malicious "
        f"clients: {', '.join(chances)}"
    )


def _percent(chance: float) -> str:
    """Return a chance in percent with two digits; one below a millionth is called so."""
    if chance == 0:
        return "0"
    if chance < 1e-6:
        return "< 0.0001 %"
    return f"{100 * chance:.2g} %" if chance < 0.1 else f"{100 * chance:.0f} %"


MOST_MALICIOUS, LEAST_LOCAL_STEPS, LEAST_ALPHA, LEAST_MEMBERS = 0.3, 2, 0.3, 12
MODEL = "softmax"  # rules were attacked with other models too, and did not hold


def regime_warnings(configuration: Configuration) -> list[str]:
    """Return a sentence on each setting outside the tested regime, of every run."""
    rate, steps = configuration.malice.malicious_rate, configuration.training.local_steps
    alpha, members = _dirichlet_alpha(configuration), configuration.parameters(dimension=1).members
    model = configuration.model.name
    warnings = {
        f"malice.malicious_rate = {rate:g}: beyond {MOST_MALICIOUS:g} attackers often hold half of "
        f"a committee, and every rule can fail": rate > MOST_MALICIOUS,
        f"training.local_steps = {steps}: updates of a single step tell honest clients and "
        f"attackers apart too badly": steps is not None and steps < LEAST_LOCAL_STEPS,
        f"data.partition.alpha = {alpha:g}: below {LEAST_ALPHA:g} honest updates differ too much "
        f"from one another": alpha < LEAST_ALPHA,
        f"a committee of {members}: the rules were tested with {LEAST_MEMBERS} members and more; "
        f"attackers hold half of a smaller one more often": members < LEAST_MEMBERS,
        f"model.name = {model}: the rules held with {MODEL}; with a perceptron and with a CNN, "
        f"searched attacks took much accuracy": model != MODEL,
    }
    return [sentence for sentence, is_outside in warnings.items() if is_outside]


def _dirichlet_alpha(configuration: Configuration) -> float:
    partition = configuration.data.partition
    has_owners = data_set_named(configuration.data.name).owned_by is not None
    if partition.get("name", "natural" if has_owners else "dirichlet") != "dirichlet":
        return inf
    return float(partition.get("alpha", DirichletPartition.model_fields["alpha"].default))
