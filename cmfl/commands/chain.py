"""`cmfl chain` and `cmfl contract`: the home's chain as a node, payments, and the contract."""

from __future__ import annotations

import hashlib
import json as json_
import shlex
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer
from typer import Argument, Option

from cmfl.commands import FAILED, INCOMPLETE, InterruptedCommand, options
from cmfl.commands.application import Commands
from cmfl.commands.console import (
    AsJson,
    command_line,
    complain,
    print_json,
    print_line,
    print_lines,
)
from cmfl.commands.process import results, until_interrupted
from cmfl.commands.sender import ETHER_DECIMALS, CappedSenderOptions, in_ether, wei_of
from cmfl.where import HOME, Target
from contracts.build import CONTRACT, HERE, standard_input
from ledger.chain.contract.abi import Artifact, artifact
from ledger.chain.contract.deploy import code_violation, creation_data, is_published, require_code
from ledger.chain.contract.ledger import CommitteeLedger, read_run_manifest
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
    from ledger.chain.embedded.embedded_chain import EmbeddedChain
    from ledger.chain.rpc.rpc_chain import RpcChain
    from ledger.chain.rpc.sender import InFlightTransaction


chain_app = Commands()


@chain_app.command("serve")
def serve(
    home: options.HomeFolder = HOME,
    port: Annotated[
        int, Option(min=0, max=65535, help="Port to listen on, on this machine only.")
    ] = 8545,
    block_time: Annotated[
        float | None,
        "Seconds between blocks. Default: one block for each transaction.",
        Option(min=0.1, max=3600),
    ] = None,
    chain_id: options.ChainId = None,
) -> None:
    """Serve the home's own chain over JSON-RPC on this machine.

    The chain is created if it does not exist. The server has no accounts and signs nothing. While
    it runs, other commands write to the chain only through it.
    """
    from ledger.chain.embedded.evm import TEST_KEYS, address_of
    from ledger.chain.rpc.server import RpcServer

    with Target(home, chain_id=chain_id).writer() as opened:
        chain = cast("EmbeddedChain", opened)
        with RpcServer(chain, port=port, block_seconds=block_time) as server, until_interrupted():
            url, head = server.url, chain.head().number
            blocks = "Each transaction gets its own block; there are no other blocks."
            if block_time is not None:
                blocks = f"A block with all pending transactions is made every {block_time:g} s."
            funded = f"Genesis funds {address_of(TEST_KEYS[0])}"
            deploy = command_line("deploy", rpc_url=url, chain_id=chain.chain_id)
            print_lines(
                [
                    f"{url} serves chain {chain.chain_id}, at block {head}, until Ctrl-C",
                    blocks,
                    "The server has no accounts and signs nothing: send signed transactions.",
                    f"{funded}, whose key is public and for tests only:",
                    f"  export {options.KEY_VARIABLE}=0x{TEST_KEYS[0].hex()}",
                    f"  {deploy}",
                ]
            )
            server.wait()


@chain_app.command("fund")
def fund(
    addresses: Annotated[list[str], Argument(metavar="ADDRESS...", help="Accounts to fund.")],
    amount: Annotated[str, "Amount for each account, in ether."],
    home: options.HomeFolder = HOME,
    *,
    node: CappedSenderOptions,
    json: AsJson = False,
) -> None:
    """Send ether from the sender's account to others, for gas.

    If the sender cannot pay all accounts, nothing is sent. After an interruption, the command lists
    the accounts that were paid, that may have been paid, and that were not paid. The home's own
    chain has test money only.
    """
    wei, where = wei_of(amount, "--amount", ETHER_DECIMALS), node.chain_of(home)
    accounts = recipients(addresses)
    payer: AbstractContextManager[ChainWriter] = where.writer(create=False)
    if where.rpc_url is not None:  # no home is needed
        payer = node.chain(where.rpc_url, where.node_chain_id())
    with payer as chain:
        payments = pay(chain, accounts, wei)
        if json:
            print_json({"chain_id": chain.chain_id, "sender": chain.sender, "paid": payments})
            return
    for payment in payments:
        received = f"received {in_ether(wei)} in block {payment['block']}"
        print_line(f"{payment['address']} {received}, and owns {in_ether(payment['balance_wei'])}")


MOST_RECIPIENTS = 1_000
# A plain account needs 21,000; one with code of its own (EIP-7702) may need more.
GAS = 50_000
_POLL_SECONDS = 0.05
_AT_ONCE = 16  # geth accepts at least as many pending ones per account


def recipients(addresses: Sequence[str]) -> list[str]:
    """Return the accounts to pay, EIP-55, each of them once."""
    if len(addresses) > MOST_RECIPIENTS:
        raise ConfigurationError(f"{len(addresses)} accounts; at most {MOST_RECIPIENTS} at once")
    accounts: list[str] = []
    for address in addresses:
        try:
            account = eip55(address)
        except ChainError as error:
            raise ConfigurationError(str(error)) from None
        if account == f"0x{0:040}":
            raise ConfigurationError(f"{address}: is the zero address, and payments to it are lost")
        if account in accounts:
            raise ConfigurationError(f"{address} is given twice")
        accounts.append(account)
    return accounts


def pay(chain: ChainWriter, accounts: Sequence[str], wei: int) -> list[dict[str, Any]]:
    """Pay an amount to each account; return the payments, and what each account then owns.

    The message of a failure or an interruption names who was paid, who may be, and who was not.
    """
    from ledger.chain.embedded.embedded_chain import EmbeddedChain
    from ledger.chain.rpc.rpc_chain import RpcChain

    require_plain_sender(chain, chain.sender)
    if chain.sender in accounts:
        raise ConfigurationError(f"{chain.sender} is the sender's own account")
    assert isinstance(chain, EmbeddedChain | RpcChain), "there are two kinds of chains to write to"

    def balance_of(address: str) -> int:
        if isinstance(chain, EmbeddedChain):
            return chain.account(address)[1]
        return chain.balance_of(address)

    gas = 0 if isinstance(chain, EmbeddedChain) else chain.max_cost(GAS) * len(accounts)
    owned = balance_of(chain.sender)
    if owned < wei * len(accounts) + gas:
        raise ConfigurationError(
            f"account {chain.sender} has {in_ether(owned)}, and needs "
            f"{in_ether(wei * len(accounts))} plus gas; nothing was sent"
        )
    sent: dict[str, Receipt] = {}
    unsure: dict[str, None] = {}
    try:
        for first in range(0, len(accounts), _AT_ONCE):
            some = accounts[first : first + _AT_ONCE]
            if isinstance(chain, RpcChain):
                _send_by_node(chain, some, wei, sent, unsure)
                continue
            for address in some:
                sent[address] = chain.send(address, b"", GAS, value=wei)
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
        {
            "address": address,
            "wei": wei,
            "balance_wei": balance,
            "transaction": f"0x{receipt.transaction_hash.hex()}",
            "block": receipt.block_number,
        }
        for address, balance, receipt in zip(accounts, balances, sent.values(), strict=True)
    ]


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
            receipt = None
            while receipt is None:
                with suppress(NotServedError):  # asked again, until the payment's time is over
                    receipt = pending.poll()
                if receipt is None:
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


contract_app = Commands()


@contract_app.command("abi")
def abi() -> None:
    """Print the contract's ABI as JSON, for wallets, explorers and libraries."""
    results().write(json_.dumps([*artifact().abi.values()], indent=1) + "\n")


@contract_app.command("verify")
def verify(source: options.ContractOptions, json: AsJson = False) -> None:
    """Compare a contract's code and creation with this version, and print the compiler command.

    The sources are installed with this program. The plain vyper compiler produces the same bytes.

    Exit codes: 1, code, creation or an installed source differs. 3, the creation is not checkable.
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
    differing, path = differing_sources(expected), HERE / "committee_ledger.vy"
    compiling = f"vyper -f bytecode,bytecode_runtime {shlex.quote(str(path))} | sha256sum"
    # The compiler prints creation code and runtime code, as lines.
    printed = f"0x{expected.bytecode.hex()}\n0x{expected.runtime.hex()}\n"
    sha256 = hashlib.sha256(printed.encode()).hexdigest()
    verdict = f"does NOT have the published code: {violation}"
    if violation is None:
        verdict = f"has the published code; {unchecked}" if unchecked else "has the published code"
    if json:
        print_json(
            {
                "chain_id": chain_id,
                "address": address,
                "is_published_code": violation is None,
                "violation": violation,
                "unchecked": unchecked,
                "compiler": expected.compiler,
                "sources": expected.sources,
                "differing_sources": differing,
                "compile": compiling,
                "sha256": sha256,
            }
        )
    else:
        print_line(f"contract {address} on chain {chain_id} {verdict}", bold=True)
        print_line(f"compile it yourself, with {expected.compiler} and no options:")
        print_line(f"  pip install {expected.compiler.replace(' ', '==')}")
        print_line(f"  {compiling}")
        print_line(f"  {sha256}  is its output for the published code")
    for name in differing:
        complain(f"{HERE / name}: is not the source of the published code; reinstall cmfl")
    if violation or differing:
        raise typer.Exit(FAILED)
    raise typer.Exit(INCOMPLETE if unchecked else 0)


@contract_app.command("source")
def source(
    source: options.ContractOptions,
    standard_json: Annotated[
        bool, "Print the compiler's JSON input. Other lines go to standard error."
    ] = False,
) -> None:
    """Print the input that Sourcify, Etherscan and Blockscout need to verify the source."""
    if differing := differing_sources(artifact()):
        raise ConfigurationError(f"{HERE / differing[0]} was changed; reinstall cmfl")
    target = source.target()
    with target.reader() as chain:
        address = target.address or read_run_manifest(target.run_paths()).address
        require_code(chain, address)
        creation = creation_data(CommitteeLedger(chain, address).deployment())
        say = complain if standard_json else print_line
        say(f"contract {address} on chain {chain.chain_id}")
    if standard_json:
        results().write(json_.dumps(standard_input()) + "\n")
    say(f"name {CONTRACT}:{Path(CONTRACT).stem}, compiled with {artifact().compiler}")
    say(f"constructor arguments {creation[len(artifact().bytecode) :].hex()}")


def differing_sources(expected: Artifact) -> list[str]:
    """Return the sources next to the artefact that differ from the compiled ones."""
    return [
        name
        for name, digest in expected.sources.items()
        if hashlib.sha256((HERE / name).read_bytes()).hexdigest() != digest
    ]
