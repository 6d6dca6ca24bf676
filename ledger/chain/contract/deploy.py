"""Deploy the contract once, register the clients, and connect to a deployed contract.

Deploying is idempotent. A manifest whose contract is on this chain, has this code and this
configuration is used as it is. An interrupted deployment is completed. A mismatch is an error,
never a second contract.

The deployment intent is a file written before the creation is sent, with the nonce of the creating
transaction. On every fork an account has one transaction per nonce. A process that was killed
before it wrote the manifest finds its contract by it, or sends the creation with it again.
"""

from __future__ import annotations

import itertools
import json
from bisect import bisect_left
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields, replace
from functools import partial
from typing import Any

from ledger.chain import ports
from ledger.chain.contract import abi
from ledger.chain.contract.codec import RegisterCall
from ledger.chain.contract.ledger import (
    CommitteeLedger,
    LedgerWriter,
    Manifest,
    read_manifest,
    read_run_manifest,
    settings_digest,
    write_manifest,
)
from ledger.io.home import DISK, Disk, Home, RunPaths
from ledger.io.parsing import read_record, require_format
from ledger.protocol.documents.run import RunDocument, decode_run, encode_run
from ledger.protocol.encoding import contract_created_by, sha256, to_canonical, words
from ledger.protocol.errors import ChainError, ConfigurationError
from ledger.protocol.ledger_state import Deployment, deployment_of
from ledger.protocol.signing import domain_separator
from ledger.protocol.types import Beacon, Domain

_FORMAT = 2


@dataclass(frozen=True, slots=True)
class DeploymentIntent:
    """A started deployment; hashes are 0x-hex, and the deployer's address EIP-55."""

    format: int
    chain_id: int
    genesis_hash: str
    deployer: str
    creation_sha256: str
    nonce: int


def create_once(
    chain: ports.ChainWriter, creation: bytes, gas: int, paths: RunPaths, disk: Disk
) -> ports.Receipt:
    """Create a run's contract exactly once, however often earlier attempts were interrupted."""
    if (intent := read_intent(paths)) is not None:
        receipt = _resume(chain, intent, creation, gas, paths)
        if receipt is not None:
            return receipt
    # An attempt fails when another sender with this key has used the nonce.
    for _ in range(3):
        nonce = _write(chain, creation, paths, disk)
        try:
            return chain.create_contract(creation, gas, nonce)
        except ports.TransactionRefusedError:
            # Retry only if the nonce was used by another transaction.
            if chain.next_nonce() == nonce:
                raise
    return chain.create_contract(creation, gas, _write(chain, creation, paths, disk))


def earlier_creation(
    chain: ports.ReceiptReader, intent: DeploymentIntent, creation: bytes, paths: RunPaths
) -> ports.Receipt | None:
    """Return the receipt of an earlier attempt's creation; None until it is mined."""
    genesis_hash = f"0x{chain.genesis_hash.hex()}"
    if (intent.chain_id, intent.genesis_hash) != (chain.chain_id, genesis_hash):
        raise ChainError(
            f"run {paths.name!r} was being deployed on chain {intent.chain_id} with genesis "
            f"{intent.genesis_hash}, not on {chain.chain_id} with {genesis_hash}; continue "
            f"there, or remove {paths.intent} to deploy it here"
        )
    receipt = chain.receipt_of(intent.deployer, intent.nonce)
    # If the creation was never sent, something else may have used the nonce, say another run.
    if receipt is None or receipt.status != 1 or receipt.contract_address is None:
        return None
    sent = chain.transaction(receipt.transaction_hash)
    if sha256(sent.input).hex() != intent.creation_sha256:
        return None
    others = [run for run in Home(paths.path.parent.parent).deployed() if run.path != paths.path]
    if receipt.contract_address in {read_manifest(run.manifest).address for run in others}:
        return None
    if intent.creation_sha256 != sha256(creation).hex():
        raise ChainError(
            f"run {paths.name!r} was being deployed with another configuration, as contract "
            f"{receipt.contract_address}; continue with that configuration, or use another name"
        )
    return receipt


def _resume(
    chain: ports.ChainWriter, intent: DeploymentIntent, creation: bytes, gas: int, paths: RunPaths
) -> ports.Receipt | None:
    """Return the creation of an earlier attempt; None if it can no longer be mined."""
    receipt = earlier_creation(chain, intent, creation, paths)
    if receipt is not None or chain.receipt_of(intent.deployer, intent.nonce) is not None:
        return receipt
    if (intent.deployer, intent.creation_sha256) != (chain.sender, sha256(creation).hex()):
        chain.wait_for_pending(intent.deployer)
        return earlier_creation(chain, intent, creation, paths)
    if intent.nonce > (expected := chain.next_nonce()):
        raise ChainError(
            f"run {paths.name!r} was being deployed by transaction {intent.nonce} of "
            f"{intent.deployer}, whose next is {expected}. The node lags, or its chain was "
            f"reverted; wait, or remove {paths.intent} to deploy again"
        )
    try:
        return chain.create_contract(creation, gas, intent.nonce, again=True)
    except ports.TransactionRefusedError:
        # The earlier attempt, or another transaction with its nonce, may just have been mined.
        if chain.receipt_of(intent.deployer, intent.nonce) is None:
            raise
        return earlier_creation(chain, intent, creation, paths)


def _write(chain: ports.ChainWriter, creation: bytes, paths: RunPaths, disk: Disk) -> int:
    intent = DeploymentIntent(
        format=_FORMAT,
        chain_id=chain.chain_id,
        genesis_hash=f"0x{chain.genesis_hash.hex()}",
        deployer=chain.sender,
        creation_sha256=sha256(creation).hex(),
        nonce=chain.next_nonce(),
    )
    text = json.dumps(asdict(intent), indent=1, sort_keys=True) + "\n"
    disk.write_whole(paths.intent, text.encode())
    return intent.nonce


def read_intent(paths: RunPaths) -> DeploymentIntent | None:
    """Return the intent of a run's started deployment; None if there is none."""
    if not paths.intent.exists():
        return None
    kinds: dict[str, type] = {field.name: str for field in fields(DeploymentIntent)}
    kinds |= {"format": int, "chain_id": int, "nonce": int}
    record = read_record(paths.intent, "deployment intent", kinds, partial(require_format, _FORMAT))
    intent = DeploymentIntent(**record)
    if len(intent.creation_sha256) != 64 or set(intent.creation_sha256) - set("0123456789abcdef"):
        raise ChainError(f"deployment intent {paths.intent}: creation_sha256 is not a digest")
    if intent.nonce < 0:
        raise ChainError(f"deployment intent {paths.intent}: nonce {intent.nonce} is below 0")
    return intent


DEPLOYMENT_GAS = 6_500_000
ALLOW_UNKNOWN_CREATION = "--allow-unknown-creation"
"""Option of `cmfl join` and `cmfl worker` that an error names."""


def deployment_for(document: RunDocument) -> tuple[Deployment, tuple[RegisterCall, ...]]:
    """Return the constructor's arguments and the registrations of a run's configuration."""
    config = sha256(encode_run(document))
    deployment, batches = deployment_of(
        document.parameters, config, document.registry, document.initial_model
    )
    return deployment, tuple(RegisterCall(words, rest) for words, rest in batches)


def deployed_document(data: bytes, deployment: Deployment) -> RunDocument:
    """Return the run document of a contract, decoded from the blob that the contract names."""
    document = decode_run(data)
    if deployment_for(document)[0] != deployment:
        raise ConfigurationError(
            "the contract does not match its run document; do not trust its deployer"
        )
    return document


def creation_data(deployment: Deployment) -> bytes:
    """Return the contract's creation code with a deployment's arguments."""
    return abi.creation_data(constructor_values(deployment))


def deploy(
    chain: ports.ChainWriter,
    document: RunDocument,
    paths: RunPaths,
    disk: Disk = DISK,
    opens: bool = True,
) -> Manifest:
    """Deploy a run with a `config.toml`, exactly once, except the registration that opens it."""
    ports.require_plain_sender(chain, chain.sender)
    deployment, batches = deployment_for(document)
    if paths.manifest.exists():
        written = read_run_manifest(paths)
        manifest = _as_moved(chain, written)
        connect(chain, manifest)
        if f"0x{deployment.config.hex()}" != manifest.config:
            fact = f"run document {manifest.config}, not 0x{deployment.config.hex()}"
            raise ChainError(f"{paths.manifest} has another configuration ({fact})")
        if manifest != written:
            write_manifest(paths.manifest, manifest, disk)
        disk.sync([paths.manifest])  # its writer may have been killed before the file was durable
    else:
        # Before anything is paid, and before the intent, which would bind the run to this chain.
        chain.require_suitable(needs_block_hash=deployment.beacon is Beacon.BLOCK)
        receipt = create_once(chain, creation_data(deployment), DEPLOYMENT_GAS, paths, disk)
        manifest = _manifest_of(chain, receipt, deployment, paths)
        connect(chain, manifest)
        write_manifest(paths.manifest, manifest, disk)
    disk.remove(paths.intent)
    ledger = LedgerWriter(chain, manifest.address, manifest.block)
    registered = ledger.state().registered
    ends = itertools.accumulate(len(batch.words) for batch in batches)
    for batch, end in zip(batches, ends, strict=True):
        if end > registered and (end < len(document.registry) or opens):
            ledger.register_clients(batch.words, batch.rest)
    return manifest


def _manifest_of(
    chain: ports.ChainWriter, receipt: ports.Receipt, deployment: Deployment, paths: RunPaths
) -> Manifest:
    if receipt.contract_address is None:
        raise ChainError("the chain returned no address for the new contract")
    return Manifest(
        run=paths.name,
        configuration=settings_digest(paths),
        chain_id=chain.chain_id,
        genesis_hash=f"0x{chain.genesis_hash.hex()}",
        address=receipt.contract_address,
        salt=_salt(CommitteeLedger(chain, receipt.contract_address, receipt.block_number)),
        transaction=f"0x{receipt.transaction_hash.hex()}",
        block=receipt.block_number,
        deployer=chain.transaction(receipt.transaction_hash).sender,
        compiler=abi.artifact().compiler,
        bytecode_sha256=sha256(abi.artifact().bytecode).hex(),
        sources=abi.artifact().sources,
        config=f"0x{deployment.config.hex()}",
        arguments=_readable(deployment),
    )


def _as_moved(chain: ports.ChainReader, manifest: Manifest) -> Manifest:
    transaction_hash = _creating_hash(manifest)
    receipt = None if transaction_hash is None else chain.receipt(transaction_hash)
    if receipt is None or not _has_created(receipt, manifest):
        return manifest  # `connect` rejects it
    salt = _salt(CommitteeLedger(chain, manifest.address, receipt.block_number))
    return replace(manifest, block=receipt.block_number, salt=salt)


def _creating_hash(manifest: Manifest) -> bytes | None:
    try:
        transaction_hash = bytes.fromhex(manifest.transaction.removeprefix("0x"))
    except ValueError:
        return None
    return transaction_hash if len(transaction_hash) == 32 else None


def _salt(ledger: CommitteeLedger) -> str:
    return f"0x{ledger.domain().salt.hex()}"


def connect(chain: ports.ChainReader, manifest: Manifest) -> CommitteeLedger:
    """Return a manifest's contract after checking each field against chain and artefact."""
    if manifest.chain_id != chain.chain_id:
        raise ChainError(f"the manifest is for chain {manifest.chain_id}, not {chain.chain_id}")
    if manifest.genesis_hash != f"0x{chain.genesis_hash.hex()}":
        fact = f"genesis {manifest.genesis_hash}, not 0x{chain.genesis_hash.hex()}"
        raise ChainError(f"the manifest is for the chain with {fact}")
    _require_artifact(manifest)
    require_code(chain, manifest.address)
    ledger = CommitteeLedger(chain, manifest.address, manifest.block)
    deployment = ledger.deployment()
    config = f"0x{deployment.config.hex()}"
    if config != manifest.config:
        raise ChainError(f"the contract has run document {config}, not {manifest.config}")
    for name, value in _readable(deployment).items():
        if manifest.arguments.get(name) != value:
            shown = str(manifest.arguments.get(name))[:80]
            raise ChainError(f"the contract has {name} {value}, not {shown} as in its manifest")
    if len(manifest.arguments) != len(_readable(deployment)):
        raise ChainError("the manifest has arguments that the contract does not have")
    _require_creation(chain, manifest, deployment)
    if (salt := _salt(ledger)) != manifest.salt:
        raise ChainError(f"the contract's domain has salt {salt}, not {manifest.salt}")
    return ledger


def deployed_domain(ledger: CommitteeLedger, *, allow_unknown_creation: bool) -> Domain:
    """Return the EIP-712 domain of a contract whose code contains it: clients may sign for it."""
    domain = ledger.domain()
    try:
        violation = code_violation(ledger, ledger.deployment(), domain)
    except ports.UncheckableCreationError as error:
        if not allow_unknown_creation:
            # What a node does not serve now, it may serve later: a worker asks again.
            kind = ConfigurationError if error.__cause__ is None else ports.UncheckableCreationError
            raise kind(f"{error}; {ALLOW_UNKNOWN_CREATION} accepts it") from error
        return domain
    if violation is not None:
        raise ports.ForeignCodeError(
            f"the code at {ledger.address} is not this run's ({violation})"
        )
    return domain


def _require_artifact(manifest: Manifest) -> None:
    artifact = abi.artifact()
    expected = {
        "compiler": artifact.compiler,
        "bytecode_sha256": sha256(artifact.bytecode).hex(),
        "sources": artifact.sources,
    }
    for name, value in expected.items():
        if getattr(manifest, name) != value:
            fact = f"the manifest's {name} differs from this program's contract"
            raise ChainError(f"{fact}; it has another version, or was changed")


def require_code(chain: ports.ChainReader, address: str) -> None:
    """Reject an address that does not hold this contract's code."""
    code = chain.code(address)
    if not code:
        chain.verify_not_behind()
        raise ChainError(f"there is no contract at {address}")
    if not is_published(code):
        fact = f"the code at {address} is not that of {abi.artifact().compiler}'s artefact"
        raise ports.ForeignCodeError(fact)


def _require_creation(chain: ports.ChainReader, manifest: Manifest, deployment: Deployment) -> None:
    """Reject a wrong creation: reading from a wrong first block would miss events."""
    if (transaction_hash := _creating_hash(manifest)) is None:
        raise ChainError("the manifest's transaction is not a hash")
    with _served_creation(manifest.address):
        sent = chain.transaction(transaction_hash)
        receipt = chain.receipt(transaction_hash)
    if receipt is None:
        fact = f"there is no receipt of 0x{transaction_hash.hex()}, although it is mined"
        raise ports.UncheckableCreationError(fact)
    if not _has_created(receipt, manifest):
        raise ChainError("the manifest's transaction did not create the contract")
    if receipt.block_number != manifest.block:
        raise ChainError(f"block {receipt.block_number} created the contract, not {manifest.block}")
    if to_canonical(sent.sender) != to_canonical(manifest.deployer):
        raise ChainError(f"{sent.sender} deployed the contract, not {manifest.deployer[:60]}")
    if (violation := creation_violation(sent, manifest.address, deployment)) is not None:
        fact = f"the contract at {manifest.address} is not this run's: {violation}"
        raise ports.ForeignCodeError(fact)


def _has_created(receipt: ports.Receipt, manifest: Manifest) -> bool:
    created = receipt.contract_address
    return created is not None and to_canonical(created) == to_canonical(manifest.address)


def _readable(deployment: Deployment) -> dict[str, Any]:
    values = asdict(deployment)
    hexed = {name: f"0x{v.hex()}" for name, v in values.items() if isinstance(v, bytes)}
    plain = {"form": int(deployment.form)}
    return values | hexed | plain | {"beacon": str(deployment.beacon)}


def is_published(code: bytes) -> bool:
    """Return whether runtime code is the artefact's, with the immutables of some deployment."""
    runtime = abi.artifact().runtime
    # Only the immutables that Vyper appends to the runtime code may differ, at most 1,024 bytes.
    return code.startswith(runtime) and len(code) - len(runtime) <= 1024


def code_violation(ledger: CommitteeLedger, deployment: Deployment, domain: Domain) -> str | None:
    """Return why runtime code or creation are not this deployment's; None if they are.

    Both are compared: other creation code can return the same runtime code and fill its storage.
    """
    code = ledger.chain.code(ledger.address)
    if (violation := runtime_violation(code, deployment, domain)) is not None:
        return violation
    with _served_creation(ledger.address):
        sent = ledger.creation()
    return creation_violation(sent, ledger.address, deployment)


@contextmanager
def _served_creation(address: str) -> Iterator[None]:
    """Translate the errors of a chain that answers, and does not serve the creation."""
    try:
        yield
    except (ports.ChainUnreachableError, ports.ChainMovedError, ports.ChainDamagedError):
        raise
    except ChainError as error:
        fact = f"the creation code of {address} is not checkable: {error}"
        raise ports.UncheckableCreationError(fact) from error


def creation_violation(sent: ports.Transaction, address: str, deployment: Deployment) -> str | None:
    """Return why a transaction is not this deployment's creation; None if it is."""
    own = contract_created_by(to_canonical(sent.sender), sent.nonce)
    if sent.to is not None or own != to_canonical(address):
        raise ports.UncheckableCreationError(
            f"the creation code of {address} is not checkable, because another contract "
            f"created it in transaction 0x{sent.hash.hex()}"
        )
    if sent.input != creation_data(deployment):
        return "it was created by other code, or with other arguments"
    return None


def runtime_violation(code: bytes, deployment: Deployment, domain: Domain) -> str | None:
    """Return why runtime code is not this deployment's; None if it is."""
    runtime = abi.artifact().runtime
    if not code:
        return "there is no code"
    if not code.startswith(runtime):
        return "it is not the artefact's"
    immutables = words(domain_separator(domain), domain.salt, *constructor_values(deployment))
    if code[len(runtime) :] != immutables:
        return "its immutables differ from this deployment's"
    return None


def constructor_values(deployment: Deployment) -> tuple[bytes | int, ...]:
    """Return the fields of the constructor's struct, in its order, which is the deployment's."""
    values = (getattr(deployment, field.name) for field in fields(deployment))
    return tuple(value is Beacon.BLOCK if type(value) is Beacon else value for value in values)


def creation_block(chain: ports.ChainReader, address: str, newest: int) -> int | None:
    """Return the number of the block that created a contract, by binary search.

    The contract cannot be destroyed, so it exists after every later block. None if it does not
    exist after `newest`, or the node has pruned old states.
    """

    def exists(block_number: int) -> bool:
        # Another contract reverts; an address without code gives an empty answer.
        try:
            return bool(chain.call(address, abi.call_data("deployment"), block_number))
        except ports.TransactionRevertedError:
            return True

    try:
        first = bisect_left(range(newest + 1), True, key=exists)
    except ports.ChainUnreachableError:
        raise
    except ports.NotServedError:
        return None
    return first if first <= newest else None
