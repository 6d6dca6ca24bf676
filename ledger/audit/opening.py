"""What was deployed, and where the contract says it stands (steps 1 and 2)."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from eth_abi.abi import encode

from ledger.audit import report
from ledger.chain import abi
from ledger.chain.addresses import to_canonical
from ledger.chain.deployment import deployment_for
from ledger.chain.ports import ChainUnreachableError
from ledger.protocol import ledger_state
from ledger.protocol.canonical import MAX_DOCUMENT_BYTES
from ledger.protocol.documents import decode_run
from ledger.protocol.encoding import set_digest
from ledger.protocol.errors import BlobError, BlobMissingError, ChainError, EncodingError
from ledger.protocol.parameters import MAX_CLIENTS, MAX_MEMBERS, MAX_TRAINERS, MIN_MEMBERS
from ledger.protocol.sampling import first_committee
from ledger.protocol.signing import domain_separator
from ledger.protocol.types import NO_DIGEST, Address, Beacon, Digest, Domain, Strategy

if TYPE_CHECKING:
    from ledger.audit.evidence import Archive
    from ledger.audit.report import Notebook
    from ledger.chain.committee_ledger import CommitteeLedger, Snapshot
    from ledger.protocol.documents import RunDocument


_RESTING_ON_PARAMETERS = (
    report.DEPLOYMENT,
    report.BLOBS,
    report.DISTANCES,
    report.MEANS,
    report.RANKING,
    report.MODEL,
    report.COMPLETENESS,
)


@runtime_checkable
class SelfChecking(Protocol):
    """A chain that can say whether its own file still is what the EVM made."""

    def verify(self) -> None:
        """Accept the whole chain, or name its first contradiction.

        Raises:
            ChainError: names the block, and what is wrong with it.
        """


@dataclass(frozen=True, slots=True)
class Opening:
    """What a run starts from.

    Attributes:
        document: its configuration; None if the blob is missing or unreadable.
        deployment: what the configuration demands; without one, what the contract says.
        domain: the contract on its chain.
    """

    document: RunDocument | None
    deployment: ledger_state.Deployment
    domain: Domain


def verify_file(ledger: CommitteeLedger, notes: Notebook) -> None:
    """Let a chain that is a file check itself: a forger of one table has to forge them all.

    Args:
        ledger: the contract.
        notes: where a contradiction is written down.
    """
    if not isinstance(ledger.chain, SelfChecking):
        return
    try:
        ledger.chain.verify()
    except ChainError as error:
        notes.contradict(report.HEAD, "the chain file is what the EVM made of it", str(error))


def read_opening(ledger: CommitteeLedger, desk: Archive) -> Opening | None:
    """Return what was deployed, checked against the configuration; None if it cannot be read.

    Args:
        ledger: the contract.
        desk: where its configuration is, and where contradictions are written down.

    Raises:
        ChainUnreachableError: the node went away.
    """
    notes = desk.notes
    domain = Domain(ledger.chain.chain_id, Address(to_canonical(ledger.address)))
    try:
        found = _fixed(ledger)
    except ChainUnreachableError:
        raise
    except (ChainError, ValueError) as error:
        message = f"it does not: {error}"
        notes.contradict(report.DEPLOYMENT, "the contract names its parameters", message)
        return None
    document = _document(desk, found.config)
    if document is None:
        if not _is_bounded(found):
            notes.contradict(
                report.DEPLOYMENT, f"the contract has {found}", "no contract of this code can"
            )
            return None
        _check_code(ledger, found, domain, notes)
        return Opening(None, found, domain)
    expected = deployment_for(document)[0]
    for name in (field.name for field in fields(ledger_state.Deployment)):
        recorded, true = getattr(found, name), getattr(expected, name)
        if name != "committee" and recorded != true:
            notes.contradict(
                report.DEPLOYMENT,
                f"the contract's {name} is {_text(recorded)}",
                f"the configuration gives {_text(true)}",
            )
    addresses = {client.address for client in document.registry}
    if len(addresses) != len(document.registry):
        notes.contradict(
            report.DEPLOYMENT,
            f"{len(document.registry)} clients are registered",
            f"they have {len(addresses)} addresses",
        )
    _check_code(ledger, expected, domain, notes)
    return Opening(document, expected, domain)


def check_state(snapshot: Snapshot, state: ledger_state.LedgerState, notes: Notebook) -> None:
    """Compare the contract's own state with the one that its transactions lead to.

    Args:
        snapshot: what the contract says.
        state: what the replay came to.
        notes: where contradictions are written down.
    """
    opened = state.stage is not ledger_state.Stage.REGISTERING
    expected = {
        "head": state.head,
        "seed": state.seed,
        "model": state.model,
        "round": state.round,
        "stage": state.stage,
        "committee": set_digest(state.committee) if opened else NO_DIGEST,
        "commitments": state.commitments,
        "opened_block": state.opened_block,
        "registered": len(state.registry),
        "registry_rest": state.registry_rest,
    }
    for name, true in expected.items():
        recorded = getattr(snapshot, name)
        if recorded != true:
            notes.contradict(
                report.DEPLOYMENT if name.startswith("regist") else report.HEAD,
                f"the contract's {name} is {_text(recorded)}",
                f"its transactions lead to {_text(true)}",
            )


def _fixed(ledger: CommitteeLedger) -> ledger_state.Deployment:
    """Return what the contract says was fixed; the first committee follows from the rest."""
    answer = ledger.chain.call(ledger.address, abi.call_data("deployment"))
    (values,) = abi.result_of("deployment", answer)
    names = [entry["name"] for entry in abi.output_fields("deployment")]
    found: dict[str, Any] = dict(zip(names, values, strict=True))
    beacon = Beacon.BLOCK if found.pop("block_beacon") else Beacon.NONE
    strategy = Strategy(found.pop("strategy"))
    for name in ("config", "registry", "model"):
        found[name] = Digest(found[name])
    deployment = ledger_state.Deployment(**found, strategy=strategy, beacon=beacon, committee=())
    if not _is_bounded(deployment):
        return deployment
    committee = first_committee(deployment.config, deployment.clients, deployment.members)
    return replace(deployment, committee=committee)


def _is_bounded(deployment: ledger_state.Deployment) -> bool:
    return (
        MIN_MEMBERS <= deployment.members <= MAX_MEMBERS
        and deployment.members <= deployment.trainers <= MAX_TRAINERS
        and deployment.members + deployment.trainers <= deployment.clients <= MAX_CLIENTS
    )


def _document(desk: Archive, config: Digest) -> RunDocument | None:
    """Return the configuration; without one, what rests on its parameters is not checkable."""
    notes, shown = desk.notes, report.shown(config)
    try:
        return decode_run(desk.get(config, MAX_DOCUMENT_BYTES))
    except BlobMissingError:
        notes.lack(report.BLOBS, f"configuration {shown} is missing")
    except BlobError as error:
        notes.contradict(report.BLOBS, f"the configuration is blob {shown}", str(error))
    except EncodingError as error:
        notes.contradict(report.DEPLOYMENT, f"blob {shown} is a configuration", str(error))
    for step in _RESTING_ON_PARAMETERS:
        notes.lack(step, f"without configuration {shown} the parameters are not known")
    return None


def _check_code(
    ledger: CommitteeLedger, deployment: ledger_state.Deployment, domain: Domain, notes: Notebook
) -> None:
    """Compare the code on chain with the artefact and the immutables that Vyper puts after it.

    Raises:
        ChainUnreachableError: the node went away.
    """
    try:
        code = ledger.chain.code(ledger.address)
    except ChainUnreachableError:
        raise
    except ChainError as error:
        notes.contradict(report.DEPLOYMENT, "there is a contract", str(error))
        return
    artifact, d = abi.artifact(), deployment
    what = f"the code at {ledger.address} is the contract's"
    if not code.startswith(artifact.runtime):
        true = "it is not the artefact's" if code else "there is no code"
        notes.contradict(report.DEPLOYMENT, what, true)
        return
    sizes = [d.clients, d.trainers, d.members, d.aggregation_ppm, int(d.strategy), d.rounds]
    rules = [d.deadline_blocks, d.beacon is Beacon.BLOCK, d.model]
    types = ["bytes32"] * 3 + ["uint256"] * 7 + ["bool", "bytes32"]
    values = [domain_separator(domain), d.config, d.registry, *sizes, *rules]
    if code[len(artifact.runtime) :] != encode(types, values):
        notes.contradict(report.DEPLOYMENT, what, "its immutables are not those of this deployment")


def _text(value: object) -> str:
    return report.shown(value) if isinstance(value, bytes) else str(value)
