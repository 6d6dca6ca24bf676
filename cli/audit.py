"""`cmfl audit`: replay a whole run from chain and blobs alone."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cli.codes import FAILED, INCOMPLETE, WRONG
from cli.console import AsJson, complain, print_json, print_line, progress
from cli.options import DEFAULT_HOME, Address, ChainId, Head, HomeFolder, RpcUrl, RunName
from cli.where import Where
from ledger.protocol.errors import ConfigurationError

if TYPE_CHECKING:
    from ledger.audit.report import AuditReport


def audit(
    home: HomeFolder = DEFAULT_HOME,
    run: RunName = None,
    address: Address = None,
    rpc_url: RpcUrl = None,
    chain_id: ChainId = None,
    blobs: Annotated[
        str | None,
        typer.Option("--blobs", help="Where the blobs are, a URL or a folder; else in the home."),
    ] = None,
    head: Head = None,
    strict: Annotated[
        bool,
        typer.Option("--strict", help="Take a remark for something that could not be checked."),
    ] = False,
    report: Annotated[
        Path | None, typer.Option("--report", help="Write the JSON report to this file.")
    ] = None,
    json: AsJson = False,
) -> None:
    """Check every round from the chain and the blobs alone.

    Exit code 0: everything was checked and is true. 1: the record contradicts itself. 3: nothing
    contradicts, but something could not be checked, such as a round whose blobs are gone. With
    --rpc-url, --address and --blobs nothing of the home is needed.
    """
    from ledger.audit.codes import Outcome
    from ledger.audit.report import readable

    if report is not None:
        _require_writable(report)
    result = _audited(Where(home, run, address, rpc_url, chain_id, blobs), head, strict)
    if json:
        print_json(result.as_dict())
    else:
        for line in readable(result):
            print_line(line)
    code = {Outcome.PASSED: 0, Outcome.FAILED: FAILED, Outcome.INCOMPLETE: INCOMPLETE}
    written = report is None or _written(report, result)
    raise typer.Exit(code[result.outcome] or (0 if written else WRONG))


def _audited(where: Where, head: str | None, strict: bool) -> AuditReport:
    from ledger.audit.audit import audit as run_audit
    from ledger.protocol.types import Digest

    kept = None if head is None else Digest(bytes.fromhex(head.removeprefix("0x")))
    with where.reader() as chain, progress() as bar:
        task = bar.add_task("audit", total=None)
        return run_audit(
            where.ledger(chain),
            where.published(),
            lambda done, total: bar.update(task, completed=done, total=total),
            head=kept,
            strict=strict,
        )


def _require_writable(path: Path) -> None:
    """Refuse a report's file that cannot be written, before the audit has taken its time.

    Raises:
        ConfigurationError: names the file and what is wrong with it.
    """
    if path.is_dir():
        raise ConfigurationError(f"--report {path}: is a folder, must be a file")
    if not path.parent.is_dir():
        raise ConfigurationError(f"--report {path}: there is no folder {path.parent}")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise ConfigurationError(f"--report {path}: may not be written")


def _written(path: Path, result: AuditReport) -> bool:
    """Write the report; say so on standard error if that fails, because the verdict stands."""
    import json as json_module

    try:
        path.write_text(json_module.dumps(result.as_dict(), indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        complain(f"--report {path}: {error.strerror}: the report is not there, or not whole")
        return False
    return True
