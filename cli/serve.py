"""`cmfl serve`: the REST service over a home, read-only, while runs go on."""

from __future__ import annotations

import socket
from typing import Annotated

import typer

from cli.console import print_line
from cli.options import DEFAULT_HOME, ChainId, HomeFolder, RpcUrl
from cli.where import Where
from ledger.protocol.errors import ConfigurationError


def serve(
    home: HomeFolder = DEFAULT_HOME,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on.")] = 8000,
    rpc_url: RpcUrl = None,
    chain_id: ChainId = None,
) -> None:
    """Serve the round history over REST; see /docs there."""
    from pydantic import ValidationError

    from api.serve import serve as serve_app
    from api.settings import Settings

    where = Where(home, rpc_url=rpc_url, chain_id=chain_id)
    if rpc_url is None and chain_id is not None:
        with where.reader():  # the home's own chain has the id that is asked for
            chain_id = None
    elif rpc_url is not None:
        where.node_chain_id()
    try:
        settings = Settings(home=home, rpc_url=rpc_url, chain_id=chain_id)
    except ValidationError as error:
        raise ConfigurationError(f"--rpc-url: {error.errors()[0]['msg']}") from error
    serve_app(
        settings,
        host,
        port,
        lambda address: print_line(f"serving {home} at {address}/ and /docs, until Ctrl-C"),
    )


def port_is_taken(port: int) -> bool:
    """Return whether somebody listens on a port of this machine.

    Args:
        port: above 0.
    """
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0
