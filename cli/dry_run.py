"""What deploying a run would send and cost, without sending or writing anything.

The creation is estimated by the node. The registrations speak to a contract that is not there yet,
which no node can estimate: the whole deployment is carried out on a private chain of this program's
own EVM, of the same fork, and its receipts are read.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

from cli.console import print_line
from cli.sender import in_ether
from ledger.io.home import Home
from ledger.protocol.errors import ConfigurationError

if TYPE_CHECKING:
    from cli.sender import Sender
    from cli.target import Target
    from clients.configuration.schema import Configuration
    from clients.onboarding.owners import Owners
    from ledger.chain.rpc.fees import Fees
    from ledger.chain.rpc.rpc_reader import RpcSettings
    from ledger.chain.rpc.sending_node import SendingNode
    from ledger.io.home import RunPaths
    from ledger.protocol.documents.run import RunDocument

_GWEI = 10**9
_ONE_TRANSACTION_A_BLOCK = "cmfl-ledger/"


class Kind(StrEnum):
    """What a transaction of a deployment does."""

    CREATION = "creation"
    REGISTRATION = "registration"


class Counted(StrEnum):
    """How its gas is known."""

    BY_NODE = "node"
    REHEARSED = "rehearsal"


class Hint(StrEnum):
    """What would plainly go wrong on this chain, or is on its way there already."""

    COMMIT_WINDOW = "commit-window"
    CREATION_WAITS = "creation-waits"


@dataclass(frozen=True, slots=True)
class Step:
    """A transaction that would be sent.

    Attributes:
        kind: what it does.
        clients: how many it registers.
        gas: that it uses.
        gas_limit: that it is sent with.
        counted: how its gas is known.
    """

    kind: Kind
    clients: int
    gas: int
    gas_limit: int
    counted: Counted


@dataclass(frozen=True, slots=True)
class Price:
    """What the deployment costs in the chain's money now, in wei.

    Attributes:
        base_fee: for each gas.
        tip: for each gas, on top.
        most: that is offered for each gas, base fee and tip together.
        cost: of all that would be sent, at base fee and tip.
        needed: what the sender must own for the node to take all of it.
        balance: what the sender owns; None if nobody says who that is.
    """

    base_fee: int
    tip: int
    most: int
    cost: int
    needed: int
    balance: int | None

    @property
    def is_short(self) -> bool:
        """Whether a balance that is known does not suffice."""
        return self.balance is not None and self.balance < self.needed


@dataclass(frozen=True, slots=True)
class DryRun:
    """A deployment that was not carried out.

    Attributes:
        run: its name.
        contract: that is deployed already, its manifest written or not; None if none is.
        sender: who would pay; None if that cannot be told, or nobody has to.
        steps: what would be sent, in order.
        gas: of all of them.
        price: on a node; None on the home's own chain, whose money is worth nothing.
        active: how many clients are active in a round.
        commit_blocks: in how many blocks their commitments are taken.
        hints: what would plainly go wrong there, or is on its way already.
    """

    run: str
    contract: str | None
    sender: str | None
    steps: tuple[Step, ...]
    gas: int
    price: Price | None
    active: int
    commit_blocks: int
    hints: tuple[Hint, ...] = ()

    @property
    def is_affordable(self) -> bool:
        """Whether the sender owns enough, as far as anybody knows."""
        return self.price is None or not self.price.is_short


def dry_run(
    where: Target,
    name: str,
    configuration: Configuration,
    owners: Owners | None,
    sender: Sender,
) -> DryRun:
    """Return what deploying a run would send and cost.

    Args:
        where: the home, and a node if one is named.
        name: of the run.
        configuration: of the run.
        owners: who takes part with keys of their own; None for simulated clients.
        sender: who would sign, on a node.

    Raises:
        ConfigurationError: the configuration does not fit, or gas is over the caps.
        ChainError: the node or the contract there is not as expected.
    """
    from clients.runs.population import populate, run_document
    from clients.runs.preparation import with_training_path

    population = populate(configuration, owners)
    document = run_document(with_training_path(configuration, population), population)
    contract, registered = _deployed(where, name, document)
    left = tuple(
        step
        for step, end in _with_ends(rehearsed(document))
        if contract is None or end > registered
    )
    gas, rounds = sum(step.gas for step in left), document.parameters
    planned = DryRun(name, contract, None, left, gas, None, rounds.active, rounds.commit_blocks)
    return planned if where.rpc_url is None else _on_node(where, planned, document, sender)


def _with_ends(steps: tuple[Step, ...]) -> list[tuple[Step, int]]:
    """Return each step with the number of clients that are registered after it."""
    ends = [sum(step.clients for step in steps[: place + 1]) for place in range(len(steps))]
    return list(zip(steps, ends, strict=True))


def rehearsed(document: RunDocument) -> tuple[Step, ...]:
    """Return what a deployment sends, carried out on a private chain that is thrown away.

    Args:
        document: the run's configuration.
    """
    from ledger.chain.contract.committee_ledger import LedgerWriter
    from ledger.chain.contract.deployment import DEPLOYMENT_GAS, creation_data, deployment_for
    from ledger.chain.embedded.embedded_chain import EmbeddedChain

    deployment, batches = deployment_for(document)
    with (
        tempfile.TemporaryDirectory() as folder,
        EmbeddedChain.create(Path(folder) / "chain.sqlite", synchronous="NORMAL") as chain,
    ):
        created = chain.send(None, creation_data(deployment), DEPLOYMENT_GAS)
        assert created.contract_address is not None, "a creation that succeeded has an address"
        steps = [Step(Kind.CREATION, 0, created.gas_used, DEPLOYMENT_GAS, Counted.REHEARSED)]
        ledger = LedgerWriter(chain, created.contract_address)
        for batch in batches:
            receipt = ledger.register_clients(batch.words, batch.rest)
            limit = chain.find(receipt.transaction_hash)
            assert limit is not None, "the chain holds what it has a receipt of"
            steps.append(
                Step(
                    Kind.REGISTRATION,
                    len(batch.words),
                    receipt.gas_used,
                    limit[2].gas,
                    Counted.REHEARSED,
                )
            )
    return tuple(steps)


def _deployed(where: Target, name: str, document: RunDocument) -> tuple[str | None, int]:
    """Return the contract that the run has, if it has one, and how many clients it knows."""
    from ledger.chain.contract.deployment import connect, deployment_for
    from ledger.chain.contract.manifest import read_run_manifest

    paths = Home(where.home).run(name)
    if not paths.manifest.exists():
        return _begun(where, paths, document)
    manifest = read_run_manifest(paths)
    config = f"0x{deployment_for(document)[0].config.hex()}"
    if manifest.config != config:
        raise ConfigurationError(
            f"{paths.manifest} is of another configuration: run document {manifest.config}, not "
            f"{config}"
        )
    with where.reader() as chain:
        return manifest.address, connect(chain, manifest).state().registered


def _begun(where: Target, paths: RunPaths, document: RunDocument) -> tuple[str | None, int]:
    """Return the contract that an attempt has created which was cut off before its manifest."""
    from ledger.chain.contract.committee_ledger import CommitteeLedger
    from ledger.chain.contract.deployment import creation_data, deployment_for
    from ledger.chain.contract.deployment_intent import earlier_creation, read_intent

    if (begun := read_intent(paths)) is None:
        return None, 0
    creation = creation_data(deployment_for(document)[0])
    with where.own_reader() if where.rpc_url is None else _node(where) as chain:
        created = earlier_creation(chain, begun, creation, paths)
        if created is None or created.contract_address is None:
            return None, 0
        ledger = CommitteeLedger(chain, created.contract_address, created.block_number)
        return created.contract_address, ledger.state().registered


def _node(where: Target, settings: RpcSettings | None = None) -> SendingNode:
    from ledger.chain.rpc.sending_node import SendingNode

    return SendingNode(where.rpc_url or "", chain_id=where.node_chain_id(), settings=settings)


def _on_node(where: Target, planned: DryRun, document: RunDocument, sender: Sender) -> DryRun:
    """Return the plan with the node's own estimate of the creation, and its prices."""
    from ledger.chain.contract.deployment import creation_data, deployment_for
    from ledger.chain.rpc import fees
    from ledger.chain.rpc.wire import to_hex

    settings, account = sender.settings(), sender.address()
    with _node(where, settings) as node:
        market = node.market()
        caps = settings.fee_caps
        offer = fees.new_fees(market.base_fee, market.tip, caps)
        if offer is None:
            raise ConfigurationError(
                f"gas costs {market.base_fee} wei now, and the tip, over the cap of {caps.fee}: "
                "nothing would be sent"
            )
        steps = list(planned.steps)
        if steps and steps[0].kind is Kind.CREATION:
            request = {"data": to_hex(creation_data(deployment_for(document)[0]))}
            estimate = node.gas_of(request if account is None else {**request, "from": account})
            steps[0] = Step(Kind.CREATION, 0, estimate, steps[0].gas_limit, Counted.BY_NODE)
        price = _price(steps, market.base_fee, offer, node.balance_of(account) if account else None)
        hints = _hints(planned, node, Home(where.home).run(planned.run))
    return replace(
        planned,
        sender=account,
        steps=tuple(steps),
        gas=sum(step.gas for step in steps),
        price=price,
        hints=hints,
    )


def _price(steps: list[Step], base_fee: int, offer: Fees, balance: int | None) -> Price:
    each, spent, needed = base_fee + offer.tip, 0, 0
    for step in steps:
        # A node takes a transaction from who could pay for its whole limit.
        needed = max(needed, spent + step.gas_limit * offer.fee)
        spent += step.gas * each
    return Price(base_fee, offer.tip, offer.fee, spent, needed, balance)


def _hints(planned: DryRun, node: SendingNode, paths: RunPaths) -> tuple[Hint, ...]:
    found: list[Hint] = []
    one_a_block = node.client_version().startswith(_ONE_TRANSACTION_A_BLOCK)
    if one_a_block and planned.commit_blocks < planned.active:
        found.append(Hint.COMMIT_WINDOW)
    if planned.contract is None and _waits(node, paths):
        found.append(Hint.CREATION_WAITS)
    return tuple(found)


def _waits(node: SendingNode, paths: RunPaths) -> bool:
    """Say whether a transaction waits that an earlier attempt may have sent for its contract."""
    from ledger.chain.contract.deployment_intent import read_intent

    if paths.manifest.exists() or (begun := read_intent(paths)) is None:
        return False
    mined, counted = (node.nonce(begun.deployer, pending=pending) for pending in (False, True))
    return mined <= begun.nonce < counted


def print_dry_run(found: DryRun) -> None:
    """Print a dry run for people.

    Args:
        found: what would be sent.
    """
    if found.contract is not None:
        print_line(f"run {found.run} is deployed already, as contract {found.contract}")
    for step in found.steps:
        what = "creation" if step.kind is Kind.CREATION else f"{step.clients} clients"
        how = "the node's estimate" if step.counted is Counted.BY_NODE else "on a private chain"
        print_line(f"{what:<14}{step.gas:>12,} gas ({how}; sent with {step.gas_limit:,})")
    print_line(f"{'all':<14}{found.gas:>12,} gas in {len(found.steps)} transactions")
    if found.price is None:
        print_line("costs nothing: the home's own chain has test money only")
    else:
        _print_price(found, found.price)
    if Hint.COMMIT_WINDOW in found.hints:
        print_line(
            f"each transaction has a block of its own there: where {found.active} clients "
            f"send their own commitments, protocol.commit_blocks = {found.commit_blocks} is too "
            "short for all of them"
        )
    if Hint.CREATION_WAITS in found.hints:
        print_line(
            "an earlier attempt was cut off while its creation waited for a block: it would be "
            "sent again with the same nonce, so that one contract comes of both"
        )
    print_line("nothing was sent, and nothing was written")


def _print_price(found: DryRun, price: Price) -> None:
    each = price.base_fee + price.tip
    print_line(
        f"costs {in_ether(price.cost)} at {each / _GWEI:.6g} gwei for each gas: base fee "
        f"{price.base_fee / _GWEI:.6g}, tip {price.tip / _GWEI:.6g}"
    )
    if price.balance is None:
        print_line(f"the sender must own {in_ether(price.needed)}; who it is, nobody said")
        return
    enough = "not enough" if price.is_short else "enough"
    print_line(
        f"{found.sender} owns {in_ether(price.balance)}; nodes ask for {in_ether(price.needed)} "
        f"(limits at {price.most / _GWEI:.6g} gwei): {enough}"
    )
