"""`cmfl serve`: the REST service over a home, read-only, while runs go on."""

from __future__ import annotations

from typing import Annotated

import typer

from cli.console import say
from cli.where import DEFAULT_HOME, ChainId, HomeFolder, RpcUrl


def serve(
    home: HomeFolder = DEFAULT_HOME,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on.")] = 8000,
    rpc_url: RpcUrl = None,
    chain_id: ChainId = None,
) -> None:
    """Serve the round history over REST; see /docs there."""
    from api.serve import serve as serve_app
    from api.settings import Settings

    serve_app(
        Settings(home=home, rpc_url=rpc_url, chain_id=chain_id),
        host,
        port,
        lambda address: say(f"serving {home} at {address}/docs, until Ctrl-C"),
    )
