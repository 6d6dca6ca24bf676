"""`cmfl doctor`: what is installed, what works, and what a home looks like."""

from __future__ import annotations

import hashlib
import platform
import shutil
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

import typer

from cli.console import AsJson, print_json, say
from cli.where import DEFAULT_HOME, ChainId, HomeFolder, RpcUrl, Where
from ledger.home import Home
from ledger.protocol.errors import CmflError, JournalError

if TYPE_CHECKING:
    from collections.abc import Callable


def doctor(
    home: HomeFolder = DEFAULT_HOME,
    rpc_url: RpcUrl = None,
    chain_id: ChainId = None,
    json: AsJson = False,
) -> None:
    """Check the installation and, where there is one, the home; exit 1 if something is wrong."""
    where = Where(home, rpc_url=rpc_url, chain_id=chain_id)
    checks: dict[str, Callable[[], str]] = {
        "python": platform.python_version,
        "signatures": _signatures,
        "contract artefact": _artefact,
        "torch": _torch,
        "chain": lambda: _chain(where),
        "vote journals": lambda: _journals(where),
        "disk": lambda: _disk(where),
    }
    rows = []
    for name, check in checks.items():
        try:
            rows.append({"check": name, "ok": True, "found": check()})
        except CmflError as error:
            rows.append({"check": name, "ok": False, "found": str(error)})
    if json:
        print_json(rows)
    else:
        for row in rows:
            say(f"{'ok  ' if row['ok'] else 'FAIL'} {row['check']:18} {row['found']}")
    raise typer.Exit(0 if all(row["ok"] for row in rows) else 1)


def _signatures() -> str:
    from ledger.protocol.encoding import keccak256
    from ledger.protocol.signing import KeySigner, recover

    signer = KeySigner(keccak256(b"PUBLIC TEST KEY of cmfl doctor"))
    digest = keccak256(b"a message")
    if recover(digest, signer.sign(digest)) != signer.address:
        raise CmflError("a signature does not recover to its signer")
    return "secp256k1 signs and recovers"


def _artefact() -> str:
    from importlib.resources import files

    from ledger.chain.contract.abi import artifact

    for name, digest in artifact().sources.items():
        found = hashlib.sha256((files("contracts") / name).read_bytes()).hexdigest()
        if found != digest:
            raise CmflError(f"contracts/{name} is not what the artefact was compiled from")
    return f"{artifact().compiler}, {len(artifact().runtime)} bytes, sources match"


def _torch() -> str:
    try:
        import torch
    except ImportError:
        return "not installed: audit and serve work, run and deploy do not"
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "no GPU"
    return f"{torch.__version__}, {device}"


def _chain(where: Where) -> str:
    if where.rpc_url is None and not where.chain_file.exists():
        return f"none yet in {where.home}"
    with where.reader() as chain:
        head = chain.head()
        return f"chain {chain.chain_id}, block {head.number}, 0x{head.hash.hex()}"


def _journals(where: Where) -> str:
    """Return what the runs' keys have signed: without it they may sign nothing any more."""
    found = []
    for path in Home(where.home).journals():
        # Not read-only: a killed run may have left a transaction to be taken back.
        uri = f"{path.absolute().as_uri()}?mode=rw"
        try:
            with closing(sqlite3.connect(uri, uri=True)) as base:
                (count,) = base.execute("SELECT count(*) FROM statements").fetchone()
        except sqlite3.Error as error:
            raise JournalError(f"{path}: {error}") from error
        found.append(f"{path.parent.name}: {count} statements")
    return ", ".join(found) or f"none yet in {where.home}"


def _disk(where: Where) -> str:
    folder = where.home if where.home.exists() else where.home.absolute().parent
    while not folder.exists():
        folder = folder.parent
    free = shutil.disk_usage(folder).free
    if free < 100_000_000:
        raise CmflError(f"only {free // 1_000_000} MB are free at {folder}")
    return f"{free / 1e9:.1f} GB free"
