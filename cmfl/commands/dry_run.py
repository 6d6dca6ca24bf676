"""The transactions and cost of a deployment, without sending or writing anything.

The node estimates the creation. It cannot estimate registrations for a contract that does not exist
yet: the whole deployment is carried out on a private chain of this program's own EVM, with the same
fork, and its receipts are read.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

from cmfl.commands.console import print_line
from cmfl.commands.sender import in_ether
from ledger.io.home import Home
from ledger.protocol.errors import ConfigurationError

if TYPE_CHECKING:
    from clients.configuration.owners import Owners
    from clients.configuration.schema import Configuration
    from cmfl.access.target import Target
    from cmfl.commands.sender import Sender
    from ledger.chain.rpc.fees import Fees
    from ledger.chain.rpc.rpc_reader import RpcSettings
    from ledger.chain.rpc.sending_node import SendingNode
    from ledger.io.home import RunPaths
    from ledger.protocol.documents.run import RunDocument

_GWEI = 10**9
_ONE_TRANSACTION_A_BLOCK = "cmfl-ledger/"


class TransactionKind(StrEnum):
    """Kinds of transactions of a deployment."""

    CREATION = "creation"
    REGISTRATION = "registration"


class GasSource(StrEnum):
    """Sources of a transaction's gas."""

    BY_NODE = "node"
    REHEARSED = "rehearsal"


class DeploymentHint(StrEnum):
    """Foreseeable problems on this chain."""

    COMMIT_WINDOW = "commit-window"
    CREATION_WAITS = "creation-waits"


@dataclass(frozen=True, slots=True)
class PlannedTransaction:
    """A planned transaction.

    Attributes:
        kind: of the transaction.
        clients: number of clients that it registers.
        gas: that it uses.
        gas_limit: that it is sent with.
        counted: source of the gas.
    """

    kind: TransactionKind
    clients: int
    gas: int
    gas_limit: int
    counted: GasSource


@dataclass(frozen=True, slots=True)
class Price:
    """The current cost of a deployment, in wei.

    Attributes:
        base_fee: per gas.
        tip: per gas.
        most: maximum per gas, base fee and tip together.
        cost: of all transactions, at base fee and tip.
        needed: balance that the node requires for all of them.
        balance: of the sender; None if the sender is unknown.
    """

    base_fee: int
    tip: int
    most: int
    cost: int
    needed: int
    balance: int | None

    @property
    def is_short(self) -> bool:
        """True if a known balance does not suffice."""
        return self.balance is not None and self.balance < self.needed


@dataclass(frozen=True, slots=True)
class DryRun:
    """A deployment that was not carried out.

    Attributes:
        run: its name.
        contract: of an earlier deployment, with or without manifest; None if there is none.
        sender: of the transactions; None if it is unknown or not needed.
        steps: the transactions, in order.
        gas: of all of them.
        price: on a node; None on the home's own chain, whose money is worthless.
        active: number of active clients in a round.
        commit_blocks: blocks in which their commitments are accepted.
        hints: foreseeable problems.
    """

    run: str
    contract: str | None
    sender: str | None
    steps: tuple[PlannedTransaction, ...]
    gas: int
    price: Price | None
    active: int
    commit_blocks: int
    hints: tuple[DeploymentHint, ...] = ()

    @property
    def is_affordable(self) -> bool:
        """True unless the sender's balance is known to be too low."""
        return self.price is None or not self.price.is_short


def dry_run(
    where: Target,
    name: str,
    configuration: Configuration,
    owners: Owners | None,
    sender: Sender,
) -> DryRun:
    """Return the transactions and the cost of a run's deployment.

    Args:
        where: the home, and the node if one is named.
        name: of the run.
        configuration: of the run.
        owners: clients with keys of their own; None for simulated clients.
        sender: signs on a node.

    Raises:
        ConfigurationError: the configuration does not fit, or gas costs more than the caps.
        ChainError: the node or the contract there is not as expected.
    """
    from clients.runs.population import populate, run_document, with_training_path

    population = populate(configuration, owners)
    document = run_document(with_training_path(configuration, population), population)
    contract, registered = _deployed(where, name, document)
    remaining = tuple(
        step
        for step, end in _with_ends(rehearsed(document))
        if contract is None or end > registered
    )
    gas, rounds = sum(step.gas for step in remaining), document.parameters
    planned = DryRun(
        name, contract, None, remaining, gas, None, rounds.active, rounds.commit_blocks
    )
    return planned if where.rpc_url is None else _on_node(where, planned, document, sender)


def _with_ends(steps: tuple[PlannedTransaction, ...]) -> list[tuple[PlannedTransaction, int]]:
    """Return each transaction with the number of clients registered after it."""
    ends = [sum(step.clients for step in steps[: place + 1]) for place in range(len(steps))]
    return list(zip(steps, ends, strict=True))


def rehearsed(document: RunDocument) -> tuple[PlannedTransaction, ...]:
    """Return the transactions of a deployment, carried out on a temporary private chain."""
    from ledger.chain.contract.committee_ledger import LedgerWriter
    from ledger.chain.contract.deployment import DEPLOYMENT_GAS, creation_data, deployment_for
    from ledger.chain.embedded.embedded_chain import EmbeddedChain

    deployment, batches = deployment_for(document)
    with (
        tempfile.TemporaryDirectory() as folder,
        EmbeddedChain.create(Path(folder) / "chain.sqlite", synchronous="NORMAL") as chain,
    ):
        creation = chain.send(None, creation_data(deployment), DEPLOYMENT_GAS)
        assert creation.contract_address is not None, "a creation that succeeded has an address"
        steps = [
            PlannedTransaction(
                TransactionKind.CREATION, 0, creation.gas_used, DEPLOYMENT_GAS, GasSource.REHEARSED
            )
        ]
        ledger = LedgerWriter(chain, creation.contract_address)
        for batch in batches:
            receipt = ledger.register_clients(batch.words, batch.rest)
            limit = chain.find(receipt.transaction_hash)
            assert limit is not None, "the chain holds what it has a receipt of"
            steps.append(
                PlannedTransaction(
                    TransactionKind.REGISTRATION,
                    len(batch.words),
                    receipt.gas_used,
                    limit[2].gas,
                    GasSource.REHEARSED,
                )
            )
    return tuple(steps)


def _deployed(where: Target, name: str, document: RunDocument) -> tuple[str | None, int]:
    """Return the run's contract, if there is one, and the number of its registered clients."""
    from ledger.chain.contract.deployment import connect, deployment_for
    from ledger.chain.contract.manifest import read_run_manifest

    paths = Home(where.home).run(name)
    if not paths.manifest.exists():
        return _interrupted(where, paths, document)
    manifest = read_run_manifest(paths)
    config = f"0x{deployment_for(document)[0].config.hex()}"
    if manifest.config != config:
        raise ConfigurationError(
            f"{paths.manifest} is of another configuration: run document {manifest.config}, not "
            f"{config}"
        )
    with where.reader() as chain:
        return manifest.address, connect(chain, manifest).state().registered


def _interrupted(where: Target, paths: RunPaths, document: RunDocument) -> tuple[str | None, int]:
    """Return the contract of an interrupted attempt without manifest."""
    from ledger.chain.contract.committee_ledger import CommitteeLedger
    from ledger.chain.contract.deployment import creation_data, deployment_for
    from ledger.chain.contract.deployment_intent import earlier_creation, read_intent

    if (intent := read_intent(paths)) is None:
        return None, 0
    creation = creation_data(deployment_for(document)[0])
    with where.own_reader() if where.rpc_url is None else _node(where) as chain:
        receipt = earlier_creation(chain, intent, creation, paths)
        if receipt is None or receipt.contract_address is None:
            return None, 0
        ledger = CommitteeLedger(chain, receipt.contract_address, receipt.block_number)
        return receipt.contract_address, ledger.state().registered


def _node(where: Target, settings: RpcSettings | None = None) -> SendingNode:
    from ledger.chain.rpc.sending_node import SendingNode

    return SendingNode(where.rpc_url or "", chain_id=where.node_chain_id(), settings=settings)


def _on_node(where: Target, planned: DryRun, document: RunDocument, sender: Sender) -> DryRun:
    """Return the plan with the node's estimate of the creation, and its prices."""
    from ledger.chain.contract.deployment import creation_data, deployment_for
    from ledger.chain.ports import require_plain_sender
    from ledger.chain.rpc import fees
    from ledger.chain.rpc.wire import to_hex
    from ledger.protocol.types import Beacon

    settings, account = sender.settings(), sender.address()
    with _node(where, settings) as node:
        node.require_suitable(needs_block_hash=document.parameters.beacon is Beacon.BLOCK)
        if account is not None:
            require_plain_sender(node, account)
        market = node.market()
        caps = settings.fee_caps
        offer = fees.new_fees(market.base_fee, market.tip, caps)
        if offer is None:
            raise ConfigurationError(
                f"gas costs {market.base_fee} wei now, and the tip, over the cap of {caps.fee}: "
                "nothing would be sent"
            )
        steps = list(planned.steps)
        if steps and steps[0].kind is TransactionKind.CREATION:
            request = {"data": to_hex(creation_data(deployment_for(document)[0]))}
            estimate = node.gas_of(request if account is None else {**request, "from": account})
            steps[0] = PlannedTransaction(
                TransactionKind.CREATION, 0, estimate, steps[0].gas_limit, GasSource.BY_NODE
            )
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


def _price(
    steps: list[PlannedTransaction], base_fee: int, offer: Fees, balance: int | None
) -> Price:
    each, spent, needed = base_fee + offer.tip, 0, 0
    for step in steps:
        # A node requires a balance for the whole gas limit.
        needed = max(needed, spent + step.gas_limit * offer.fee)
        spent += step.gas * each
    return Price(base_fee, offer.tip, offer.fee, spent, needed, balance)


def _hints(planned: DryRun, node: SendingNode, paths: RunPaths) -> tuple[DeploymentHint, ...]:
    hints: list[DeploymentHint] = []
    is_block_per_transaction = node.client_version().startswith(_ONE_TRANSACTION_A_BLOCK)
    if is_block_per_transaction and planned.commit_blocks < planned.active:
        hints.append(DeploymentHint.COMMIT_WINDOW)
    if planned.contract is None and _waits(node, paths):
        hints.append(DeploymentHint.CREATION_WAITS)
    return tuple(hints)


def _waits(node: SendingNode, paths: RunPaths) -> bool:
    """Return whether an earlier attempt may have a pending creation."""
    from ledger.chain.contract.deployment_intent import read_intent

    if paths.manifest.exists() or (intent := read_intent(paths)) is None:
        return False
    mined, counted = (node.nonce(intent.deployer, pending=pending) for pending in (False, True))
    return mined <= intent.nonce < counted


def print_dry_run(plan: DryRun) -> None:
    """Print a dry run for people."""
    if plan.contract is not None:
        print_line(f"run {plan.run} is deployed already, as contract {plan.contract}")
    for step in plan.steps:
        subject = "creation" if step.kind is TransactionKind.CREATION else f"{step.clients} clients"
        source = (
            "the node's estimate" if step.counted is GasSource.BY_NODE else "on a private chain"
        )
        print_line(f"{subject:<14}{step.gas:>12,} gas ({source}; sent with {step.gas_limit:,})")
    print_line(f"{'all':<14}{plan.gas:>12,} gas in {len(plan.steps)} transactions")
    if plan.price is None:
        print_line("costs nothing: the home's own chain has test money only")
    else:
        _print_price(plan, plan.price)
    if DeploymentHint.COMMIT_WINDOW in plan.hints:
        print_line(
            f"each transaction has a block of its own there: where {plan.active} clients "
            f"send their own commitments, protocol.commit_blocks = {plan.commit_blocks} is too "
            "short for all of them"
        )
    if DeploymentHint.CREATION_WAITS in plan.hints:
        print_line(
            "an earlier attempt was cut off while its creation waited for a block: it would be "
            "sent again with the same nonce, so that one contract comes of both"
        )
    print_line("nothing was sent, and nothing was written")


def _print_price(plan: DryRun, price: Price) -> None:
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
        f"{plan.sender} owns {in_ether(price.balance)}; nodes ask for {in_ether(price.needed)} "
        f"(limits at {price.most / _GWEI:.6g} gwei): {enough}"
    )
