"""`cmfl audit`: replay a whole run from chain and blobs alone."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import Progress

from cli.console import AsJson, console, print_json, say
from cli.where import DEFAULT_HOME, Address, ChainId, HomeFolder, RpcUrl, RunName, Where

INCOMPLETE = 3
"""Exit code where nothing contradicts, but not everything could be checked."""


def audit(
    home: HomeFolder = DEFAULT_HOME,
    run: RunName = None,
    address: Address = None,
    rpc_url: RpcUrl = None,
    chain_id: ChainId = None,
    report: Annotated[
        Path | None, typer.Option("--report", help="Write the JSON report to this file.")
    ] = None,
    json: AsJson = False,
) -> None:
    """Check every round from the chain and the blobs alone.

    Exit code 0: everything was checked and is true. 1: the record contradicts itself. 3: nothing
    contradicts, but something could not be checked, such as a round whose blobs are gone.
    """
    from ledger.audit.audit import audit as run_audit
    from ledger.audit.codes import Outcome
    from ledger.audit.report import readable

    codes = {Outcome.PASSED: 0, Outcome.FAILED: 1, Outcome.INCOMPLETE: INCOMPLETE}

    where = Where(home, run, address, rpc_url, chain_id)
    with where.reader() as chain:
        ledger = where.ledger(chain)
        with Progress(console=console, transient=True) if not json else nullcontext() as bar:
            if bar is None:
                result = run_audit(ledger, where.blobs())
            else:
                task = bar.add_task("audit", total=None)
                result = run_audit(
                    ledger,
                    where.blobs(),
                    lambda done, total: bar.update(task, completed=done, total=total),
                )
    if report is not None:
        _write(report, result.as_dict())
    if json:
        print_json(result.as_dict())
    else:
        for line in readable(result):
            say(line)
    raise typer.Exit(codes[result.outcome])


def _write(path: Path, value: dict[str, object]) -> None:
    import json as json_module

    from ledger.protocol.errors import ConfigurationError

    try:
        path.write_text(json_module.dumps(value, indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        raise ConfigurationError(f"--report {path}: {error.strerror}") from error
