"""Which deployments are served: those whose manifest agrees with the chain.

A manifest is a hint. Before a deployment is served, chain id, block 0, code and configuration are
compared with the chain, and the manifest of a run of this home with the run's folder; what does not
agree is listed as refused and disturbs nobody else.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from ledger.chain.addresses import to_canonical
from ledger.chain.contract.complete_log import CompleteLog
from ledger.chain.contract.deployment import connect
from ledger.chain.contract.manifest import read_manifest, read_run_manifest
from ledger.chain.contract.plausibility import require_possible_sizes
from ledger.chain.ports import ChainDamagedError, ChainUnreachableError
from ledger.history.chain_history import ChainHistory, DeploymentCache
from ledger.io.home import RUN_NAME, RunPaths
from ledger.protocol.errors import CmflError
from ledger.protocol.ledger_state import LedgerStage

if TYPE_CHECKING:
    from pathlib import Path

    from ledger.chain.contract.committee_ledger import CommitteeLedger, LedgerSnapshot
    from ledger.chain.contract.manifest import Manifest
    from ledger.chain.ports import Block, ChainReader
    from ledger.history.locations import HistoryLocations
    from ledger.protocol.ledger_state import Deployment
    from ledger.storage.blobs import BlobReader

MAX_MANIFESTS = 1_024


@dataclass(slots=True)
class ServedDeployment:
    """A deployment that agrees with the chain, and what of it cannot change any more.

    Attributes:
        run: the name of its run.
        manifest: as it was checked.
        ledger: the contract.
        fixed: what was fixed at deployment.
        folder: the run's own, where it is one of the home; else None.
    """

    run: str
    manifest: Manifest
    ledger: CommitteeLedger
    fixed: Deployment
    folder: RunPaths | None = None
    _kept: DeploymentCache = field(default_factory=DeploymentCache, repr=False)
    _log: CompleteLog = field(default_factory=CompleteLog, repr=False)
    _finished: LedgerSnapshot | None = field(default=None, repr=False)

    def history(self, blobs: BlobReader, block: Block, final_block: int) -> ChainHistory:
        """Return its history.

        Args:
            blobs: where its documents are.
            block: as of which block.
            final_block: up to which block nothing can change.

        Raises:
            IncompleteLogsError: a node's logs do not lead to the contract's own state.
            ChainMovedError: the chain does not hold that block any more.
        """
        ledger = self.ledger
        # A home's own file has no node between it and its reader.
        ledger = ledger if ledger.chain.node is None else self.complete(ledger, block)
        return ChainHistory(
            ledger, self.fixed, blobs, block.number, final_block, self._kept, block.hash
        )

    def complete(self, ledger: CommitteeLedger, block: Block) -> CommitteeLedger:
        """Return the contract as of one block, with all of its events up to there.

        Args:
            ledger: the contract on any view of its chain.
            block: as of which.

        Raises:
            IncompleteLogsError: the logs do not lead to the contract's own state.
            ChainMovedError: the chain does not hold that block any more.
        """
        return self._log.up_to(ledger, block)

    def state(self, block_number: int, final_block: int) -> LedgerSnapshot:
        """Return the contract's storage.

        Args:
            block_number: as of which block.
            final_block: up to which block nothing can change.
        """
        # A finished contract takes no transaction: its storage stays.
        if self._finished is not None:
            return self._finished
        state = self.ledger.state(block_number)
        if state.stage is LedgerStage.FINISHED and block_number <= final_block:
            self._finished = state
        return state


@dataclass(frozen=True, slots=True)
class RejectedManifest:
    """A manifest that is not served.

    Attributes:
        manifest: its file, as seen from the home.
        reason: why not.
    """

    manifest: str
    reason: str


_Identity: TypeAlias = "tuple[tuple[int, int, int] | None, ...]"


@dataclass(frozen=True, slots=True)
class _File:
    """A manifest's file and the state in which it was checked, with the settings beside it."""

    path: Path
    run: str
    shown: str
    identity: _Identity
    is_of_this_home: bool


class Deployments:
    """Finds and checks manifests, each again when its file or the chain is another one."""

    def __init__(self, places: HistoryLocations) -> None:
        self._places = places
        self._lock = threading.Lock()
        self._chain: ChainReader | None = None
        self._served: dict[_File, ServedDeployment] = {}

    def find(self, chain: ChainReader, address: str) -> ServedDeployment | None:
        """Return one deployment, None if none at this address is served.

        Args:
            chain: where it should be.
            address: of the contract, in any case of its letters.

        Raises:
            ChainError: the chain cannot be read.
        """
        wanted = to_canonical(address)
        with self._lock:
            known = self._served.items() if chain is self._chain else ()
            for file, served in known:
                same = to_canonical(served.manifest.address) == wanted
                if same and _identity(file.path) == file.identity:
                    return served
        found, _ = self.all(chain)
        return next((s for s in found if to_canonical(s.manifest.address) == wanted), None)

    def all(self, chain: ChainReader) -> tuple[list[ServedDeployment], list[RejectedManifest]]:
        """Return what is served and what is refused, each by the name of its run.

        Args:
            chain: where the deployments should be.

        Raises:
            ChainUnreachableError: the chain cannot be read.
            ChainDamagedError: nor can it.
        """
        files, refused = self._files()
        with self._lock:
            known = self._served if chain is self._chain else {}
            served: dict[_File, ServedDeployment] = {}
            runs: dict[bytes, str] = {}
            for file in files:
                try:
                    found = known.get(file) or _connected(chain, file)
                    contract = to_canonical(found.manifest.address)
                except (ChainUnreachableError, ChainDamagedError):
                    raise
                except CmflError as error:
                    refused.append(RejectedManifest(file.shown, _without_path(error, file.path)))
                    continue
                if contract in runs:
                    reason = f"the contract is that of run {runs[contract]!r}"
                    refused.append(RejectedManifest(file.shown, reason))
                    continue
                served[file], runs[contract] = found, file.run
            self._chain, self._served = chain, served
            return list(served.values()), refused

    def _files(self) -> tuple[list[_File], list[RejectedManifest]]:
        """Return the manifests that may be read, and the entries that may not."""
        files: list[_File] = []
        refused: list[RejectedManifest] = []
        own = _manifests_in(self._places.runs)
        for path in [*own, *self._places.manifests]:
            identity = _identity(path)
            if identity[0] is None:
                continue
            shown = ascii(f"{path.parent.name}/{path.name}")[1:-1][:200]
            if not RUN_NAME.fullmatch(path.parent.name):
                refused.append(RejectedManifest(shown, "its folder's name is no name of a run"))
            elif len(files) >= MAX_MANIFESTS:
                refused.append(RejectedManifest(shown, f"there are over {MAX_MANIFESTS} manifests"))
                break
            else:
                files.append(_File(path, path.parent.name, shown, identity, path in own))
        return files, refused


def _manifests_in(runs: Path) -> list[Path]:
    try:
        return sorted(RunPaths(folder).manifest for folder in runs.iterdir())
    except OSError:
        return []


def _identity(manifest: Path) -> _Identity:
    """Return what tells one state of a manifest and the settings beside it from another."""
    return _state_of(manifest), _state_of(RunPaths(manifest.parent).configuration)


def _state_of(path: Path) -> tuple[int, int, int] | None:
    """Return what tells one state of a regular file from another; None if it is none."""
    try:
        # A pipe under this name would be waited on for ever.
        if not path.is_file():
            return None
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns


def _without_path(error: CmflError, path: Path) -> str:
    """Return what is wrong, without where this machine keeps the file."""
    return " ".join(str(error).replace(f"{path.parent}/", "").split())[:500]


def _connected(chain: ChainReader, file: _File) -> ServedDeployment:
    if file.is_of_this_home:
        manifest = read_run_manifest(RunPaths(file.path.parent))
    else:
        manifest = read_manifest(file.path)
    ledger = connect(chain, manifest)
    sizes = ledger.deployment()
    require_possible_sizes(sizes)
    folder = RunPaths(file.path.parent) if file.is_of_this_home else None
    return ServedDeployment(file.run, manifest, ledger, sizes, folder)
