"""`cmfl serve`: the REST service over a home, read-only, while runs go on."""

from __future__ import annotations

import socket
from typing import Annotated

import typer

from cmfl.commands.console import print_line
from cmfl.commands.interrupts import until_interrupted
from cmfl.commands.option_groups import expand_groups
from cmfl.commands.options import DEFAULT_HOME, HomeFolder
from cmfl.commands.service_options import ServiceOptions
from cmfl.commands.source_options import NodeOptions


@expand_groups
def serve(
    home: HomeFolder = DEFAULT_HOME,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on.")] = 8000,
    *,
    node: NodeOptions,
    service: ServiceOptions,
) -> None:
    """Serve the round history over REST, with a dashboard; /openapi.json describes it."""
    from api.serve import serve as serve_app

    target, rpc_url, chain_id = node.chain_of(home), node.rpc_url, node.chain_id
    if rpc_url is None and chain_id is not None:
        with target.reader():  # it checks the id of the home's own chain
            chain_id = None
    elif rpc_url is not None:
        target.node_chain_id()
    settings = service.settings(home=home, rpc_url=rpc_url, chain_id=chain_id)
    with until_interrupted():
        serve_app(
            settings,
            host,
            port,
            lambda address: print_line(f"serving {home} at {address}/ until Ctrl-C"),
        )


def is_port_taken(port: int) -> bool:
    """Return whether a process listens on a port of this machine."""
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0
