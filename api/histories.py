"""Deployments of a chain as of one block, read for a service, and the answers about them.

A manifest is a hint. Before a deployment is served, chain id, block 0, code and configuration are
compared with the chain, and the manifest of a run of this home with the run's folder. A manifest
that does not agree is listed as rejected, without effect on the others.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from stat import S_ISREG
from typing import TypeAlias, cast

from api.schemas import RefusedManifest
from api.settings import Settings
from ledger.chain.contract.codec import require_possible_sizes
from ledger.chain.contract.deploy import connect
from ledger.chain.contract.event_log import EventLog, EventTable
from ledger.chain.contract.ledger import CommitteeLedger, Manifest, read_manifest, read_run_manifest
from ledger.chain.embedded.reader import EmbeddedReader
from ledger.chain.ports import Block, ChainDamagedError, ChainReader, ChainUnreachableError
from ledger.chain.round_ledger import LedgerSnapshot
from ledger.chain.rpc.node import RpcReader, RpcSettings
from ledger.history.fields import ChainPath, StageName
from ledger.history.history import DeploymentFold, FoldedHistory
from ledger.io.home import RUN_NAME, Home, RunPaths
from ledger.protocol.encoding import to_canonical
from ledger.protocol.errors import CmflError
from ledger.protocol.ledger_state import Deployment, LedgerStage
from ledger.storage.blobs import BlobReader, FolderBlobs

MAX_MANIFESTS = 1_024
MAX_FOLDS = 16  # deployments whose events stay in memory: those that were read most recently


@dataclass(slots=True)
class ServedDeployment:
    """A deployment that agrees with the chain; `folder` is the run's, if the home has it."""

    run: str
    manifest: Manifest
    ledger: CommitteeLedger
    fixed: Deployment
    folder: RunPaths | None
    table: EventTable
    fold: DeploymentFold = field(init=False, repr=False)
    log: EventLog = field(init=False, repr=False)
    finished: LedgerSnapshot | None = field(default=None, repr=False)  # it changes no more

    def __post_init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Release the memory of the events; the next history reads them again."""
        self.fold, self.log = DeploymentFold(), EventLog(self.table)


_State: TypeAlias = "tuple[int, int, int] | None"


@dataclass(frozen=True, slots=True)
class _ManifestFile:
    path: Path
    is_of_this_home: bool
    states: tuple[_State, _State]

    @staticmethod
    def at(path: Path, *, is_of_this_home: bool) -> _ManifestFile:
        states = _state_of(path), _state_of(RunPaths(path.parent).configuration)
        return _ManifestFile(path, is_of_this_home, states)

    def rejected(self, reason: str) -> RefusedManifest:
        shown = ascii(f"{self.path.parent.name}/{self.path.name}")[1:-1][:200]
        return {"manifest": shown, "reason": " ".join(reason.split())[:500]}


class Deployments:
    """The deployments of one chain: reads manifests, each again when its file is replaced."""

    def __init__(self, settings: Settings, chain: ChainReader) -> None:
        self.chain = chain
        self._settings = settings
        self._table = EventTable(Home(settings.home).event_log)
        self._lock = threading.Lock()
        self._served: dict[_ManifestFile, ServedDeployment] = {}
        self._recent: dict[int, ServedDeployment] = {}

    def use(self, served: ServedDeployment) -> None:
        """Note that a deployment's history is read now; release the least recently used ones."""
        with self._lock:
            self._recent.pop(id(served), None)
            self._recent[id(served)] = served
            if len(self._recent) > MAX_FOLDS:
                self._recent.pop(next(iter(self._recent))).forget()

    def find(self, address: str) -> ServedDeployment | None:
        canonical = to_canonical(address)
        with self._lock:
            for file, served in self._served.items():
                if to_canonical(served.manifest.address) != canonical:
                    continue
                if file == _ManifestFile.at(file.path, is_of_this_home=file.is_of_this_home):
                    return served
        deployments, _ = self.all()
        return next((d for d in deployments if to_canonical(d.manifest.address) == canonical), None)

    def all(self) -> tuple[list[ServedDeployment], list[RefusedManifest]]:
        """Return the served deployments and the rejected manifests, by the names of their runs."""
        files, rejected = self._files()
        with self._lock:
            served: dict[_ManifestFile, ServedDeployment] = {}
            runs: dict[bytes, str] = {}
            for file in files:
                try:
                    deployment = self._served.get(file) or self._connected(file)
                    contract = to_canonical(deployment.manifest.address)
                except (ChainUnreachableError, ChainDamagedError):
                    raise
                except CmflError as error:
                    # The path is of this machine.
                    rejected.append(file.rejected(str(error).replace(f"{file.path.parent}/", "")))
                    continue
                if contract in runs:
                    reason = f"the contract belongs to run {runs[contract]!r}"
                    rejected.append(file.rejected(reason))
                    continue
                served[file], runs[contract] = deployment, deployment.run
            self._served = served
            return list(served.values()), rejected

    def _connected(self, file: _ManifestFile) -> ServedDeployment:
        folder = RunPaths(file.path.parent) if file.is_of_this_home else None
        manifest = read_manifest(file.path) if folder is None else read_run_manifest(folder)
        ledger = connect(self.chain, manifest)
        fixed = ledger.deployment()
        require_possible_sizes(fixed)
        ledger = CommitteeLedger(self.chain, ledger.address, ledger.from_block, fixed)
        name = file.path.parent.name
        return ServedDeployment(name, manifest, ledger, fixed, folder, self._table)

    def _files(self) -> tuple[list[_ManifestFile], list[RefusedManifest]]:
        files: list[_ManifestFile] = []
        rejected: list[RefusedManifest] = []
        own: list[Path] = []
        with suppress(OSError):
            own = sorted(RunPaths(folder).manifest for folder in self._settings.runs.iterdir())
        for path in [*own, *self._settings.manifests]:
            file = _ManifestFile.at(path, is_of_this_home=path in own)
            if file.states[0] is None:
                continue
            if not RUN_NAME.fullmatch(path.parent.name):
                rejected.append(file.rejected("its folder's name is not a run name"))
            elif len(files) >= MAX_MANIFESTS:
                rejected.append(file.rejected(f"there are over {MAX_MANIFESTS} manifests"))
                break
            else:
                files.append(file)
        return files, rejected


def _state_of(path: Path) -> _State:
    try:
        status = path.stat()
    except (OSError, ValueError):
        return None
    if not S_ISREG(status.st_mode):  # reading a pipe would block for ever
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns


class HistoryService:
    """Chain, deployments and blobs of one service, read-only; safe to share between threads.

    A service may start before the chain exists, and its home may be replaced: device and inode
    identify a chain file, and another file is opened as another chain.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._file = settings.chain_file if settings.rpc_url is None else None
        self._lock = threading.RLock()
        self._deployments: Deployments | None = None
        self._identity: tuple[int, int] | None = None
        self.blobs = FolderBlobs(settings.blob_folder)
        self.largest_blob = settings.largest_blob_bytes

    def now(self) -> PinnedChain:
        identity = None
        if (file := self._file) is not None:
            try:
                status = file.stat()
            except OSError as error:
                reason = f"{file.name} cannot be opened: {error.strerror}"
                raise ChainUnreachableError(reason) from error
            identity = status.st_dev, status.st_ino
        with self._lock:
            deployments = self._deployments
            if deployments is None or identity != self._identity:
                self.close()
                deployments = Deployments(self._settings, open_chain(self._settings))
                self._deployments, self._identity = deployments, identity
        chain = deployments.chain
        block = chain.head()
        # Blocks of a home's own file are never reverted.
        final = block.number if chain.node is None else chain.finalized()
        return PinnedChain(chain, deployments, block, final, self.blobs)

    def close(self) -> None:
        with self._lock:
            if self._deployments is not None:
                self._deployments.chain.close()
            self._deployments = None


def open_chain(settings: Settings, known: ChainPath | None = None) -> ChainReader:
    """Open the chain of a service's settings; `known` is the chain that it must be."""
    chain_id, genesis = (None, None) if known is None else (known.chain_id, known.genesis)
    if settings.rpc_url is None:
        return EmbeddedReader.open(settings.chain_file, chain_id=chain_id, genesis_hash=genesis)
    assert settings.chain_id is not None, "it goes with the URL"
    patience = RpcSettings(request_timeout_seconds=settings.rpc_timeout_seconds)
    return RpcReader(
        settings.rpc_url, chain_id=settings.chain_id, genesis_hash=genesis, settings=patience
    )


@dataclass(frozen=True, slots=True)
class PinnedChain:
    """A chain as of `block`: later blocks are not read, and none up to `final` can change."""

    chain: ChainReader
    deployments: Deployments
    block: Block
    final: int
    blobs: BlobReader

    @property
    def path(self) -> ChainPath:
        return ChainPath(self.chain.chain_id, self.chain.genesis_hash)

    def history(self, served: ServedDeployment) -> FoldedHistory:
        self.deployments.use(served)
        ledger = served.ledger
        # A home's own file has no node between it and its reader.
        if ledger.chain.node is not None:
            ledger = served.log.up_to(ledger, self.block)
        return served.fold.up_to(ledger, self.blobs, self.block, self.final)

    @contextmanager
    def snapshot(self, served: ServedDeployment) -> Iterator[CommitteeLedger]:
        with self.chain.snapshot() as view:
            ledger = served.ledger
            ledger = CommitteeLedger(view, ledger.address, ledger.from_block, served.fixed)
            yield served.log.up_to(ledger, self.block)

    def state(self, served: ServedDeployment) -> LedgerSnapshot:
        if served.finished is not None:
            return served.finished
        number = self.block.number
        state = served.ledger.state(number)
        if state.stage is LedgerStage.FINISHED and number <= self.final:
            served.finished = state
        return state

    def is_unmoved(self) -> bool:
        number = self.block.number
        return number <= self.final or self.chain.block(number).hash == self.block.hash


def stage_name(stage: LedgerStage) -> StageName:
    """Return a deployment's stage as a word."""
    return cast("StageName", stage.name.lower())
