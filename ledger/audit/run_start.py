"""The start of a run: the contract, its configuration and its first model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ledger.audit.checks.common import DEPLOYMENT_UNKNOWN
from ledger.audit.checks.deployment_parameters import CODE_UNAVAILABLE, DEPLOYMENT_UNREADABLE
from ledger.audit.evidence.archive import UnavailableBlob
from ledger.audit.observations import Disagreement, RunStart, Unavailable
from ledger.audit.report import BlobKind
from ledger.chain.contract.code import code_violation
from ledger.chain.contract.deployment import deployment_for, require_code
from ledger.chain.ports import ChainDamagedError, ChainUnreachableError, NotServedError
from ledger.protocol.documents.run import decode_run
from ledger.protocol.errors import ChainError, EncodingError, ProtocolRefusal
from ledger.protocol.parameters import MAX_CLIENTS, MAX_MEMBERS, MAX_TRAINERS, MIN_MEMBERS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ledger.audit.evidence.archive import Archive
    from ledger.audit.evidence.model_chain import ModelChain
    from ledger.chain.contract.committee_ledger import CommitteeLedger
    from ledger.protocol.documents.run import RunDocument
    from ledger.protocol.ledger_state import Deployment


def read_start(
    ledger: CommitteeLedger, archive: Archive, models: ModelChain, block: int
) -> Iterator[RunStart | Disagreement | Unavailable]:
    """Yield what was deployed, last, and before it what of it could not be had.

    Args:
        ledger: the contract.
        archive: where its configuration is.
        models: takes the first model.
        block: by which the contract stood.

    Raises:
        ChainUnreachableError: the node went away.
    """
    try:
        recorded, domain = ledger.deployment(), ledger.domain()
    except ChainUnreachableError:
        raise
    except NotServedError as error:
        yield Unavailable(block, DEPLOYMENT_UNKNOWN, detail=str(error))
        return
    except (ChainError, ProtocolRefusal) as error:
        if is_node_failure(ledger, error):
            yield Unavailable(block, DEPLOYMENT_UNKNOWN, detail=str(error))
            return
        yield Disagreement(block, DEPLOYMENT_UNREADABLE, true=str(error))
        yield Unavailable(block, DEPLOYMENT_UNKNOWN)
        return
    blob = archive.read(BlobKind.CONFIGURATION, recorded.config, None)
    document, malformed = (None, "") if isinstance(blob, UnavailableBlob) else _document(blob)
    deployment = recorded if document is None else deployment_for(document)[0]
    code = ""
    try:
        code = code_violation(ledger.chain.code(ledger.address), deployment, domain) or ""
    except ChainUnreachableError:
        raise
    except ChainDamagedError as error:
        code = f"it cannot be read: {error}"
    except ChainError as error:
        yield Unavailable(block, CODE_UNAVAILABLE, detail=str(error))
    model = None
    if document is not None:
        model = models.begin(deployment.model, document.parameters.dimension, archive)
    yield RunStart(
        block=block,
        domain=domain,
        address=ledger.address,
        recorded=recorded,
        document=document,
        lost=blob if isinstance(blob, UnavailableBlob) else None,
        malformed=malformed,
        deployment=deployment,
        is_possible=document is not None or _is_possible(recorded),
        code=code,
        model=model,
    )


def is_node_failure(ledger: CommitteeLedger, error: ChainError | ProtocolRefusal) -> bool:
    """Say whether a view that failed cannot have failed, so that the node's answer says nothing.

    Neither view of the ledger's code reverts or answers nothing, whatever was recorded.

    Args:
        ledger: the contract.
        error: the reason for the missing answer.

    Raises:
        ChainUnreachableError: the node went away.
    """
    if isinstance(error, ChainDamagedError):
        return False
    try:
        require_code(ledger.chain, ledger.address)
    except ChainUnreachableError:
        raise
    except ChainError as doubt:
        return isinstance(doubt, NotServedError)
    return True


def _document(data: bytes) -> tuple[RunDocument | None, str]:
    """Return the configuration, or why it is none."""
    try:
        return decode_run(data), ""
    except EncodingError as error:
        return None, str(error)


def _is_possible(deployment: Deployment) -> bool:
    return (
        MIN_MEMBERS <= deployment.members <= MAX_MEMBERS
        and deployment.members <= deployment.trainers <= MAX_TRAINERS
        and deployment.members + deployment.trainers <= deployment.clients <= MAX_CLIENTS
    )
