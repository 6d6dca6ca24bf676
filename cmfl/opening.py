"""Recorded runs by their place, and homes: the one that is named, or a temporary one."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from multiprocessing.util import Finalize
from pathlib import Path

from cmfl.arguments import SECONDS, checked, naming, require
from cmfl.display import Table
from cmfl.recorded import Run
from cmfl.where import API_SECONDS, RemoteService, Target, open_deployment, target_on_node
from ledger.io.home import RUN_NAME, Home
from ledger.protocol.errors import ConfigurationError


@checked
def open(  # noqa: A001 - read as cmfl.open
    home: str | Path | None = None,
    name: str | None = None,
    *,
    rpc_url: str | None = None,
    address: str | None = None,
    chain_id: int | None = None,
    blobs: str | Path | None = None,
) -> Run:
    """Return a recorded run of a home, or of a contract on a node's chain.

    Nothing is held open: files and chain are read when the run is asked, also while another process
    plays it.

    Args:
        home: folder of chain, blobs and runs.
        name: of the run; needed where the home has several.
        rpc_url: a node to read in place of the home's own chain, with `address`.
        address: of the contract on that chain, 0x-hex.
        chain_id: that the node must have; None accepts the node's own.
        blobs: URL or folder of the blobs, with `rpc_url`.

    Raises:
        ConfigurationError: there is no such home or run, or several are meant.
        ChainError: the node is unreachable, or has another chain id.
    """
    if rpc_url is None:
        if home is None or address is not None or chain_id is not None or blobs is not None:
            raise ConfigurationError("name a home, or rpc_url=, address= and blobs= together")
        target = target_of(Path(home), name)
        return Run(target, target.run or "")
    if home is not None or address is None or blobs is None:
        raise ConfigurationError("rpc_url= goes with address= and blobs=, and without a home")
    run = Run(target_on_node(rpc_url, address, chain_id, str(blobs)), name or "")
    run.snapshot()  # refused now, not at the first question
    return run


@checked
def connect(
    url: str,
    name: str | None = None,
    *,
    address: str | None = None,
    chain_id: int | None = None,
    token: str | None = None,
    timeout_seconds: float = API_SECONDS,
) -> Run:
    """Return a run that a service (`cmfl serve`) gives; nothing of it is trusted by an audit.

    Args:
        url: of the service, without `/v1`.
        name: of the run; needed where the service has several and no `address` is given.
        address: of the contract, 0x-hex.
        chain_id: of its chain; needed where the service has several.
        token: bearer token, where the service asks for one.
        timeout_seconds: for one answer.

    Raises:
        ConfigurationError: none or several runs match; the message lists them.
        ServiceError: the service does not answer.
    """
    require(SECONDS, timeout_seconds=timeout_seconds)
    remote = RemoteService(url, token, timeout_seconds)
    target = Target(run=name, address=address, chain_id=chain_id, remote=remote)
    with open_deployment(target) as deployment:
        found = deployment.details()
    served = Target(run=name, address=found["address"], chain_id=chain_id, remote=remote)
    return Run(served, found["run"])


@checked
def runs(home: str | Path) -> Table:
    """Return a row for each run of a home: rounds, accuracy and its floor, attackers, head.

    Accuracy and attackers are claims of the runs' own files; `cmfl.audit` proves the decisions.

    Raises:
        ConfigurationError: there is no such home, or no run in it.
    """
    path = Path(home)
    return Table(_row(Run(Target(path, name), name)) for name in names_in(path))


def target_of(home: Path, name: str | None) -> Target:
    """Return the target of a run in a home."""
    names = names_in(home)
    if name is not None:
        if name not in names:
            raise ConfigurationError(
                f"{home}: there is no run {name!r}; there are {', '.join(names)}"
            )
        return Target(home, name)
    if len(names) > 1:
        raise ConfigurationError(f"{home}: has several runs, name one of {', '.join(names)}")
    return Target(home, names[0])


def names_in(home: Path) -> list[str]:
    """Return the names of a home's runs."""
    folder = Home(home).runs
    with naming(home):  # it may be too long
        is_there = folder.is_dir()
    names = [path.name for path in folder.iterdir() if path.is_dir()] if is_there else []
    there = sorted(name for name in names if RUN_NAME.fullmatch(name))
    if not there:
        raise ConfigurationError(f"there is no run in {home}: make one by cmfl run")
    return there


def _row(run: Run) -> dict[str, object]:
    snapshot = run.snapshot()
    ended = [each for each in snapshot.rounds if each.status != "open"]
    return {
        "run": run.name,
        "ledger": "memory" if snapshot.address is None else "chain",
        "rounds": len(ended),
        "of": snapshot.total,
        "accuracy": run.accuracy,
        "floor": run.floor,
        "accepted": sum(each.accepted or 0 for each in ended),
        "malicious_accepted": sum(each.malicious_accepted or 0 for each in ended),
        "head": snapshot.head,
    }


_PREFIX = "cmfl-"
_LOCK = "in-use"


@contextmanager
def opened_home(path: str | Path | None) -> Iterator[Path]:
    """Yield the folder of a home; None for a new temporary one.

    A temporary home is removed when the context fails, and else when this process ends; `Run.save`
    copies it before.
    """
    if path is None:
        folder = _new_folder()
        try:
            yield folder / "home"
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        return
    folder = Path(path)
    # Not Path.exists, which fails for a name that is too long.
    if os.path.lexists(folder) and not folder.is_dir():
        raise ConfigurationError(f"home {folder}: is there already, and is no folder")
    yield folder


@contextmanager
def temporary_folder() -> Iterator[Path]:
    """Yield a new folder, which is removed with the context."""
    folder = _new_folder()
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _new_folder() -> Path:
    return Path(tempfile.mkdtemp(dir=_folder_of_process(os.getpid(), tempfile.gettempdir())))


@cache
def _folder_of_process(process: int, place: str) -> Path:  # noqa: ARG001 - a key of the cache
    """Make the folder of a process's temporary folders, and remove those of ended processes.

    A pool ends its workers by a signal, which leaves them no time to clear up: the next process
    does it.
    """
    for folder in Path(place).glob(f"{_PREFIX}*"):
        if _is_abandoned(folder):
            shutil.rmtree(folder, ignore_errors=True)
    folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=place))
    new = folder / f"{_LOCK}.new"
    # Held until the process ends, however it ends.
    fcntl.flock(os.open(new, os.O_CREAT | os.O_WRONLY, 0o600), fcntl.LOCK_EX)
    new.rename(folder / _LOCK)  # never to be seen unlocked
    # Not atexit, which the processes of a pool do not heed. Not of a child that was forked later.
    Finalize(None, shutil.rmtree, (folder,), {"ignore_errors": True}, exitpriority=0)
    return folder


def _is_abandoned(folder: Path) -> bool:
    """Return whether a folder is this user's, and of a process that has ended."""
    with suppress(OSError):
        if folder.is_symlink() or folder.stat().st_uid != os.getuid():
            return False
        with (folder / _LOCK).open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
    return False
