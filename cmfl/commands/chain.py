"""`cmfl chain` and `cmfl contract`: the home's chain as a node, and the contract."""

from __future__ import annotations

import hashlib
import json as json_
import shlex
from contextlib import AbstractContextManager
from dataclasses import asdict
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from cmfl.commands.console import AsJson, command_line, complain, print_json, print_line
from cmfl.commands.exit_codes import FAILED, INCOMPLETE
from cmfl.commands.interrupts import until_interrupted
from cmfl.commands.options import DEFAULT_HOME, KEY_VARIABLE, ChainId, HomeFolder, expand_groups
from cmfl.commands.sender import ETHER_DECIMALS, in_ether, wei_of
from cmfl.commands.sources import CappedSenderOptions, ContractOptions
from cmfl.commands.streams import results
from cmfl.where import Target
from ledger.chain.ports import ChainWriter

if TYPE_CHECKING:
    from ledger.chain.contract.abi import Artifact
    from ledger.chain.embedded.embedded_chain import EmbeddedChain


chain_app = typer.Typer(
    help="Serve the home's own chain to other programs; fund accounts.", no_args_is_help=True
)


@chain_app.command("serve")
def serve(
    home: HomeFolder = DEFAULT_HOME,
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port to listen on, of this machine only.")
    ] = 8545,
    block_time: Annotated[
        float | None,
        typer.Option(
            min=0.1,
            max=3600,
            help="Seconds from block to block; by default each transaction gets a block.",
        ),
    ] = None,
    chain_id: ChainId = None,
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
@expand_groups
def fund(
    addresses: Annotated[list[str], typer.Argument(metavar="ADDRESS...", help="Accounts to fund.")],
    amount: Annotated[str, typer.Option(help="Amount for each, in ether.")],
    home: HomeFolder = DEFAULT_HOME,
    *,
    node: CappedSenderOptions,
    json: AsJson = False,
) -> None:
    """Pay accounts from the sender's own, for their gas.

    Nothing is sent if the sender cannot pay all of them. After an interruption the command names
    the accounts that were paid, may have been paid, and were not paid. The home's own chain has
    test money only.
    """
    from cmfl.commands.sender import pay, recipients

    wei = wei_of(amount, "--amount", ETHER_DECIMALS)
    where, sender = node.chain_of(home), node.sender()
    accounts = recipients(addresses)
    payer: AbstractContextManager[ChainWriter] = where.writer(create=False)
    if where.rpc_url is not None:  # no home is needed
        payer = sender.chain(where.rpc_url, where.node_chain_id())
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


def _announce(chain: EmbeddedChain, url: str, block_time: float | None) -> None:
    from ledger.chain.embedded.evm import TEST_KEYS, address_of

    print_line(f"{url} serves chain {chain.chain_id}, at block {chain.head().number}, until Ctrl-C")
    if block_time is None:
        print_line("Each transaction gets a block of its own; there are no other blocks.")
    else:
        print_line(f"A block with all pending transactions is made every {block_time:g} s.")
    print_line("The server has no accounts and signs nothing: send signed transactions.")
    print_line(f"Genesis funds {address_of(TEST_KEYS[0])}, whose key is public and for tests only:")
    print_line(f"  export {KEY_VARIABLE}=0x{TEST_KEYS[0].hex()}")
    print_line(f"  {command_line('deploy', '--rpc-url', url, '--chain-id', chain.chain_id)}")


SOURCE = "committee_ledger.vy"

contract_app = typer.Typer(
    help="The contract: its interface, and whether its code is the published one.",
    no_args_is_help=True,
)


@contract_app.command("abi")
def abi() -> None:
    """Print the contract's ABI as JSON, as wallets, explorers and libraries read it."""
    from ledger.chain.contract.abi import artifact

    results().write(json_.dumps([*artifact().abi.values()], indent=1) + "\n")


@contract_app.command("verify")
@expand_groups
def verify(source: ContractOptions, json: AsJson = False) -> None:
    """Compare a contract's code and creation with this version, and print how to compile it.

    The sources are installed with this program. Plain vyper compiles them to the same bytes.
    Exit code 1: code, creation or an installed source differs. 3: the creation is not checkable.
    """
    from ledger.chain.contract.abi import artifact
    from ledger.chain.contract.deploy import code_violation, is_published
    from ledger.chain.contract.ledger import CommitteeLedger
    from ledger.chain.contract.manifest import read_run_manifest
    from ledger.chain.ports import UncheckableCreationError
    from ledger.protocol.errors import ChainError

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
