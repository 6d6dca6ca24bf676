"""Options that name the contract a command reads, and where its chain, blobs or service are."""

from __future__ import annotations

from dataclasses import dataclass

from cmfl.access.remote import API_SECONDS, RemoteService
from cmfl.access.target import Target
from cmfl.commands.options import (
    DEFAULT_HOME,
    Address,
    Api,
    ApiTimeout,
    ApiTokenFile,
    BlobsAt,
    ChainId,
    HomeFolder,
    RpcUrl,
    RunName,
)


@dataclass(frozen=True, slots=True)
class ContractOptions:
    """A contract on the home's own chain or on a node's."""

    home: HomeFolder = DEFAULT_HOME
    run: RunName = None
    address: Address = None
    rpc_url: RpcUrl = None
    chain_id: ChainId = None

    def target(self) -> Target:
        """Return where to read."""
        return Target(self.home, self.run, self.address, self.rpc_url, self.chain_id)


@dataclass(frozen=True, slots=True)
class HistoryOptions(ContractOptions):
    """A contract whose history a home, a node or a service has."""

    api: Api = None
    api_token_file: ApiTokenFile = None

    def target(self) -> Target:
        """Return where to read, a service included.

        Raises:
            ConfigurationError: the token cannot be read.
        """
        remote = RemoteService.of(self.api, self.api_token_file)
        return Target(self.home, self.run, self.address, self.rpc_url, self.chain_id, remote=remote)


@dataclass(frozen=True, slots=True)
class EvidenceOptions(HistoryOptions):
    """A contract of which chain and blobs are read, the blobs from any place or service."""

    blobs: BlobsAt = None
    api_timeout: ApiTimeout = API_SECONDS

    def target(self) -> Target:
        """Return where to read, a service or a place of blobs included.

        Raises:
            ConfigurationError: the token cannot be read.
        """
        remote = RemoteService.of(self.api, self.api_token_file, self.api_timeout)
        return Target(
            self.home, self.run, self.address, self.rpc_url, self.chain_id, self.blobs, remote
        )
