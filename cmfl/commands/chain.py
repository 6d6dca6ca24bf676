"""`cmfl chain`: the home's own chain as a node, and gas for other accounts."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, cast

import typer

from cmfl.commands.amounts import ETHER_DECIMALS, wei_of
from cmfl.commands.console import AsJson, command_line, print_json, print_line
from cmfl.commands.interrupts import until_interrupted
from cmfl.commands.option_groups import expand_groups
from cmfl.commands.options import DEFAULT_HOME, KEY_VARIABLE, ChainId, HomeFolder
from cmfl.commands.sender import in_ether
from cmfl.commands.source_options import CappedSenderOptions
from cmfl.where import Target
from ledger.chain.ports import ChainWriter

if TYPE_CHECKING:
    from ledger.chain.embedded.embedded_chain import EmbeddedChain

app = typer.Typer(
    help="Serve the home's own chain to other programs; fund accounts.", no_args_is_help=True
)


@app.command("serve")
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
    from ledger.chain.rpc.server.http_server import RpcServer

    where = Target(home, chain_id=chain_id)
    with (
        where.writer() as chain,
        RpcServer(cast("EmbeddedChain", chain), port=port, block_seconds=block_time) as server,
        until_interrupted(),
    ):
        _announce(cast("EmbeddedChain", chain), server.url, block_time)
        server.wait()


@app.command("fund")
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
    from cmfl.commands.paying import pay, recipients

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
