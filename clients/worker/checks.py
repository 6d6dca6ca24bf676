"""Checks before a client takes part: chain, contract, inputs, store, mail and folder.

A check that needs the result of a failed one is not made, and says so. Nothing is sent to the
chain, and no output contains a key or a password.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TypeVar

from clients.worker.process import (
    WorkerTarget,
    own_inputs,
    shared_run_warning,
    signers_by_client,
    upload_signer,
)
from clients.worker.status import WorkerFolder
from ledger.chain.contract.deploy import deployed_document, deployed_domain, require_code
from ledger.chain.contract.ledger import CommitteeLedger
from ledger.chain.finality import FinalityCheckpoints, final_number
from ledger.chain.ports import Block, ChainReader, require_plain_sender
from ledger.chain.round_ledger import LedgerSnapshot
from ledger.chain.rpc.node import RpcReader, RpcSettings
from ledger.chain.rpc.wire import new_fees
from ledger.io.home import DISK
from ledger.protocol.canonical import MAX_DOCUMENT_BYTES
from ledger.protocol.documents.envelope import EnvelopeKind
from ledger.protocol.documents.run import RunDocument
from ledger.protocol.encoding import checksum, eip55, sha256, vector_from_bytes
from ledger.protocol.errors import CmflError, ConfigurationError
from ledger.protocol.ledger_state import LedgerStage
from ledger.protocol.signing import KeySigner
from ledger.protocol.types import ClientId, Domain
from ledger.storage.blobs import LocationKind, parse_locations
from ledger.storage.http import UploadSigner
from ledger.storage.opening import folder_at, mailbox_at, store_at

SPARE_BYTES = 100_000_000  # reserve on the disk: a full one stops the journal, and so the votes


@dataclass(frozen=True, slots=True)
class FinalityLag:
    """Lag of the newest final block behind the newest block."""

    final: Block
    newest: Block

    def closed_too_early(self, window: int) -> str | None:
        """Return advice if a worker sees each round after its window, and so never trains."""
        behind = self.newest.number - self.final.number
        if behind < window:
            return None
        return (
            f"the newest final block, {self.final.number}, is {behind} blocks behind block "
            f"{self.newest.number}, and a round accepts commitments for only {window} blocks. The "
            f"worker sees each round too late; give --confirmations N, well under {window}"
        )

    def seen_too_late(self, view_seconds: int) -> str | None:
        """Return a warning if the last commitments are published after view 0 starts."""
        seconds = self.newest.timestamp - self.final.timestamp
        if seconds < view_seconds:
            return None
        return (
            f"the newest final block is {seconds} s older than the newest block, and the first "
            f"view begins {view_seconds} s after a window has closed. The last commitments can "
            "miss that view, and it can end before any member acts, unless the chain is only idle"
        )


def finality_lag(chain: ChainReader, confirmations: int | None) -> FinalityLag:
    """Return the lag on a node's chain, by confirmations or the chain's own finality."""
    newest = chain.head()
    return FinalityLag(chain.block(final_number(chain, newest, confirmations)), newest)


def _try_folder(folder: Path, probe: bytes) -> None:
    if not folder.exists():
        DISK.make_folder(folder)
    DISK.remove(DISK.create(folder, probe))


T = TypeVar("T")

KEPT_PAYLOADS = 3  # most updates of one client on disk at a time
SENDING_GAS = 1_712_000  # limit of a commitment's transaction: its account must be able to pay it
ROUND_GAS = 450_000  # a commitment, and a decision of 86 active clients: gas_snapshot.json
WEI = 10**18


class CheckState(StrEnum):
    """Outcome of a check."""

    OK = "ok"
    WARNING = "warning"
    MISSING = "missing"
    NOT_LOOKED_AT = "not-looked-at"


Found = tuple[CheckState, str]
"""Outcome of a check and a sentence; if something is missing, it says what to do."""


@dataclass(frozen=True, slots=True)
class PreflightResult:
    """Result of one check."""

    check: str
    state: CheckState
    found: str


class _MissingError(Exception):
    """The result of an earlier check is missing."""


@dataclass(slots=True)
class PreflightChecks:
    """Runs all checks, and keeps the results that later ones need."""

    asked: WorkerTarget
    folder: Path
    open_node: Callable[[], RpcReader]
    open_keys: Callable[[], Sequence[KeySigner]]
    wall: Callable[[], float]
    probe: bytes
    _reader: RpcReader | None = None
    _ledger: CommitteeLedger | None = None
    _state: LedgerSnapshot | None = None
    _signers: dict[ClientId, KeySigner] | None = None
    _document: RunDocument | None = None
    _domain: Domain | None = None
    _encoded: bytes | None = None

    @property
    def clients(self) -> tuple[ClientId, ...]:
        return tuple(sorted(self._signers or ()))

    def checks(self) -> Iterator[PreflightResult]:
        try:
            for name, look in (
                ("chain", self._look_at_chain),
                ("contract", self._look_at_contract),
                ("run", self._look_at_run),
                ("clock", self._look_at_clock),
                ("finality", self._look_at_finality),
                ("model", self._look_at_model),
                ("key", self._look_at_keys),
                ("funds", self._look_at_funds),
                ("blobs", self._look_at_blobs),
                ("mailbox", self._look_at_mailbox),
                ("data", self._look_at_data),
                ("folder", self._look_at_folder),
            ):
                try:
                    yield PreflightResult(name, *look())
                except _MissingError as error:
                    yield PreflightResult(name, CheckState.NOT_LOOKED_AT, str(error))
                except CmflError as error:
                    yield PreflightResult(name, CheckState.MISSING, str(error))
                except OSError as error:
                    file = f"{error.filename}: " if error.filename else ""
                    sentence = f"{file}{error.strerror or error}"
                    yield PreflightResult(name, CheckState.MISSING, sentence)
        finally:
            if self._reader is not None:
                self._reader.close()

    @property
    def _node(self) -> RpcReader:
        return _needed(self._reader)

    @property
    def _run(self) -> RunDocument:
        return _needed(self._document)

    def _look_at_chain(self) -> Found:
        self._reader = node = self.open_node()
        genesis, number = node.genesis_hash.hex(), node.head().number
        return CheckState.OK, f"chain {node.chain_id}, genesis 0x{genesis}, block {number}"

    def _look_at_contract(self) -> Found:
        address, node = eip55(self.asked.contract), self._node
        require_code(node, address)
        ledger = CommitteeLedger(node, address)
        self._state, self._ledger = ledger.state(), ledger
        match self._state.stage:
            case LedgerStage.REGISTERING:
                sentence = "not all clients are registered yet; the deployer must continue"
                return CheckState.WARNING, f"{address}: {sentence}"
            case LedgerStage.FINISHED:
                raise ConfigurationError(f"{address}: the run is finished")
            case LedgerStage.OPEN:
                number, of = self._state.round, ledger.deployment()
                last = self._state.opened_block + of.commit_blocks
                if node.head().number < last:
                    sentence = f"round {number} accepts commitments up to block {last}"
                    return CheckState.OK, f"{address}: {sentence}"
                sentence = f"round {number} has accepted no commitments since block {last}"
                then = f"; a new worker takes part from round {number + 1} on"
                if number == of.rounds:
                    then = ", and it is the last round"
                return CheckState.WARNING, f"{address}: {sentence}{then}"

    def _look_at_run(self) -> Found:
        ledger = _needed(self._ledger)
        of = ledger.deployment()
        data = store_at(self.asked.blobs).get(of.config, MAX_DOCUMENT_BYTES)
        self._document, self._encoded = deployed_document(data, of), data
        self._domain = deployed_domain(
            ledger, allow_unknown_creation=self.asked.allow_unknown_creation
        )
        mines_at_once = self._node.mines_at_once()
        warning = shared_run_warning(self._document, self.asked, mines_at_once=mines_at_once)
        if warning is not None:
            return CheckState.WARNING, warning
        registry = of.registry.hex()
        return CheckState.OK, f"{of.clients} clients, {of.rounds} rounds, registry 0x{registry}"

    def _look_at_clock(self) -> Found:
        view_seconds = self._run.parameters.view_seconds
        newest = self._node.head()
        late = self.wall() - newest.timestamp
        sentence = f"block {newest.number} is {late:.0f} s old by this clock"
        if late < 0:
            sentence = f"block {newest.number} is {-late:.0f} s ahead of this clock"
        if abs(late) <= view_seconds / 2:
            return CheckState.OK, sentence
        why = "no block has come since" if late > 0 else "the chain makes blocks ahead of time"
        sentence += f", over half of a view's {view_seconds} s; set the clock, unless {why}"
        return CheckState.WARNING, sentence

    def _look_at_finality(self) -> Found:
        parameters, confirmations = self._run.parameters, self.asked.confirmations
        blocks, lag = parameters.commit_blocks, finality_lag(self._node, confirmations)
        if (never := lag.closed_too_early(blocks)) is not None:
            return CheckState.MISSING, never
        if (late := lag.seen_too_late(parameters.view_seconds)) is not None:
            return CheckState.WARNING, late
        how = "the chain's own final blocks"
        if confirmations is not None:
            how = f"{confirmations} confirmations"
        return CheckState.OK, f"{how}; a round accepts commitments for {blocks} blocks"

    def _look_at_model(self) -> Found:
        dimension, model = self._run.parameters.dimension, _needed(self._state).model
        blobs = store_at(self.asked.blobs)
        vector_from_bytes(blobs.get(model, 4 * dimension), dimension)
        blobs.get(self._run.initial_model, 4 * dimension)
        return CheckState.OK, f"0x{model.hex()}, {dimension} parameters, and the initial one"

    def _look_at_keys(self) -> Found:
        document, ledger = self._run, _needed(self._ledger)
        signers = signers_by_client(document, self.open_keys())
        for signer in signers.values():
            require_plain_sender(self._node, checksum(signer.address))
        banned = {}
        if _needed(self._state).stage is not LedgerStage.REGISTERING:
            ban_rounds = {client: ledger.client(client).banned_in for client in sorted(signers)}
            banned = {client: number for client, number in ban_rounds.items() if number}
        sentence = "; ".join(
            f"account {checksum(signer.address)} is client {client}"
            + (f", banned in round {banned[client]}" if client in banned else "")
            for client, signer in sorted(signers.items())
        )
        if len(banned) == len(signers):
            raise ConfigurationError(f"{sentence}: no client can take part")
        self._signers = signers
        return CheckState.WARNING if banned else CheckState.OK, sentence

    def _look_at_funds(self) -> Found:
        signers, node = _needed(self._signers), self._node
        left = self._run.parameters.rounds - max(_needed(self._state).round, 1) + 1
        market, caps = node.market(), RpcSettings().fee_caps
        offer = new_fees(market.base_fee, market.tip, caps)
        if offer is None:
            return CheckState.WARNING, (
                f"gas costs {market.base_fee} wei now, and a worker sends nothing over "
                f"{caps.fee} wei; raise the limit with --max-fee"
            )
        # A worker lets the account that owns most pay for all of its clients.
        balance = max(node.balance_of(checksum(signer.address)) for signer in signers.values())
        return funds(balance, market.base_fee + offer.tip, offer.fee, left)

    def _look_at_blobs(self) -> Found:
        uploads, encoded, sentences = self._uploads(), _needed(self._encoded), []
        for place in parse_locations("blobs", self.asked.blobs):
            store = store_at(place.text, uploads)
            if place.kind is LocationKind.SERVER:
                store.put(encoded)  # which it has already: nothing is added
                store.get(sha256(encoded), len(encoded))
                sentences.append(f"{place.shown} accepts signed uploads and serves blobs")
                continue
            digest = store.put(self.probe)
            try:
                store.get(digest, len(self.probe))
            finally:
                store.remove(digest)
            sentences.append(f"{place.shown} is readable and writable")
        return CheckState.OK, "; ".join(sentences)

    def _look_at_mailbox(self) -> Found:
        uploads, number, sentences = self._uploads(), _needed(self._state).round, []
        for place in parse_locations("mailbox", self.asked.mailbox):
            mailbox = mailbox_at(place.text, uploads)
            boards = (mailbox.listed(uploads.domain, number, kind) for kind in EnvelopeKind)
            sentence = (
                f"{place.shown} is readable: {sum(map(len, boards))} messages of round {number}"
            )
            if place.kind is LocationKind.FOLDER:
                _try_folder(folder_at("mailbox", place), self.probe)
                sentences.append(f"{sentence}, and writable")
            else:
                sentences.append(f"{sentence}; your first letter tests writing")
        return CheckState.OK, "; ".join(sentences)

    def _look_at_data(self) -> Found:
        signers = _needed(self._signers)
        _, data, model = own_inputs(self._run, signers, self.asked)
        counts = ", ".join(str(len(data.train[client].y)) for client in sorted(signers))
        return CheckState.OK, (
            f"{counts} samples of {data.name!r}, as registered, {len(data.test.y)} for the test; "
            f"model {model.name!r} as deployed"
        )

    def _look_at_folder(self) -> Found:
        folder, worker, parameters = self.folder, WorkerFolder(self.folder), self._run.parameters
        node = self._node
        worker.make()
        if worker.is_held():
            raise ConfigurationError(
                f"{folder}: another worker uses this folder; use one folder for each worker"
            )
        _try_folder(folder, b"probe")
        payloads = KEPT_PAYLOADS * parameters.payload_form.size(parameters.dimension)
        free, needed = shutil.disk_usage(folder).free, payloads + SPARE_BYTES
        if free < needed:
            raise ConfigurationError(
                f"{folder}: {free // 1_000_000} MB are free, and {needed // 1_000_000} MB needed"
            )
        # A worker goes on from what it has acted on, and with no other chain.
        FinalityCheckpoints(worker.acted_on, node).require_unchanged(node)
        journal = "has a journal" if worker.journal.exists() else "has no journal yet"
        return CheckState.OK, f"{folder} is free, {journal}, {free / 1e9:.1f} GB are free"

    def _uploads(self) -> UploadSigner:
        signers = _needed(self._signers)
        uploads = upload_signer(_needed(self._domain), signers)
        uploads.round = _needed(self._state).round
        return uploads


def funds(balance: int, price: int, most: int, rounds: int) -> Found:
    """Return whether an account can pay, given its wei, and the price and most wei per gas."""
    has = f"the account has {balance / WEI:.6g} ETH"
    if most == 0:
        return CheckState.OK, f"{has}, and gas costs nothing now"
    lasts = balance // (ROUND_GAS * max(price, 1))
    paid = f"about {min(lasts, rounds)} of the {rounds} remaining rounds"
    sentence = f"{has}, enough for {paid} if it sends all"
    if balance < SENDING_GAS * most:
        least = SENDING_GAS * most / WEI
        return CheckState.MISSING, f"{has}; to send a commitment it needs at least {least:.6g} ETH"
    return (CheckState.OK if lasts >= rounds else CheckState.WARNING), sentence


def _needed(value: T | None) -> T:
    if value is None:
        raise _MissingError("needs an item reported missing above")
    return value
