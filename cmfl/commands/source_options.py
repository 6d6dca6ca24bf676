"""Options that name a chain, the account that signs on it, and the contract that is read."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import typer

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
