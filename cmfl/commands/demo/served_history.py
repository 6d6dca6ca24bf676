"""The service over what a demo has made, and where a person sees all of it."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from cmfl.access.target import Target
from cmfl.commands.console import command_line, print_line
from cmfl.commands.interrupts import until_interrupted
from cmfl.commands.serve import is_port_taken
from cmfl.commands.streams import results

if TYPE_CHECKING:
    from pathlib import Path

MOST_PORTS = 100
"""How many are looked at for one on which nobody listens."""


def serve_runs(home: Path, run: str, port: int) -> None:
    """Serve the history: until interrupted at a terminal, else just long enough to show it.

    Args:
        home: of the runs.
        run: that is linked to.
        port: the first to look at.

    Raises:
        ConfigurationError: no port near it is free.
    """
    from api.serve import serve
    from api.settings import Settings

    requested, port = port, free_port(port)
    if port != requested:
        print_line(f"Port {requested} is taken, and {port} is the next that is free.")
    address = f"http://127.0.0.1:{port}"
    settings, shown = Settings(home=home), f"{address}{_page_of(home, run)}"
    if results().isatty():
        print_line()
        _say_where(address, run, shown)
        print_line("Ctrl-C ends the service.")
        with until_interrupted():
            serve(settings, "127.0.0.1", port)
        return
    threading.Thread(target=serve, args=(settings, "127.0.0.1", port), daemon=True).start()
    count = len(_get(f"{address}/v1/status")["deployments"])
    print_line(f"REST service at {address} answered: {count} runs.")
    _say_where(address, run, shown)
    print_line(f"Start it again with: {command_line('serve', '--home', home, '--port', port)}")


def free_port(port: int) -> int:
    """Return the first free port of this machine, from the given one on.

    Args:
        port: the first to look at, above 0.

    Raises:
        ConfigurationError: there is none among those that are looked at.
    """
    from ledger.protocol.errors import ConfigurationError

    looked_at = range(port, min(port + MOST_PORTS, 65536))
    free = next((number for number in looked_at if not is_port_taken(number)), None)
    if free is None:
        raise ConfigurationError(
            f"--port {port}: it is taken, and so are the {len(looked_at) - 1} ports after it"
        )
    return free


def _page_of(home: Path, run: str) -> str:
    """Return the path of a run's page on the dashboard."""
    where = Target(home, run)
    with where.reader() as chain:
        path = where.history(chain).path
    return f"/dashboard/#/runs/{path.chain.name}/{path.address}"


def _say_where(address: str, run: str, shown: str) -> None:
    """Print each link on its own line, so that no terminal wraps it."""
    print_line(f"{run} on the dashboard:")
    print_line(f"  {shown}", bold=True)
    print_line(f"All runs: {address}/dashboard/  REST: {address}/openapi.json")


def _get(url: str) -> dict[str, list[object]]:
    """Return a JSON answer, waiting for the service to come up."""
    import json
    import urllib.request

    for attempt in range(50):
        try:
            with urllib.request.urlopen(url, timeout=5) as answer:  # noqa: S310 - our own address
                value: dict[str, list[object]] = json.load(answer)
                return value
        except OSError:
            if attempt == 49:
                raise
            time.sleep(0.1)
    raise AssertionError("the loop above returns or raises")
