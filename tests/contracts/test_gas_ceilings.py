"""No call costs more gas than is said, at the largest sizes that are promised.

`python -m tests.contracts.test_gas_ceilings` plays the largest registry and prints what calls cost.
"""

# ruff: noqa: T201 - a program that prints

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from pathlib import Path

import pytest

from ledger.chain.embedded.embedded_chain import EmbeddedChain
from ledger.protocol.parameters import MAX_CLIENTS, MAX_MEMBERS, MAX_TRAINERS
from ledger.protocol.types import AcceptanceForm, ClientId, Phase
from tests.contracts import support
from tests.contracts.twins import Outcome, Proposal, Shape, Twins
from tests.faults import times

# EIP-7825: what one transaction may use, on a chain whose blocks offer as much or more.
TRANSACTION_GAS = 2**24
FLAGS = 224
BATCH = 256

CEILINGS = {
    "deployment": 4_500_000,
    "register_clients": 6_800_000,
    "commit_updates": 4_300_000,
    "decide": 3_200_000,
    "abandon_round": 11_500_000,
    "report_equivocation": 100_000,
}
"""Gas of the dearest call of each kind; `docs/reference/properties.md` has the same numbers."""


def if_all_were_cold(gas: int) -> int:
    """Return the most that an end may cost, from one whose 4,096 draws read few clients."""
    cold_read, warm_read, draws = 2_100, 100, 4_096
    return gas + draws * (cold_read - warm_read)


def dearest_calls(chain: EmbeddedChain, clients: int) -> dict[str, int]:
    """Return the gas of each call where it is dearest, with most trainers and members."""
    shape = Shape(
        clients=clients,
        trainers=MAX_TRAINERS,
        members=MAX_MEMBERS,
        aggregation_ppm=1_000_000,
        form=AcceptanceForm.BELOW_TWO,
        commit_blocks=60,
        deadline_blocks=120,
        replies=MAX_MEMBERS - 1,
    )
    # Gas is asked for, on py-evm; what is answered of so many clients is compared on revm.
    twins = Twins.opened(chain, shape, most_compared=0)
    found = {"deployment": twins.deployment_receipt.gas_used}

    def used(name: str, outcome: Outcome) -> None:
        assert isinstance(outcome, tuple), outcome
        found[name] = max(found.get(name, 0), twins.last_receipt.gas_used)

    # The last batch draws a committee, too.
    found["register_clients"] = twins.last_receipt.gas_used
    trainers = support.trainers_of(twins.state)
    # In a deployment's first round every word of flags is new; from one to another and back.
    for part in batches(by_turns(outsiders(twins))):
        used("commit_updates", support.commit_all(twins, part))
    for part in batches(by_turns(trainers)):
        used("commit_updates", support.commit_all(twins, part))
    used("decide", twins.decide(certified_by_all(twins, trainers)))
    used("report_equivocation", twins.report(support.equivocation(twins, twins.state.committee[0])))
    twins.wait()
    used("abandon_round", twins.abandon(twins.state.round))
    return found


def outsiders(twins: Twins) -> list[ClientId]:
    """Return up to a batch of clients that do not train, from all words of flags."""
    trainers = set(support.trainers_of(twins.state))
    others = [ClientId(i) for i in range(twins.state.deployment.clients) if i not in trainers]
    return others[:: max(1, len(others) // BATCH)][:BATCH]


def by_turns(clients: Iterable[ClientId]) -> list[ClientId]:
    """Return clients so that each lies in another word of flags than the one before."""
    return sorted(clients, key=lambda client: (client % FLAGS, client))


def batches(clients: list[ClientId]) -> list[list[ClientId]]:
    return [clients[first : first + BATCH] for first in range(0, len(clients), BATCH)]


def certified_by_all(twins: Twins, trainers: Iterable[ClientId]) -> Proposal:
    """Return a decision on all trainers, all accepted, to which every other member replied."""
    trainers = list(trainers)
    distances = [1 + place / len(trainers) for place in range(len(trainers))]
    decision = support.decision_of(twins, support.ranking_of(trainers, distances))
    votes = (support.request(twins, decision, phase, 0) for phase in Phase)
    first, second = (support.certificate(twins, vote) for vote in votes)
    assert len(first.replies) == len(second.replies) == MAX_MEMBERS - 1
    return Proposal(twins.state.round, decision, (first, second))


@pytest.mark.slow
def test_no_call_exceeds_its_ceiling_at_the_largest_sizes(embedded_chain: EmbeddedChain) -> None:
    found = dearest_calls(embedded_chain, times(MAX_MEMBERS + MAX_TRAINERS + 4, MAX_CLIENTS))
    assert set(found) == set(CEILINGS)
    assert {name: gas for name, gas in found.items() if gas > CEILINGS[name]} == {}


def test_every_call_fits_into_one_transaction_of_any_chain() -> None:
    assert max(CEILINGS.values()) < TRANSACTION_GAS


def test_the_page_of_properties_has_the_ceilings() -> None:
    page = (Path(__file__).parents[2] / "docs" / "reference" / "properties.md").read_text("utf-8")
    for name, ceiling in CEILINGS.items():
        (row,) = [
            line for line in page.splitlines() if line.startswith((f"| `{name}` |", f"| {name} |"))
        ]
        assert row.endswith(f"| {ceiling:,} |")


def main() -> None:
    """Play the largest registry, and print what each call costs and may cost."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "chain.sqlite"
        with EmbeddedChain.create(path, synchronous="NORMAL") as chain:
            found = dearest_calls(chain, MAX_CLIENTS)
    for name, ceiling in CEILINGS.items():
        print(f"{name:20} {found[name]:>12,} of {ceiling:>12,}")


if __name__ == "__main__":
    main()
