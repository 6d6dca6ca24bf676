"""A deployed contract: its manifest, its storage, its recorded events, and its five transactions.

A manifest is a file with what was deployed and where. It belongs to one run folder, and names the
run and the digest of its settings, so that the manifests of two runs cannot be exchanged.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any

from ledger.chain import ports, round_ledger
from ledger.chain.contract import abi, codec
from ledger.chain.finality import final_number
from ledger.io import parsing
from ledger.io.home import DISK, MANIFEST, Disk, Home, RunPaths, read_file, read_text
from ledger.protocol import encoding, ledger_state, types
from ledger.protocol.canonical import other_version
from ledger.protocol.errors import ChainError, ConfigurationError

_SALT = re.compile("0x[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Manifest:
    """A deployed contract; the reader checks each field.

    Digests and hashes are 0x-hex, addresses EIP-55. `configuration` is the digest of the settings
    in its `config.toml`, `config` the digest of the run's document, `transaction` the creating one.
    """

    run: str
    configuration: str
    chain_id: int
    genesis_hash: str
    address: str
    salt: str
    transaction: str
    block: int
    deployer: str
    compiler: str
    bytecode_sha256: str
    sources: dict[str, str]
    config: str
    arguments: dict[str, Any]
    version: int = types.PROTOCOL_VERSION

    def domain(self) -> types.Domain:
        salt = types.Digest(bytes.fromhex(self.salt.removeprefix("0x")))
        return types.Domain(self.chain_id, types.Address(encoding.to_canonical(self.address)), salt)


def read_run_manifest(paths: RunPaths) -> Manifest:
    """Return a run's manifest, checked against its name and settings, and not against a chain."""
    manifest = read_manifest(paths.manifest)
    if manifest.run != paths.name:
        raise ChainError(
            f"{paths.manifest} is the manifest of run {manifest.run!r}, not of "
            f"{paths.name!r}; move it back, or rename its folder to {manifest.run!r}"
        )
    digest = settings_digest(paths)
    if digest != manifest.configuration:
        raise ChainError(
            f"{paths.configuration} has another configuration ({digest}) than "
            f"{paths.manifest} ({manifest.configuration}); restore the original file"
        )
    return manifest


def require_unplayed(paths: RunPaths) -> None:
    """Reject a run without a manifest that has files which only a deployed run writes."""
    if (left := paths.left_by_play()) is not None:
        raise ChainError(
            f"{paths.manifest} is missing, but run {paths.name!r} was played ({left.name} "
            "exists); restore it, because no second contract is deployed"
        )


def settings_digest(paths: RunPaths) -> str:
    """Return the digest of a run's settings, 0x-hex, without sections of machine and trackers."""
    settings = _settings(paths)
    settings.pop("machine", None)
    settings.pop("track", None)
    if isinstance(data := settings.get("data"), dict):
        data.pop("path", None)  # the run document records the file's sha256 instead
    try:
        text = json.dumps(settings, sort_keys=True, default=str)
    except (ValueError, RecursionError) as error:
        raise ChainError(f"{paths.configuration}: {error}") from error
    return f"0x{encoding.sha256(text.encode()).hex()}"


def was_in_memory(paths: RunPaths) -> bool:
    """Return whether a run without a manifest used the memory ledger, which needs none."""
    machine = _settings(paths).get("machine")
    is_memory = isinstance(machine, dict) and machine.get("ledger") == "memory"
    # Only a run on a chain has a journal of its signatures.
    return is_memory and not paths.journal.exists()


def _settings(paths: RunPaths) -> dict[str, Any]:
    path = paths.configuration
    try:
        return parsing.parse_toml(read_text(path, parsing.MAX_TOML_BYTES))
    except ConfigurationError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            return {}
        fact = str(error)
        raise ChainError(fact if fact.startswith(f"{path} ") else f"{path}: {fact}") from error


def read_manifest(path: Path) -> Manifest:
    """Return the manifest in a file, of any run; nothing in it is checked against a chain."""
    kinds: dict[str, type] = {field.name: str for field in fields(Manifest)}
    kinds |= {"version": int, "chain_id": int, "block": int, "sources": dict, "arguments": dict}
    value = parsing.read_record(path, "manifest", kinds, _require_version)
    if not _SALT.fullmatch(value["salt"]):
        raise ChainError(f"manifest {path}: salt {value['salt']!r:.80} is not 0x and 64 hex digits")
    return Manifest(**value | {"address": encoding.eip55(value["address"])})


def require_current_home(home: Home) -> None:
    """Reject a home whose runs are of another protocol version, before anything in it is opened."""
    try:
        path = next(home.runs.glob(f"*/{MANIFEST}"), None)
        value = path and parsing.parse_json(read_file(path, parsing.MAX_RECORD_BYTES))
    except (OSError, ValueError):
        return  # a damaged manifest is reported by the commands that read it
    _require_version(f"manifest {path}", value)


def _require_version(name: str, value: object) -> None:
    """Reject a manifest of another version; version 2 has a format instead."""
    if not isinstance(value, dict):
        return
    found = value.get("version", 2 if "format" in value else types.PROTOCOL_VERSION)
    if found != types.PROTOCOL_VERSION:
        raise ChainError(other_version(name, found))


def write_manifest(path: Path, manifest: Manifest, disk: Disk = DISK) -> None:
    """Write a manifest atomically and durably; raise OSError if that fails."""
    text = json.dumps(asdict(manifest), indent=1, sort_keys=True) + "\n"
    disk.write_whole(path, text.encode())


MAX_COMMITMENTS = 256  # in one transaction


class CommitteeLedger(round_ledger.RoundHistory):
    """Read access to a deployed contract: its storage and its recorded events."""

    def __init__(
        self,
        chain: ports.ChainReader,
        address: str,
        from_block: int = 0,
        fixed: ledger_state.Deployment | None = None,
    ) -> None:
        """Store the arguments; nothing is requested yet, and `fixed` is read where it is None."""
        self.is_recorded, self.from_block = True, from_block
        self.chain = chain
        self.address = encoding.eip55(address)
        if fixed is not None:
            self.fixed = fixed

    @property
    def node(self) -> str | None:
        return self.chain.node

    def deployment(self) -> ledger_state.Deployment:
        return self.fixed

    @cached_property
    def fixed(self) -> ledger_state.Deployment:
        """The contract's constants, read once: from the code, or by a call if it is foreign."""
        values = abi.deployment_in(self.chain.code(self.address))
        if values is None:
            (values,) = self._call("deployment")
        names = (field.name for field in fields(ledger_state.Deployment))
        fixed = dict(zip(names, values, strict=True))
        if fixed["form"] not in set(types.AcceptanceForm):
            fact = f"deployment() returned strategy {fixed['form']}, which does not exist"
            raise ports.NotServedError(fact)
        fixed["form"] = types.AcceptanceForm(fixed["form"])
        fixed["beacon"] = types.Beacon.BLOCK if fixed["beacon"] else types.Beacon.NONE
        return ledger_state.Deployment(**fixed)

    def state(self, block_number: int | None = None) -> round_ledger.LedgerSnapshot:
        (values,) = self._call("state", block_number=block_number)
        stage, *rest = values
        if stage not in set(ledger_state.LedgerStage):
            raise ports.NotServedError(f"state() returned stage {stage}, which does not exist")
        # In the struct's order.
        return round_ledger.LedgerSnapshot(ledger_state.LedgerStage(stage), *rest)

    def client(self, client: types.ClientId) -> encoding.RegisteredClient:
        return encoding.registered_client(self._call("client", client)[0])

    def domain(self) -> types.Domain:
        """Return the EIP-712 domain; its salt is computed here, not read from the contract."""
        contract = types.Address(encoding.to_canonical(self.address))
        beacon = self.deployment_parent_hash()
        return ledger_state.domain_of(self.fixed, self.chain.chain_id, contract, beacon)

    def deployment_parent_hash(self) -> types.Digest:
        """Return the parent hash of the deploying block; zeros with `beacon = none`."""
        if self.fixed.beacon is types.Beacon.NONE:
            return types.NO_DIGEST
        deployed = self._deployed()
        block = self.chain.block(deployed.block_number)
        if block.hash != deployed.block_hash:
            fact = f"block {block.number} is not the one that deployed {self.address}"
            raise ports.NotServedError(fact)
        return types.Digest(block.parent_hash)

    def creation(self) -> ports.Transaction:
        return self.chain.transaction(self._deployed().transaction_hash)

    def _deployed(self) -> round_ledger.RecordedEvent:
        found = self.recorded(round_ledger.EventQuery([ledger_state.LedgerDeployed], limit=1))
        if not found:
            raise ports.NotServedError(f"the logs do not hold the deployment of {self.address}")
        return found[0]

    def recorded_in(self, from_block: int, to_block: int) -> list[round_ledger.RecordedEvent]:
        query = ports.LogQuery(self.address, [], from_block, to_block)
        return self.possible(self.chain.logs(query))

    def recorded(self, query: round_ledger.EventQuery) -> list[round_ledger.RecordedEvent]:
        topics: list[list[bytes] | bytes] = [[abi.topic(kind.__name__) for kind in query.kinds]]
        if query.round is not None:
            topics.append(query.round.to_bytes(32))
        last = self.chain.head().number if query.to_block is None else query.to_block
        bounds = (self.from_block, last, query.limit, query.descending)
        return self.possible(self.chain.logs(ports.LogQuery(self.address, topics, *bounds)))

    def call_of(self, transaction_hash: bytes) -> codec.Call | None:
        """Return the call in a transaction's data; None if it was not sent to the contract.

        The contract takes transactions from accounts without code only, so the data of each are
        its own call's; a node can name another transaction.
        """
        transaction = self.chain.transaction(transaction_hash)
        return codec.decode_call(transaction.input) if transaction.to == self.address else None

    def possible(self, logs: Iterable[ports.Log]) -> list[round_ledger.RecordedEvent]:
        """Return the events in logs of the contract; raise NotServedError for an impossible one."""
        events = [codec.decode_log(log) for log in logs]
        for recorded in events:
            codec.require_possible_event(recorded, self.fixed)
        return events

    def _call(
        self, function: str, *arguments: object, block_number: int | None = None
    ) -> tuple[Any, ...]:
        try:
            data = self.chain.call(self.address, abi.call_data(function, *arguments), block_number)
        except ports.TransactionRevertedError as error:
            raise abi.refusal(error) from error
        if not data:
            raise ChainError(f"there is no committee ledger at {self.address}")
        return abi.result_of(function, data)


class LedgerWriter(CommitteeLedger, round_ledger.RoundLedger):
    """Write access to a deployed contract; every transaction returns its receipt.

    It raises the contract's ProtocolRefusal, a SignatureError for a signature without compact form,
    and a ChainError if the chain did not accept the transaction.
    """

    def __init__(self, chain: ports.ChainWriter, address: str, from_block: int = 0) -> None:
        super().__init__(chain, address, from_block)
        self.writer = chain

    def newest_block(self) -> ports.Block:
        return self.chain.head()

    def final_number(self, newest: ports.Block, confirmations: int | None) -> int:
        return final_number(self.chain, newest, confirmations)

    def block(self, number: int) -> ports.Block:
        return self.chain.block(number)

    def mine(self, blocks: int) -> None:
        self.writer.mine(blocks)

    def would_accept(self, round_number: int, signed: Sequence[types.SignedCommitment]) -> bool:
        call = codec.CommitCall(round_number, tuple(signed))
        try:
            self.chain.call(self.address, codec.encode_call(call))
        except ports.TransactionRevertedError:
            return False
        return True

    def register_clients(self, words: Sequence[int], rest: types.Digest) -> ports.Receipt:
        # The last batch draws the first committee: up to 400 draws while no client is banned.
        return self._send(codec.RegisterCall(tuple(words), rest), 2_000_000 + 30_000 * len(words))

    def commit_updates(
        self, round_number: int, signed: Sequence[types.SignedCommitment]
    ) -> ports.Receipt:
        call = codec.CommitCall(round_number, tuple(signed))
        # In the first round each of up to 55 flag words is new storage.
        return self._send(call, 1_700_000 + 12_000 * len(signed))

    def decide(
        self,
        round_number: int,
        decision: ledger_state.SubmittedDecision,
        certificates: tuple[ledger_state.SubmittedCertificate, ledger_state.SubmittedCertificate],
    ) -> ports.Receipt:
        call = codec.DecideCall(round_number, decision, certificates)
        replies = sum(len(certificate.replies) for certificate in certificates)
        return self._send(call, 400_000 + 3_000 * len(decision.ranking) + 12_000 * replies)

    def abandon_round(self, round_number: int) -> ports.Receipt:
        # Gas for `MAX_DRAWS` draws; EIP-7825 allows a transaction 2^24.
        return self._send(codec.AbandonCall(round_number), 11_500_000)

    def report_equivocation(self, report: ledger_state.EquivocationReport) -> ports.Receipt:
        return self._send(codec.ReportCall(report), 300_000)

    def _send(self, call: codec.Call, gas: int) -> ports.Receipt:
        try:
            return self.writer.send(self.address, codec.encode_call(call), gas)
        except ports.TransactionRevertedError as error:
            raise abi.refusal(error) from error
