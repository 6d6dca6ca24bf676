"""Options that name a run's chain, store and contract, and files in a home."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import typer

from cmfl.arguments import naming
from cmfl.commands.console import complain
from cmfl.commands.options import (
    DEFAULT_HOME,
    Address,
    Api,
    ApiTimeout,
    ApiTokenFile,
    BlobsAt,
    ChainId,
    Confirmations,
    HomeFolder,
    Keystore,
    MaxFee,
    MaxTip,
    PasswordFile,
    RpcUrl,
    Rules,
    RunName,
)
from cmfl.commands.sender import Sender, only_keystore
from cmfl.where import API_SECONDS, RemoteService, Target
from ledger.io.home import Home, is_standard_output, is_written_into, write_named
from ledger.protocol.errors import ConfigurationError


@dataclass(frozen=True, slots=True)
class NodeOptions:
    """A node in place of the home's own chain."""

    rpc_url: RpcUrl = None
    chain_id: ChainId = None

    def chain_of(self, home: Path, run: str | None = None) -> Target:
        """Return the node, or the own chain of a home."""
        return Target(home, run, rpc_url=self.rpc_url, chain_id=self.chain_id)


@dataclass(frozen=True, slots=True)
class SenderOptions(NodeOptions):
    """A node, and the account that signs there."""

    keystore: Keystore = None
    password_file: PasswordFile = None
    confirmations: Confirmations = None

    def sender(self) -> Sender:
        """Return who signs, and with which limits."""
        keystore = only_keystore(self.keystore) if self.keystore else None
        limits = getattr(self, "max_fee", None), getattr(self, "max_tip", None)
        return Sender(keystore, self.password_file, self.confirmations, *limits)


@dataclass(frozen=True, slots=True)
class CappedSenderOptions(SenderOptions):
    """A node, and the account that signs there for limited fees."""

    max_fee: MaxFee = None
    max_tip: MaxTip = None


@dataclass(frozen=True, slots=True)
class ContractOptions:
    """A contract on the home's own chain or on a node's."""

    home: HomeFolder = DEFAULT_HOME
    run: RunName = None
    address: Address = None
    rpc_url: RpcUrl = None
    chain_id: ChainId = None

    def target(self) -> Target:
        """Return what the options name, those of the groups that extend this one among them."""
        given = asdict(self)
        remote = RemoteService.of(
            given.get("api"), given.get("api_token_file"), given.get("api_timeout", API_SECONDS)
        )
        return Target(
            *(self.home, self.run, self.address, self.rpc_url, self.chain_id),
            *(given.get("blobs"), remote),
        )


@dataclass(frozen=True, slots=True)
class HistoryOptions(ContractOptions):
    """A contract whose history a home, a node or a service has."""

    api: Api = None
    api_token_file: ApiTokenFile = None


@dataclass(frozen=True, slots=True)
class EvidenceOptions(HistoryOptions):
    """A contract of which chain and blobs are read, the blobs from any place or service."""

    blobs: BlobsAt = None
    api_timeout: ApiTimeout = API_SECONDS


@dataclass(frozen=True, slots=True)
class AttestedOptions(EvidenceOptions):
    """A contract whose audit and training count, from chain, blobs and mailbox."""

    mailbox: Annotated[
        str | None,
        typer.Option(help="URL or folder with auditors' verdicts; else that of the blobs."),
    ] = None
    rules: Rules = None

    def target(self) -> Target:
        """Return where to read, a service of blobs included."""
        target = EvidenceOptions.target(self)
        target.require_chain_of_its_own()
        if target.remote is not None and self.mailbox is None:
            raise ConfigurationError(
                "--api gives auditors' verdicts without their signatures: name the mailbox with "
                "--mailbox"
            )
        return target


@dataclass(frozen=True, slots=True)
class ProvenanceOptions(AttestedOptions):
    """A run as of the end of a round, and the auditors whose verdicts are listed."""

    round_number: Annotated[
        int | None,
        typer.Option(
            "--round", min=1, max=2**32 - 1, help="The model after this round; else the last."
        ),
    ] = None
    auditor: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ADDRESS",
            help="List the verdicts of this address alone; may be repeated; else everybody's.",
        ),
    ] = None


def refuse_home_file(path: Path, option: str = "--out") -> None:
    """Refuse a path that is, or lies in, what a home keeps: its chain, blobs, runs.

    Raises:
        ConfigurationError: names the path and the home.
    """
    named = path.absolute().parent.resolve() / path.name
    # A link is followed when the file is written.
    for place in dict.fromkeys((named, Path(os.path.realpath(path)))):
        _refuse_place(place, path, option)


def require_writable(path: Path, option: str = "--out", *, as_json: bool = False) -> None:
    """Refuse a result's file that cannot be written, before the work has taken its time.

    Args:
        path: of the file.
        option: that names it, for messages.
        as_json: whether standard output has the command's JSON, and so no file.

    Raises:
        ConfigurationError: names the file and what is wrong with it.
    """
    refuse_home_file(path, option)
    if as_json and is_standard_output(path):
        raise ConfigurationError(
            f"{option} {path} and --json: both print on standard output; give one of them"
        )
    if path.is_dir():
        raise ConfigurationError(f"{option} {path}: is a folder, must be a file")
    if is_written_into(path):
        return
    if not path.parent.is_dir():
        raise ConfigurationError(f"{option} {path}: there is no folder {path.parent}")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise ConfigurationError(f"{option} {path}: may not be written")


def write_result(path: Path, data: bytes, option: str = "--out") -> None:
    """Write a result's file, which replaces an earlier one; missing folders are made.

    Raises:
        ConfigurationError: it cannot be written, and an earlier one is as it was.
    """
    with naming(f"{option} {path}"):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_named(path, data)


def wrote_report(path: Path, data: bytes) -> bool:
    """Write the file of --report; complain, and return False, if that fails."""
    try:
        write_named(path, data)
    except OSError as error:
        complain(f"--report {path}: {error.strerror}; no report was written")
        return False
    return True


def _refuse_place(place: Path, path: Path, option: str) -> None:
    for folder in place.parents:
        home = Home(folder)
        if not (home.chain.is_file() or home.lock.is_file()):
            continue
        kept = (home.chain, home.event_log, home.blobs, home.runs, home.lock)
        first = folder / place.relative_to(folder).parts[0]
        # SQLite keeps a log and shared memory beside a file, under its name.
        if any(first == each or first.name.startswith(f"{each.name}-") for each in kept):
            raise ConfigurationError(
                f"{option} {path}: lies in {first.name} of the home {folder}, which only a run "
                f"may write; name another place"
            )


def require_new(out: Path) -> None:
    """Refuse a folder that has something in it, or is a home's, before the work is done for it.

    Raises:
        ConfigurationError: names it.
    """
    refuse_home_file(out)
    if out.is_symlink() or (out.exists() and not (out.is_dir() and not any(out.iterdir()))):
        raise ConfigurationError(f"--out {out}: must be a new or an empty folder")
    if not out.absolute().parent.is_dir():
        raise ConfigurationError(f"--out {out}: there is no folder {out.parent}")


@contextmanager
def whole_folder(out: Path) -> Iterator[Path]:
    """Open a new folder of the same name, which is moved to its place once all is written.

    Raises:
        ConfigurationError: it cannot be written.
    """
    place = out.absolute()
    writing = place.parent / f".{place.name}.{secrets.token_hex(4)}"
    try:
        (writing / place.name).mkdir(parents=True)
        yield writing / place.name
        (writing / place.name).rename(place)
    except OSError as error:
        raise ConfigurationError(f"--out {out}: {error.strerror or error}") from error
    finally:
        shutil.rmtree(writing, ignore_errors=True)
