"""Places of a run: a home, a node or a service, and how each is opened.

A service may send anything. A download is read within bounds, must be of the named contract, and is
then checked like any untrusted file.
"""

from __future__ import annotations

import fcntl
import functools
import logging
import os
import secrets
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from ledger.chain import ports
from ledger.chain.contract.deploy import connect, require_code
from ledger.chain.contract.ledger import (
    CommitteeLedger,
    Manifest,
    read_run_manifest,
    require_current_home,
    require_unplayed,
    was_in_memory,
)
from ledger.chain.embedded.chain_store import SALT_BITS, ChainStore, fresh_chain_id
from ledger.chain.embedded.reader import EmbeddedReader
from ledger.chain.embedded.writing import verify_nothing_acknowledged
from ledger.history.answers_rounds import LocalHistory
from ledger.history.history import FoldedHistory
from ledger.io.home import Home, RunPaths, naming, read_file
from ledger.protocol.encoding import checksum
from ledger.protocol.errors import ChainError, ConfigurationError, EncodingError, ServiceError
from ledger.protocol.types import ClientId
from ledger.storage.blobs import BlobReader, FolderBlobs, ObjectBlobs

if TYPE_CHECKING:
    from api.client import RemoteDeployment, Service
    from ledger.audit.proofs.container import BundleFile
    from ledger.audit.proofs.proof import ClientProof, RoundBasis, RoundBundle
    from ledger.chain.rpc.node import RpcReader, RpcSettings


OpenNode: TypeAlias = "Callable[[str, int], AbstractContextManager[ports.ChainWriter]]"
"""Opens the node of a URL and a chain id, for the sender of a command."""

HOME = Path("cmfl-home")
RUN = "run"
URL_VARIABLE = "CMFL_RPC_URL"
API_TOKEN_VARIABLE = "CMFL_API_TOKEN"  # noqa: S105 - its name


@contextmanager
def made_if_needed(home: Home) -> Iterator[None]:
    """Make a home's folder; remove it if the context fails before anything was stored."""
    with naming(f"--home {home.path}", (OSError, ValueError)):
        made = [folder for folder in (home.path, *home.path.parents) if not folder.exists()]
        home.path.mkdir(parents=True, exist_ok=True)
    try:
        yield
    except BaseException:
        with suppress(OSError):
            if made:
                _remove(home, made)
        raise


def _remove(home: Home, made: list[Path]) -> None:
    """Remove what a failed start has left; a folder with anything else stays."""
    with home.lock.open("ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if _has_content(home):
            return
        for file in (*home.path.glob(f"{home.chain.name}*"), home.lock):
            file.unlink(missing_ok=True)
        for folder in (home.blobs, home.runs, *made):
            if folder.is_dir():
                folder.rmdir()


def _has_content(home: Home) -> bool:
    if any(folder.is_dir() and any(folder.iterdir()) for folder in (home.blobs, home.runs)):
        return True
    if not home.chain.exists() or ChainStore.is_blank(home.chain):
        return False
    try:
        with EmbeddedReader.open(home.chain) as chain:
            return chain.head().number > 0
    except ChainError:
        return True


API_SECONDS = 60
MAX_TOKEN_BYTES = 1_000


@dataclass(frozen=True, slots=True)
class RemoteService:
    """A service by its URL, without `/v1`; the timeout is for one answer or one blob."""

    url: str
    token: str | None = field(default=None, repr=False)
    timeout_seconds: float = API_SECONDS

    @staticmethod
    def of(
        url: str | None, token_file: Path | None = None, timeout_seconds: float = API_SECONDS
    ) -> RemoteService | None:
        """Return the service, if there is a URL; without a file the environment has the token."""
        if url is None:
            return None
        token = os.environ.get(API_TOKEN_VARIABLE) or None
        if token_file is not None:
            with naming(f"--api-token-file {token_file}"):
                token = read_file(token_file, MAX_TOKEN_BYTES).decode("latin-1").strip()
            if not 0 < len(token) <= MAX_TOKEN_BYTES:
                raise ConfigurationError(
                    f"--api-token-file {token_file}: must hold a token of 1 to "
                    f"{MAX_TOKEN_BYTES} characters"
                )
        return RemoteService(url, token, timeout_seconds)

    def service(self) -> Service:
        """Return a client of the service, without a request."""
        from api.client import Service

        return Service(self.url, self.token, self.timeout_seconds)

    def blobs(self) -> BlobReader:
        from ledger.storage.http import static_server

        url = f"{self.url.rstrip('/')}/v1/blobs"
        return ObjectBlobs(static_server(url, self.timeout_seconds, self.token, 5))


def deployment_at(
    service: Service, chain_id: int | None, address: str | None, run: str | None
) -> RemoteDeployment:
    """Return the deployment that options name, or the only one."""
    chain = chain_at(service, chain_id)
    if address is not None:
        return service.deployment(chain, address)
    served = service.deployments(chain)["deployments"]
    named = [f"{deployment['run']} at {deployment['address']}" for deployment in served]
    meant = [each["address"] for each in served if run in {None, each["run"]}]
    return service.deployment(chain, _only(meant, named, "run by --run"))


def chain_at(service: Service, chain_id: int | None) -> str:
    """Return the name of the chain that options name, or of the only one."""
    chains = service.chains()["chains"]
    meant = [chain["name"] for chain in chains if chain_id in {None, int(chain["chain_id"])}]
    return _only(meant, [chain["name"] for chain in chains], "chain by --chain-id")


def _only(meant: list[str], served: list[str], what: str) -> str:
    if len(meant) == 1:
        return meant[0]
    named = ", ".join(served[:20]) or "nothing"
    raise ConfigurationError(f"name one {what}; the service at --api serves {named}")


def _require_complete(run: RunPaths) -> None:
    """Reject a run on a chain whose manifest is lost."""
    if not was_in_memory(run):
        require_unplayed(run)


_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Target:
    """Options that name a chain, its blobs and a contract.

    Without `rpc_url` the chain is the home's own, and without `blobs_at` the blobs are. The node
    or the home must have the `chain_id`. A `remote` service is read instead of the home.
    """

    home: Path = HOME
    run: str | None = None
    address: str | None = None
    rpc_url: str | None = None
    chain_id: int | None = None
    blobs_at: str | None = None
    remote: RemoteService | None = None

    def __post_init__(self) -> None:
        """Reject a home that is a file, or of another protocol version."""
        if self.remote is None and (self.rpc_url is None or self.address is None):
            with naming(f"--home {self.home}"):
                is_other = self.home.exists() and not self.home.is_dir()
            if is_other:
                raise ConfigurationError(f"--home {self.home}: is a file, but must be a folder")
            require_current_home(Home(self.home))

    @property
    def chain_file(self) -> Path:
        return Home(self.home).chain

    def published(self) -> BlobReader:
        if self.remote is not None:
            return self.remote.blobs()
        if self.blobs_at is None:
            return self.blobs()
        from ledger.storage.opening import reader_at

        return reader_at(self.blobs_at)

    def blobs(self) -> FolderBlobs:
        return FolderBlobs(Home(self.home).blobs)

    def mailbox_place(self) -> str | None:
        """Return where the mailbox is if none is named: with the blobs; None of a service."""
        if self.remote is not None:
            return None
        return self.blobs_at or str(Home(self.home).blobs)

    @contextmanager
    def reader(self) -> Iterator[ports.ChainReader]:
        """Open the chain for reading; a run may be writing to it meanwhile."""
        # The node's URL may hold a secret.
        _log.info("reads %s", self.chain_file if self.rpc_url is None else "a node's chain")
        with closing(self.own_reader() if self.rpc_url is None else self.node_reader()) as chain:
            yield chain

    def own_reader(self) -> EmbeddedReader:
        chain_id = self.chain_id if self.rpc_url is None else None
        if not self.chain_file.exists():
            self._explain_no_chain()
        return EmbeddedReader.open(self.chain_file, chain_id=chain_id)

    def node_reader(self, settings: RpcSettings | None = None) -> RpcReader:
        from ledger.chain.rpc.node import RpcReader

        return RpcReader(self.rpc_url or "", chain_id=self.node_chain_id(), settings=settings)

    @contextmanager
    def writer(
        self,
        open_node: OpenNode | None = None,
        *,
        create: bool = True,
        new_chain_id: int | None = None,
        accept_rollback: bool = False,
    ) -> Iterator[ports.ChainWriter]:
        """Open the home for writing, and its own chain or a node.

        With `create` they are made if missing, and go again after a failure; None gives a new chain
        a random id. `accept_rollback` takes a chain without blocks that its home acknowledged.
        """
        if self.rpc_url is not None:
            assert open_node is not None, "commands that write to a node have a sender"
            with open_node(self.rpc_url, self.node_chain_id()) as node, self.own_folder():
                yield node
            return
        if not create and not self.chain_file.exists():
            # An unmounted disk looks like a home without a chain.
            raise ConfigurationError(
                f"there is no chain at {self.chain_file}; check that the disk is mounted and "
                "--home is right. To resume a run on a node, give --rpc-url"
            )
        # All is imported before the home is made.
        from ledger.chain.embedded.embedded_chain import EmbeddedChain

        opened: Callable[..., EmbeddedChain] = EmbeddedChain.open
        if create:
            if new_chain_id is None:
                new_chain_id = fresh_chain_id(secrets.randbits(SALT_BITS))
            opened = functools.partial(EmbeddedChain.open_or_create, new_chain_id=new_chain_id)
        how = {"chain_id": self.chain_id, "accept_rollback": accept_rollback}
        with self.own_folder(), opened(self.chain_file, **how) as chain:
            yield chain

    @contextmanager
    def own_folder(self) -> Iterator[None]:
        """Open the home for writing, but no chain; one that is made goes again after a failure."""
        home = Home(self.home)
        with made_if_needed(home), home.writing():
            yield

    def _explain_no_chain(self) -> None:
        """Reject a home whose chain is gone, or whose runs are on a node or the memory ledger."""
        verify_nothing_acknowledged(self.chain_file)
        home = Home(self.home)
        if not home.runs.is_dir():
            return
        if elsewhere := home.deployed():
            names = ", ".join(run.name for run in elsewhere)
            raise ConfigurationError(
                f"there is no chain at {self.chain_file}; check that the disk is mounted. If "
                f"{names} is on a node, give --rpc-url and --chain-id"
            )
        runs = [RunPaths(path) for path in sorted(home.runs.iterdir()) if path.is_dir()]
        if runs and all(was_in_memory(run) for run in runs):
            names = ", ".join(run.name for run in runs)
            raise ConfigurationError(
                f"{self.home} has no chain, because {names} ran on the memory ledger "
                "(machine.ledger = memory). To see the claimed results, run cmfl runs list"
            )

    def require_contract(self) -> None:
        """Reject a home whose chain lacks the named run's contract, before any write."""
        paths = Home(self.home).run(self.run or "")
        if not paths.manifest.exists():
            return  # it was never deployed
        with self.own_reader() as chain:
            created, newest = read_run_manifest(paths).block, chain.head().number
            if created > newest:
                raise ports.ChainRolledBackError(
                    f"{self.chain_file} ends with block {newest}, but the contract of run "
                    f"{self.run!r} is in block {created}. Restore a newer copy of the chain, "
                    "or start another run in another home"
                )
            self.ledger(chain)

    def history(self, chain: ports.ChainReader) -> FoldedHistory:
        # A home's own file has no node between it and its reader.
        ledger = self.ledger(chain) if chain.node is None else self.complete_ledger(chain)
        return FoldedHistory.of(ledger, self.published())

    def complete_ledger(self, chain: ports.ChainReader) -> CommitteeLedger:
        from ledger.chain.contract.event_log import EventTable, complete_ledger

        table = None if chain.node is None else EventTable(Home(self.home).event_log)
        return complete_ledger(self.ledger(chain), table)

    def ledger(self, chain: ports.ChainReader, *, is_audited: bool = False) -> CommitteeLedger:
        """Return the named or only contract; an audit also gets one of foreign code or creation."""
        address, block = self.address, 0
        try:
            if address is not None:
                require_code(chain, address)
                return CommitteeLedger(chain, address)
            manifest = read_run_manifest(self.run_paths())
            address, block = manifest.address, manifest.block
            return connect(chain, manifest)
        except (ports.ForeignCodeError, ports.UncheckableCreationError):
            if not is_audited or address is None:
                raise
            return CommitteeLedger(chain, address, block)

    @contextmanager
    def ledger_of(self, manifest: Manifest) -> Iterator[CommitteeLedger | None]:
        """Open the contract of a manifest; yield None if its chain is not the one named here."""
        if self.rpc_url is None and not self.chain_file.exists():
            yield None
            return
        with self.reader() as chain:
            yield connect(chain, manifest) if chain.chain_id == manifest.chain_id else None

    def run_paths(self) -> RunPaths:
        home = Home(self.home)
        deployed = {run.path.name: run for run in home.deployed()}
        if self.run is not None:
            if self.run not in deployed:
                _require_complete(home.run(self.run))
                raise ConfigurationError(f"there is no deployed run {self.run!r} in {self.home}")
            return deployed[self.run]
        if not deployed:
            for path in home.runs.glob("*"):
                _require_complete(RunPaths(path))
            raise ConfigurationError(
                f"there is no deployed run in {self.home}; create one with cmfl run, or name "
                "the contract with --address"
            )
        if len(deployed) > 1:
            names = ", ".join(deployed)
            raise ConfigurationError(f"name one of the runs in {self.home} with --run: {names}")
        return next(iter(deployed.values()))

    def require_chain_of_its_own(self) -> None:
        """Reject a service without a node: it gives blobs and proofs, but no chain."""
        if self.remote is not None and (self.rpc_url is None or self.address is None):
            raise ConfigurationError(
                "--api serves blobs, not a chain; name the trusted chain and contract with "
                "--rpc-url, --chain-id and --address"
            )

    def node_chain_id(self) -> int:
        if self.chain_id is None:
            raise ConfigurationError("--rpc-url needs --chain-id, the node's chain id")
        return self.chain_id


def target_on_node(
    rpc_url: str, address: str, chain_id: int | None, blobs: str | None = None
) -> Target:
    """Return a contract on a node's chain, whose id is the node's own if none is given."""
    asked = chain_id_of(rpc_url, chain_id)
    return Target(address=address, rpc_url=rpc_url, chain_id=asked, blobs_at=blobs)


def chain_id_of(url: str, chain_id: int | None) -> int:
    """Return the id that a node must have: the given one, else the node's own."""
    if chain_id is not None:
        return chain_id
    from ledger.chain.rpc.node import RpcReader

    with RpcReader(url, chain_id=None) as chain:
        return chain.chain_id


@contextmanager
def opened_ledger(target: Target) -> Iterator[CommitteeLedger]:
    """Open the contract as of one block, with all of its events up to there."""
    with target.reader() as chain, chain.snapshot() as view:
        yield target.complete_ledger(view)


@contextmanager
def open_history(target: Target) -> Iterator[LocalHistory | RemoteDeployment]:
    """Open the history of the deployment that a command's options name."""
    if target.remote is not None:
        with open_deployment(target) as deployment:
            yield deployment
        return

    with target.reader() as chain:
        yield LocalHistory(target.history(chain))


@contextmanager
def open_deployment(target: Target, *, is_alone: bool = True) -> Iterator[RemoteDeployment]:
    """Open the deployment of a service; `is_alone` forbids to name a node, too."""
    assert target.remote is not None, "the options name a service"
    if is_alone:
        require_no_node(target)
    with target.remote.service() as service:
        yield deployment_at(service, target.chain_id, target.address, target.run)


def require_no_node(target: Target) -> None:
    """Reject a node in addition to a service; one that only a variable names is ignored."""
    if target.rpc_url not in {None, os.environ.get(URL_VARIABLE)}:
        raise ConfigurationError("--rpc-url and --api exclude each other; give one")


def download_proof(
    target: Target, round_number: int, client: ClientId, *, whole: bool
) -> tuple[bytes, ClientProof]:
    """Return the proof of a client's part; a head alone suffices to check a `whole` one."""
    from ledger.audit.proofs.documents import read_proof

    with open_deployment(target, is_alone=False) as deployment:
        data = deployment.proof(round_number, client, whole=whole)
    with _as_sent("proof"):
        proof = read_proof(data)
    _require_meant(target, proof)
    return data, proof


@contextmanager
def download_bundle(
    target: Target, round_number: int, *, whole: bool
) -> Iterator[tuple[Path, RoundBundle, BundleFile]]:
    """Download a round's bundle to a temporary file; a head suffices to check a `whole` one."""
    from ledger.audit.proofs.container import open_bundle
    from ledger.audit.proofs.documents import read_manifest

    with tempfile.TemporaryDirectory(prefix=".cmfl-") as temporary:
        path = Path(temporary) / "bundle.tar"
        with open_deployment(target, is_alone=False) as deployment, path.open("xb") as file:
            deployment.save_bundle(round_number, file, whole=whole)
            file.flush()
            os.fsync(file.fileno())
        with _as_sent("bundle"), open_bundle(path) as parts:
            bundle = read_manifest(parts.manifest, parts)
            if bundle.round != round_number:
                raise ServiceError(
                    f"the service sent a bundle of round {bundle.round}, not {round_number}"
                )
            _require_meant(target, bundle)
            yield path, bundle, parts


@contextmanager
def _as_sent(what: str) -> Iterator[None]:
    try:
        yield
    except EncodingError as error:
        raise ServiceError(f"the service sent an invalid {what}: {error}") from error


def _require_meant(target: Target, basis: RoundBasis) -> None:
    if target.address not in {None, checksum(basis.address)}:
        raise ServiceError(
            f"the data are of contract {checksum(basis.address)}, not of {target.address}"
        )
    if target.chain_id not in {None, basis.chain_id}:
        raise ServiceError(f"the data are of chain {basis.chain_id}, not of {target.chain_id}")
