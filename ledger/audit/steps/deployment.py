"""Step 1: what was deployed is what the run's configuration says."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

from eth_abi.abi import encode

from ledger.audit.codes import BlobKind, Fact, Need, Step
from ledger.audit.report import Contradiction, Missing
from ledger.audit.sentences import hexed, text_of
from ledger.chain.addresses import to_canonical
from ledger.chain.contract import abi
from ledger.chain.contract.deployment import deployment_for
from ledger.chain.ports import ChainUnreachableError
from ledger.protocol.documents.run import decode_run
from ledger.protocol.errors import ChainError, EncodingError, Refusal
from ledger.protocol.ledger_state import Deployment
from ledger.protocol.parameters import MAX_CLIENTS, MAX_MEMBERS, MAX_TRAINERS, MIN_MEMBERS
from ledger.protocol.signing import domain_separator
from ledger.protocol.types import Address, Beacon, Domain

if TYPE_CHECKING:
    from ledger.audit.archive import Archive
    from ledger.audit.findings import AuditLog
    from ledger.chain.contract.committee_ledger import CommitteeLedger
    from ledger.protocol.documents.run import RunDocument
    from ledger.protocol.types import Digest

_RESTING_ON_PARAMETERS = (
    Step.DEPLOYMENT,
    Step.BLOBS,
    Step.DISTANCES,
    Step.MEANS,
    Step.RANKING,
    Step.MODEL,
    Step.COMPLETENESS,
)


@dataclass(frozen=True, slots=True)
class RunStart:
    """What a run starts from.

    Attributes:
        document: its configuration; None if the blob is missing or unreadable.
        deployment: what the configuration demands; without one, what the contract says.
        domain: the contract on its chain.
    """

    document: RunDocument | None
    deployment: Deployment
    domain: Domain


def read_start(ledger: CommitteeLedger, archive: Archive) -> RunStart | None:
    """Return what was deployed, checked against the configuration; None if it cannot be read.

    Args:
        ledger: the contract.
        archive: where its configuration is.

    Raises:
        ChainUnreachableError: the node went away.
    """
    log = archive.log
    domain = Domain(ledger.chain.chain_id, Address(to_canonical(ledger.address)))
    try:
        found = ledger.deployment()
    except ChainUnreachableError:
        raise
    except (ChainError, Refusal, ValueError) as error:
        contradiction = Contradiction(Fact.DEPLOYMENT_UNREADABLE, true=str(error))
        log.contradict(Step.DEPLOYMENT, contradiction)
        return None
    document = _document(archive, found.config)
    if document is None:
        if not _is_bounded(found):
            sizes = f"{found.clients}, {found.trainers} and {found.members}"
            contradiction = Contradiction(Fact.DEPLOYMENT_IMPOSSIBLE, recorded=sizes)
            log.contradict(Step.DEPLOYMENT, contradiction)
            return None
        _check_code(ledger, found, domain, log)
        return RunStart(None, found, domain)
    expected, _ = deployment_for(document)
    for name in (field.name for field in fields(Deployment)):
        recorded, true = getattr(found, name), getattr(expected, name)
        if recorded != true:
            values = text_of(recorded), text_of(true)
            log.contradict(Step.DEPLOYMENT, Contradiction(Fact.DEPLOYMENT, None, (), name, *values))
    _check_code(ledger, expected, domain, log)
    return RunStart(document, expected, domain)


def _is_bounded(deployment: Deployment) -> bool:
    return (
        MIN_MEMBERS <= deployment.members <= MAX_MEMBERS
        and deployment.members <= deployment.trainers <= MAX_TRAINERS
        and deployment.members + deployment.trainers <= deployment.clients <= MAX_CLIENTS
    )


def _document(archive: Archive, config: Digest) -> RunDocument | None:
    """Return the configuration; without one, what rests on its parameters is not checkable."""
    data = archive.read(BlobKind.CONFIGURATION, config, None)
    if data is not None:
        try:
            return decode_run(data)
        except EncodingError as error:
            contradiction = Contradiction(
                Fact.CONFIGURATION, recorded=hexed(config), true=str(error)
            )
            archive.log.contradict(Step.DEPLOYMENT, contradiction)
    archive.log.lack(Missing(Need.PARAMETERS, detail=hexed(config)), *_RESTING_ON_PARAMETERS)
    return None


def _check_code(
    ledger: CommitteeLedger, deployment: Deployment, domain: Domain, log: AuditLog
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
        _contradict_code(ledger, f"it cannot be read: {error}", log)
        return
    runtime = abi.artifact().runtime
    if not code.startswith(runtime):
        true = "it is not the artefact's" if code else "there is no code"
        _contradict_code(ledger, true, log)
    elif code[len(runtime) :] != _immutables(deployment, domain):
        _contradict_code(ledger, "its immutables are not those of this deployment", log)


def _contradict_code(ledger: CommitteeLedger, true: str, log: AuditLog) -> None:
    log.contradict(Step.DEPLOYMENT, Contradiction(Fact.CODE, subject=ledger.address, true=true))


def _immutables(deployment: Deployment, domain: Domain) -> bytes:
    """Return what Vyper appends to the runtime code, one word for each value."""
    d = deployment
    numbers = (d.clients, d.trainers, d.members, d.aggregation_ppm, int(d.form), d.rounds)
    times = (d.commit_blocks, d.deadline_blocks, d.replies)
    types = ["bytes32"] * 3 + ["uint256"] * len(numbers + times) + ["bool", "bytes32"]
    values = (domain_separator(domain), d.config, d.registry, *numbers, *times)
    return encode(types, [*values, d.beacon is Beacon.BLOCK, d.model])
