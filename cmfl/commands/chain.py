"""`cmfl chain` and `cmfl contract`: the home's chain as a node, payments, and the contract."""

from __future__ import annotations

import hashlib
import json as json_
import shlex
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer
from typer import Argument, Option

from cmfl.commands import FAILED, INCOMPLETE, InterruptedCommand, options
from cmfl.commands.console import AsJson, command_line, complain, print_json, print_line
from cmfl.commands.process import results, until_interrupted
from cmfl.commands.sender import ETHER_DECIMALS, CappedSenderOptions, in_ether, wei_of
from cmfl.where import Target
from ledger.chain.contract.abi import Artifact, artifact
from ledger.chain.contract.deploy import code_violation, is_published
from ledger.chain.contract.ledger import CommitteeLedger, read_run_manifest
from ledger.chain.embedded.embedded_chain import EmbeddedChain
from ledger.chain.embedded.evm import TEST_KEYS, address_of
from ledger.chain.ports import (
    ChainWriter,
    NotServedError,
    Receipt,
    TransactionTimeoutError,
    UncheckableCreationError,
    require_plain_sender,
)
from ledger.protocol.encoding import eip55
from ledger.protocol.errors import ChainError, ConfigurationError

if TYPE_CHECKING:
    from ledger.chain.rpc.rpc_chain import RpcChain
    from ledger.chain.rpc.sender import InFlightTransaction


chain_app = options.Commands()


@chain_app.command("serve")
def serve(
    home: options.HomeFolder = options.DEFAULT_HOME,
    port: Annotated[
        int, Option(min=0, max=65535, help="Port to listen on, of this machine only.")
    ] = 8545,
    block_time: Annotated[
        float | None,
        Option(
            min=0.1,
            max=3600,
            help="Seconds from block to block; by default each transaction gets a block.",
        ),
    ] = None,
    chain_id: options.ChainId = None,
) -> None:
    """Serve the home's own chain over JSON-RPC on this machine.

    The chain is created if it does not exist. The server has no accounts and signs nothing; while
    it runs, other commands write to the chain only through it.
    """
    from ledger.chain.rpc.server import RpcServer

    where = Target(home, chain_id=chain_id)
    with (
        where.writer() as chain,
        RpcServer(cast("EmbeddedChain", chain), port=port, block_seconds=block_time) as server,
        until_interrupted(),
    ):
        _announce(cast("EmbeddedChain", chain), server.url, block_time)
        server.wait()


@chain_app.command("fund")
def fund(
    addresses: Annotated[list[str], Argument(metavar="ADDRESS...", help="Accounts to fund.")],
    amount: Annotated[str, Option(help="Amount for each, in ether.")],
    home: options.HomeFolder = options.DEFAULT_HOME,
    *,
    node: CappedSenderOptions,
    json: AsJson = False,
) -> None:
    """Pay accounts from the sender's own, for their gas.

    Nothing is sent if the sender cannot pay all of them. After an interruption the command names
    the accounts that were paid, may have been paid, and were not paid. The home's own chain has
    test money only.
    """
    wei = wei_of(amount, "--amount", ETHER_DECIMALS)
    where = node.chain_of(home)
    accounts = recipients(addresses)
    payer: AbstractContextManager[ChainWriter] = where.writer(create=False)
    if where.rpc_url is not None:  # no home is needed
        payer = node.chain(where.rpc_url, where.node_chain_id())
    with payer as chain:
        payments = pay(chain, accounts, wei)
        if json:
            paid = [asdict(payment) for payment in payments]
            print_json({"chain_id": chain.chain_id, "sender": chain.sender, "paid": paid})
            return
    for payment in payments:
        print_line(
            f"{payment.address} received {in_ether(wei)} in block {payment.block}, and owns "
            f"{in_ether(payment.balance_wei)}"
        )


MOST_RECIPIENTS = 1_000
# A plain account needs 21,000; one with code of its own (EIP-7702) may need more.
GAS = 50_000
ZERO_ADDRESS = f"0x{0:040}"
_POLL_SECONDS = 0.05
_AT_ONCE = 16  # geth accepts at least as many pending ones per account


@dataclass(frozen=True, slots=True)
class Payment:
    """A payment to an account, and what that owns afterwards."""

    address: str
    wei: int
    balance_wei: int
    transaction: str
    block: int


def recipients(addresses: Sequence[str]) -> list[str]:
    """Return the accounts to pay, EIP-55, each of them once."""
    if len(addresses) > MOST_RECIPIENTS:
        raise ConfigurationError(f"{len(addresses)} accounts: at most {MOST_RECIPIENTS} at once")
    accounts: list[str] = []
    for address in addresses:
        try:
            account = eip55(address)
        except ChainError as error:
            raise ConfigurationError(str(error)) from None
        if account == ZERO_ADDRESS:
            raise ConfigurationError(f"{address}: payments to the zero address are lost")
        if account in accounts:
            raise ConfigurationError(f"{address} is given twice")
        accounts.append(account)
    return accounts


def pay(chain: ChainWriter, accounts: Sequence[str], wei: int) -> list[Payment]:
    """Pay an amount to each account, and return the payments in that order.

    The message of a failure or an interruption names who was paid, who may be, and who was not.
    """
    from ledger.chain.rpc.rpc_chain import RpcChain

    require_plain_sender(chain, chain.sender)
    if chain.sender in accounts:
        raise ConfigurationError(f"{chain.sender} is the sender's own account")
    gas = 0
    send: Callable[[Sequence[str], int, dict[str, Receipt], dict[str, None]], None]
    balance_of: Callable[[str], int]
    if isinstance(chain, EmbeddedChain):
        own = chain
        send, balance_of = partial(_send_at_home, own), lambda address: own.account(address)[1]
    else:
        assert isinstance(chain, RpcChain), "there are two kinds of chains to write to"
        send, balance_of = partial(_send_by_node, chain), chain.balance_of
        gas = chain.max_cost(GAS) * len(accounts)
    owned = balance_of(chain.sender)
    if owned < wei * len(accounts) + gas:
        raise ConfigurationError(
            f"account {chain.sender} owns {in_ether(owned)}, and is to pay "
            f"{in_ether(wei * len(accounts))} and the gas; nothing was sent"
        )
    sent: dict[str, Receipt] = {}
    unsure: dict[str, None] = {}
    try:
        for first in range(0, len(accounts), _AT_ONCE):
            send(accounts[first : first + _AT_ONCE], wei, sent, unsure)
        balances = [balance_of(address) for address in accounts]
    except (ChainError, KeyboardInterrupt) as error:
        if not (sent or unsure):
            raise
        told = str(error) if isinstance(error, ChainError) else "interrupted"
        unpaid = [account for account in accounts if account not in {*sent, *unsure}]
        for outcome, those in (
            ("paid", [*sent]),
            ("sent, and may still come into a block", [*unsure]),
            ("not paid", unpaid),
        ):
            told += f"; {outcome}: {', '.join(those)}" if those else ""
        kind = ChainError if isinstance(error, ChainError) else InterruptedCommand
        raise kind(told) from error
    return [
        Payment(address, wei, balance, f"0x{receipt.transaction_hash.hex()}", receipt.block_number)
        for address, balance, receipt in zip(accounts, balances, sent.values(), strict=True)
    ]


def _send_at_home(
    own: EmbeddedChain,
    some: Sequence[str],
    wei: int,
    sent: dict[str, Receipt],
    unsure: dict[str, None],  # noqa: ARG001 - nothing is unsure at home
) -> None:
    for address in some:
        sent[address] = own.send(address, b"", GAS, value=wei)


def _send_by_node(
    node: RpcChain, some: Sequence[str], wei: int, sent: dict[str, Receipt], unsure: dict[str, None]
) -> None:
    """Send payments at once, and wait for all that were sent, also after one is refused."""
    waiting: dict[str, InFlightTransaction] = {}
    why: ChainError | None = None
    for address in some:
        # Noted before it is sent: who is interrupted in the middle cannot tell.
        unsure[address] = None
        try:
            waiting[address] = node.submit(address, b"", GAS, value=wei)
        except ChainError as error:
            why = error
            del unsure[address]
            break
    for address, pending in waiting.items():
        try:
            while (receipt := _polled(pending)) is None:
                time.sleep(_POLL_SECONDS)
            sent[address] = receipt
        except TransactionTimeoutError as error:
            why = why or error
            continue
        except ChainError as error:
            why = why or error
        del unsure[address]
    if why is not None:
        raise why


def _polled(pending: InFlightTransaction) -> Receipt | None:
    try:
        return pending.poll()
    except NotServedError:
        return None  # asked again, until the payment's time is over


def _announce(chain: EmbeddedChain, url: str, block_time: float | None) -> None:
    print_line(f"{url} serves chain {chain.chain_id}, at block {chain.head().number}, until Ctrl-C")
    if block_time is None:
        print_line("Each transaction gets a block of its own; there are no other blocks.")
    else:
        print_line(f"A block with all pending transactions is made every {block_time:g} s.")
    print_line("The server has no accounts and signs nothing: send signed transactions.")
    print_line(f"Genesis funds {address_of(TEST_KEYS[0])}, whose key is public and for tests only:")
    print_line(f"  export {options.KEY_VARIABLE}=0x{TEST_KEYS[0].hex()}")
    print_line(f"  {command_line('deploy', '--rpc-url', url, '--chain-id', chain.chain_id)}")


SOURCE = "committee_ledger.vy"

contract_app = options.Commands()


@contract_app.command("abi")
def abi() -> None:
    """Print the contract's ABI as JSON, as wallets, explorers and libraries read it."""
    results().write(json_.dumps([*artifact().abi.values()], indent=1) + "\n")


@contract_app.command("verify")
def verify(source: options.ContractOptions, json: AsJson = False) -> None:
    """Compare a contract's code and creation with this version, and print how to compile it.

    The sources are installed with this program. Plain vyper compiles them to the same bytes.
    Exit code 1: code, creation or an installed source differs. 3: the creation is not checkable.
    """
    expected = artifact()
    target = source.target()
    with target.reader() as chain:
        address = target.address or read_run_manifest(target.run_paths()).address
        code, chain_id = chain.code(address), chain.chain_id
        if not code:
            raise ChainError(f"there is no contract at {address} on chain {chain_id}")
        violation: str | None = "its code is not the artefact's"
        unchecked: str | None = None
        if is_published(code):
            ledger = CommitteeLedger(chain, address)
            try:
                violation = code_violation(ledger, ledger.deployment(), ledger.domain())
            except UncheckableCreationError as error:
                violation, unchecked = None, str(error)
    is_equal, differing = violation is None, differing_sources(expected)
    if json:
        print_json(
            {
                "chain_id": chain_id,
                "address": address,
                "is_published_code": is_equal,
                "violation": violation,
                "unchecked": unchecked,
                "compiler": expected.compiler,
                "sources": expected.sources,
                "differing_sources": differing,
                "compile": _compile_command(),
                "sha256": _compiled_sha256(expected),
            }
        )
    else:
        _print(f"contract {address} on chain {chain_id}", expected, violation, unchecked)
    for name in differing:
        complain(f"{_folder() / name}: is not the source of the published code; reinstall cmfl")
    if violation or differing:
        raise typer.Exit(FAILED)
    raise typer.Exit(INCOMPLETE if unchecked else 0)


def _print(which: str, expected: Artifact, violation: str | None, unchecked: str | None) -> None:
    verdict = f"does NOT have the published code: {violation}"
    if violation is None:
        verdict = f"has the published code; {unchecked}" if unchecked else "has the published code"
    print_line(f"{which} {verdict}", bold=True)
    print_line(f"compile it yourself, with {expected.compiler} and no options:")
    print_line(f"  pip install {expected.compiler.replace(' ', '==')}")
    print_line(f"  {_compile_command()}")
    print_line(f"  {_compiled_sha256(expected)}  is what it prints for the published code")


def _compile_command() -> str:
    return f"vyper -f bytecode,bytecode_runtime {shlex.quote(str(_folder() / SOURCE))} | sha256sum"


def _compiled_sha256(expected: Artifact) -> str:
    """Return the sha256 of what the compiler prints: creation code and runtime code, as lines."""
    lines = f"0x{expected.bytecode.hex()}\n0x{expected.runtime.hex()}\n"
    return hashlib.sha256(lines.encode()).hexdigest()


def _folder() -> Path:
    return Path(str(files("contracts")))


def differing_sources(expected: Artifact) -> list[str]:
    """Return the sources beside the artefact that are not those it was compiled from."""
    return [
        name
        for name, digest in expected.sources.items()
        if hashlib.sha256((_folder() / name).read_bytes()).hexdigest() != digest
    ]
