"""`cmfl deploy`: try out a deployment, or deploy a run's contract.

A node estimates the creation, but no registration for a contract that does not exist yet. So the
deployment is carried out on a private chain with the same fork, and its receipts are read.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from typer import Option

from clients.datasets.own import OWN
from cmfl.commands import WRONG, console, options
from cmfl.commands.configuration_options import ConfigurationOptions
from cmfl.commands.registry import RegistryFile, agreed_owners
from cmfl.commands.sender import (
    DATA_VARIABLE,
    ETHER_DECIMALS,
    GWEI_DECIMALS,
    CappedSenderOptions,
    SenderOptions,
    command_on,
    in_ether,
    print_next,
    quoted_url,
    variable_in_shell,
    wei_of,
)
from cmfl.where import HOME, RUN, URL_VARIABLE, Target
from ledger.chain.contract.deploy import (
    DEPLOYMENT_GAS,
    connect,
    creation_data,
    deployment_for,
    earlier_creation,
    read_intent,
)
from ledger.chain.contract.deploy import deploy as complete
from ledger.chain.contract.ledger import CommitteeLedger, LedgerWriter, Manifest, read_run_manifest
from ledger.chain.contract.rehearsal import third_round
from ledger.chain.embedded.embedded_chain import EmbeddedChain
from ledger.chain.ports import ChainWriter, Receipt, require_plain_sender
from ledger.chain.rpc import wire
from ledger.io.home import Home, RunPaths
from ledger.protocol.documents.run import RunDocument
from ledger.protocol.errors import ChainError, ConfigurationError
from ledger.protocol.types import Beacon

if TYPE_CHECKING:
    from clients.configuration.loading import Owners
    from clients.configuration.schema import Configuration

_GWEI = 10**9
MOST_BLOCKS = 100_000  # for which a deployment may wait
_POLL_SECONDS = 0.5


_Kind = Literal["creation", "registration", "round"]


@dataclass(frozen=True, slots=True)
class PlannedTransaction:
    """A transaction that would be sent: how many clients it registers, its gas and call data."""

    kind: _Kind
    clients: int
    gas: int
    gas_limit: int
    counted: Literal["node", "rehearsal"]
    data_bytes: int


@dataclass(frozen=True, slots=True)
class Price:
    """The current cost of a deployment, in wei.

    Base fee, tip and `most`, the maximum of both together, are for each gas. `needed` is the
    balance that the node requires, `balance` the sender's; None if the sender is unknown.
    """

    base_fee: int
    tip: int
    most: int
    cost: int
    needed: int
    balance: int | None

    @property
    def is_short(self) -> bool:
        return self.balance is not None and self.balance < self.needed


@dataclass(frozen=True, slots=True)
class GivenPrices:
    """Prices of --price: gas and a byte of an L2's data in wei, and one token in money."""

    gas: int
    token: float
    data_byte: int = 0

    @classmethod
    def parse(cls, text: str) -> GivenPrices:
        """Return the prices in GAS,TOKEN or GAS,TOKEN,BYTE; GAS and BYTE are in gwei."""
        gas, *rest = (part.strip() for part in text.split(","))
        if len(rest) not in {1, 2}:
            rule = "give GAS,TOKEN or GAS,TOKEN,BYTE, as in 0.02gwei,3000"
            raise ConfigurationError(f"--price {text[:80]}: {rule}")
        token = wei_of(rest[0], "--price", ETHER_DECIMALS) / 10**ETHER_DECIMALS
        gwei = [part.removesuffix("gwei") for part in (gas, *rest[1:])]
        gas_wei, *byte_wei = (wei_of(part, "--price", GWEI_DECIMALS) for part in gwei)
        return cls(gas_wei, token, *byte_wei)

    def charge(self, steps: Sequence[PlannedTransaction]) -> dict[str, float]:
        """Return gas and bytes of transactions, their fees in wei, for data at most, and money."""
        gas, data = (sum(getattr(step, key) for step in steps) for key in ("gas", "data_bytes"))
        data_fee = sum(data_fee_of(step.data_bytes, self.data_byte) for step in steps)
        fees = {"gas_fee": self.gas * gas, "data_fee": data_fee}
        money = sum(fees.values()) * self.token / 10**ETHER_DECIMALS
        return {"gas": gas, "data_bytes": data, **fees, "money": money}


# More than an EIP-1559 transaction has besides its call data, signature included.
ENVELOPE_BYTES = 128


def data_fee_of(data_bytes: int, byte_price: int) -> int:
    """Return the most that an OP-stack chain charges for a transaction's data since Fjord, in wei.

    This is `getL1FeeUpperBound` of https://specs.optimism.io/protocol/fjord/predeploys.html. A byte
    costs (16 * baseFeeScalar * l1BaseFee + blobBaseFeeScalar * blobBaseFee) / 10**6.
    """
    size = data_bytes + ENVELOPE_BYTES
    compressed = size + size // 255 + 16
    return max(100_000_000, 836_500 * compressed - 42_585_600) * byte_price // 10**6


@dataclass(slots=True)
class DryRun:
    """A deployment that was not carried out: what remains of it to be sent.

    `contract` comes from an earlier deployment, with or without manifest. There is no price on the
    home's own chain, whose money is worthless. The hints name foreseeable problems on a chain.
    The charges of the deployment and of a round are there at given prices only.
    """

    run: str
    contract: str | None
    sender: str | None
    steps: list[PlannedTransaction]
    gas: int
    price: Price | None
    active: int
    commit_blocks: int
    hints: list[Literal["commit-window", "creation-waits"]]
    charges: dict[str, dict[str, float]] = field(default_factory=dict)


def dry_run(
    where: Target,
    name: str,
    configuration: Configuration,
    owners: Owners | None,
    sender: SenderOptions,
    price: str | None = None,
) -> DryRun:
    """Return the transactions and the cost of a run's deployment; no owners if it is simulated."""
    from clients.runs.population import populate, run_document, with_training_path

    given = None if price is None else GivenPrices.parse(price)
    population = populate(configuration, owners)
    document = run_document(with_training_path(configuration, population), population)
    contract, registered = _deployed(where, name, document)
    remaining = []
    steps = rehearsed(document, plays_round=given is not None)
    for step in steps:
        registered -= step.clients
        if step.kind != "round" and (contract is None or registered < 0):
            remaining.append(step)
    rounds = document.parameters
    plan = DryRun(name, contract, None, remaining, 0, None, rounds.active, rounds.commit_blocks, [])
    if where.rpc_url is not None:
        _price_on_node(where, plan, document, sender)
    plan.gas = sum(step.gas for step in plan.steps)
    if given is not None:
        played = [step for step in steps if step.kind == "round"]
        plan.charges = {"deployment": given.charge(plan.steps), "round": given.charge(played)}
    return plan


def rehearsed(document: RunDocument, *, plays_round: bool) -> list[PlannedTransaction]:
    """Carry out a deployment on a private chain; return the transactions of it and of a round."""
    deployment, batches = deployment_for(document)
    with (
        tempfile.TemporaryDirectory() as folder,
        EmbeddedChain.create(Path(folder) / "chain.sqlite", synchronous="NORMAL") as chain,
    ):

        def planned(kind: _Kind, receipt: Receipt, clients: int = 0) -> PlannedTransaction:
            found = chain.find(receipt.transaction_hash)
            assert found is not None, "the chain holds what it has a receipt of"
            sent, gas = found[2], receipt.gas_used
            return PlannedTransaction(kind, clients, gas, sent.gas, "rehearsal", len(sent.data))

        creation = chain.send(None, creation_data(deployment), DEPLOYMENT_GAS)
        assert creation.contract_address is not None, "a creation that succeeded has an address"
        steps = [planned("creation", creation)]
        ledger = LedgerWriter(chain, creation.contract_address)
        for batch in batches:
            receipt = ledger.register_clients(batch.words, batch.rest)
            steps.append(planned("registration", receipt, len(batch.words)))
        if plays_round:
            steps += [planned("round", receipt) for receipt in third_round(chain, deployment)]
    return steps


def _deployed(where: Target, name: str, document: RunDocument) -> tuple[str | None, int]:
    """Return the run's contract, also one without manifest, and how many clients it has."""
    paths, deployment = Home(where.home).run(name), deployment_for(document)[0]
    if paths.manifest.exists():
        manifest, config = read_run_manifest(paths), f"0x{deployment.config.hex()}"
        if manifest.config != config:
            raise ConfigurationError(
                f"{paths.manifest} has another configuration (run document {manifest.config}, "
                f"not {config})"
            )
        with where.reader() as chain:
            return manifest.address, connect(chain, manifest).state().registered
    if (intent := read_intent(paths)) is None:
        return None, 0
    with where.own_reader() if where.rpc_url is None else where.node_reader() as chain:
        receipt = earlier_creation(chain, intent, creation_data(deployment), paths)
        if receipt is None or receipt.contract_address is None:
            return None, 0
        ledger = CommitteeLedger(chain, receipt.contract_address, receipt.block_number)
        return receipt.contract_address, ledger.state().registered


def _price_on_node(
    where: Target, plan: DryRun, document: RunDocument, sender: SenderOptions
) -> None:
    from ledger.protocol.encoding import to_hex

    settings, account = sender.settings(), sender.address()
    with where.node_reader(settings) as node:
        node.require_suitable(needs_block_hash=document.parameters.beacon is Beacon.BLOCK)
        if account is not None:
            require_plain_sender(node, account)
        market, caps = node.market(), settings.fee_caps
        offer = wire.new_fees(market.base_fee, market.tip, caps)
        if offer is None:
            raise ConfigurationError(
                f"gas costs {market.base_fee} wei plus the tip, above the cap of {caps.fee}; "
                "nothing would be sent"
            )
        if plan.steps and plan.steps[0].kind == "creation":
            request = {"data": to_hex(creation_data(deployment_for(document)[0]))}
            estimate = node.gas_of(request if account is None else {**request, "from": account})
            plan.steps[0] = replace(plan.steps[0], gas=estimate, counted="node")
        each, spent, needed = market.base_fee + offer.tip, 0, 0
        for step in plan.steps:
            # A node requires a balance for the whole gas limit.
            needed = max(needed, spent + step.gas_limit * offer.fee)
            spent += step.gas * each
        balance = node.balance_of(account) if account else None
        plan.price = Price(market.base_fee, offer.tip, offer.fee, spent, needed, balance)
        # This program's own node gives each transaction a block.
        is_block_each = node.client_version().startswith("cmfl-ledger/")
        if is_block_each and plan.commit_blocks < plan.active:
            plan.hints.append("commit-window")
        paths = Home(where.home).run(plan.run)
        intent = None if plan.contract or paths.manifest.exists() else read_intent(paths)
        if intent is not None:
            mined, counted = (node.nonce(intent.deployer, pending=each) for each in (False, True))
            plan.hints += ["creation-waits"] if mined <= intent.nonce < counted else []
    plan.sender = account


def _lines(plan: DryRun) -> Iterator[str]:
    if plan.contract is not None:
        yield f"run {plan.run} is already deployed, as contract {plan.contract}"
    for step in plan.steps:
        subject = "creation" if step.kind == "creation" else f"{step.clients} clients"
        source = "the node's estimate" if step.counted == "node" else "on a private chain"
        yield f"{subject:<14}{step.gas:>12,} gas ({source}; sent with {step.gas_limit:,})"
    yield f"{'all':<14}{plan.gas:>12,} gas in {len(plan.steps)} transactions"
    for name, charge in plan.charges.items():
        fees = in_ether(int(charge["gas_fee"]))
        if charge["data_fee"]:
            fees += f" and at most {in_ether(int(charge['data_fee']))} for data"
        money = f"{charge['money']:,.2f}" if charge["money"] >= 1 else f"{charge['money']:.3g}"
        data = f"{charge['data_bytes']:,} bytes of call data"
        yield f"{name:<14}{charge['gas']:>12,} gas, {data}: {fees} = {money} at --price"
    price = plan.price
    if price is None and not plan.charges:
        yield "costs nothing: the home's own chain has test money only"
    if price is not None:
        yield (
            f"costs {in_ether(price.cost)} at {(price.base_fee + price.tip) / _GWEI:.6g} gwei for "
            f"each gas: base fee {price.base_fee / _GWEI:.6g}, tip {price.tip / _GWEI:.6g}"
        )
        if price.balance is None:
            yield f"the sender must own {in_ether(price.needed)}; the owner is unknown"
        else:
            yield (
                f"{plan.sender} owns {in_ether(price.balance)}; nodes require "
                f"{in_ether(price.needed)} (limits at {price.most / _GWEI:.6g} gwei): "
                f"{'not enough' if price.is_short else 'enough'}"
            )
    if "commit-window" in plan.hints:
        yield (
            "this chain puts each transaction into its own block; if each client sends its own "
            f"commitment, protocol.commit_blocks = {plan.commit_blocks} is too short for "
            f"{plan.active} clients"
        )
    if "creation-waits" in plan.hints:
        yield (
            "an earlier attempt was interrupted while its creation waited for a block; it would "
            "be sent again with the same nonce, so both create one contract"
        )
    yield "nothing was sent, and nothing was written"


def deploy(
    home: options.HomeFolder = HOME,
    name: options.RunToMake = RUN,
    *,
    configured: ConfigurationOptions,
    node: CappedSenderOptions,
    registry: RegistryFile = None,
    first_block: Annotated[
        int | None,
        "Block of round 1's opening; the command waits for it. Needs a node.",
        Option(callback=options.for_a_node),
    ] = None,
    allow_predictable_seeds: options.AllowPredictableSeeds = False,
    dry: Annotated[
        bool, "Show the transactions and their cost, and send nothing.", Option("--dry-run")
    ] = False,
    price: Annotated[
        str | None,
        "Prices for --dry-run: gas, token, byte on an L2, such as 0.02gwei,3000.",
        Option(metavar="GAS,TOKEN[,BYTE]"),
    ] = None,
    json: console.AsJson = False,
) -> None:
    """Deploy a run's contract.

    Round 1 opens at once, unless --first-block says otherwise. On timed blocks, cmfl run --resume
    opens the first round of a simulation. Repeating the command changes nothing. With --dry-run,
    the exit code is 2 if the sender's balance is too low.
    """
    from clients.configuration.parsing import ALLOW_PREDICTABLE, lot_warning
    from clients.runs.open_run import prepared
    from clients.runs.population import run_document

    owners: Owners | None = None
    if price is not None and not dry:
        raise ConfigurationError("--price has no effect without --dry-run")
    if registry is None:
        if allow_predictable_seeds:
            raise ConfigurationError(f"{ALLOW_PREDICTABLE} has no effect without --registry")
        configuration = configured.load(deploys=True)
    else:
        configuration = configured.load_shared(allow_predictable=allow_predictable_seeds)
        owners = agreed_owners(registry, name, configuration)
    where = node.chain_of(home)
    if dry:
        plan = dry_run(where, name, configuration, owners, node, price)
        console.print_result(asdict(plan), _lines(plan), as_json=json)
        raise typer.Exit(WRONG if plan.price is not None and plan.price.is_short else 0)
    with where.writer(node.chain) as chain:
        mines_at_once, paths = chain.mines_at_once(), Home(home).run(name)
        _require_ahead(chain.head().number, first_block)
        opens = first_block is None and (mines_at_once or owners is not None)
        run = home, name, configuration, chain, where.blobs()
        with prepared(*run, owners=owners, opens=opens) as (configuration, population, manifest):
            rule = configuration.protocol.strategy, configuration.protocol.beacon
            if (warning := lot_warning(*rule, mines_at_once=mines_at_once)) is not None:
                console.complain(f"warning: {warning}")
            console.print_result(
                asdict(manifest),
                (
                    f"contract {manifest.address} on chain {manifest.chain_id}",
                    f"created in block {manifest.block} by transaction {manifest.transaction}",
                    f"run document {manifest.config}",
                    f"manifest {paths.manifest}",
                ),
                as_json=json,
            )
            if not json and owners is None:
                print_next("continue with", resume_command(where, name, node))
            elif not json:
                _print_join(where, configuration, manifest)
            if first_block is not None:
                _open_in_block(chain, first_block, run_document(configuration, population), paths)


def _require_ahead(head: int, number: int | None) -> None:
    if number is not None and not head < number <= head + MOST_BLOCKS:
        bounds = f"{head + 1} to {head + MOST_BLOCKS}"
        raise ConfigurationError(f"--first-block {number}: must be {bounds}, after the newest")


def _open_in_block(chain: ChainWriter, number: int, document: RunDocument, paths: RunPaths) -> None:
    """Wait, and send the last registration: any account can, and choose the first seed by it."""
    console.complain(f"waiting to open round 1 in block {number}; if stopped, repeat the command")
    ledger = connect(chain, read_run_manifest(paths))
    # `chain.mine` would make a test node jump to the block.
    while ledger.state().round == 0 and chain.head().number < number - 1:
        time.sleep(_POLL_SECONDS)
    complete(chain, document, paths)
    opening = ledger.opening(1)
    assert opening is not None, "the registration is complete"
    if opening.opened_block < number:
        raise ChainError(
            f"round 1 was opened in block {opening.opened_block}, before block {number}. "
            "Another account may have chosen the first committee this way; deploy another run"
        )
    console.complain(f"round 1 opened in block {opening.opened_block}")


def resume_command(where: Target, name: str, sender: SenderOptions) -> str:
    """Return the command that resumes a run, complete and without secrets."""
    from clients.configuration.loading import code_named_in
    from clients.configuration.parsing import plain_values

    path = Home(where.home).run(name).configuration
    named = code_named_in(plain_values(path=path)) if path.exists() else {}
    return command_on(
        where,
        "run",
        home=where.home,
        run=name,
        resume=True,
        set=[f"{key}={code}" for key, code in named.items()],
        keystore=sender.key_file,
        password_file=sender.password_file,
        confirmations=sender.confirmations,
    )


def _print_join(where: Target, configuration: Configuration, manifest: Manifest) -> None:
    command = console.command_line(
        "join",
        chain_id=manifest.chain_id,
        contract=manifest.address,
        blobs=Home(where.home).blobs.absolute(),
        allow_predictable_seeds=configuration.protocol.beacon is Beacon.NONE,
    )
    url, values = variable_in_shell(URL_VARIABLE), {}
    if where.rpc_url is None:
        serve = console.command_line("chain", "serve", home=where.home, block_time=1)
        console.print_line(f"serve the chain to the owners with: {serve}")
        values = {URL_VARIABLE: "the URL that this command prints"}
    else:
        url = quoted_url(where.rpc_url)
    command += f" --rpc-url {url}"
    if configuration.data.name == OWN.name or configuration.data.path is not None:
        command += f" --data {variable_in_shell(DATA_VARIABLE)}"
    print_next("each owner continues with", command, values)
    console.print_line(
        f"the key is in the file of --keystore or CMFL_KEYSTORE, or in {options.KEY_VARIABLE}"
    )
    console.print_line("on another machine --blobs is the URL of a store: cmfl blobs serve --help")
