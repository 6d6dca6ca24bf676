"""Makes the bundle of a round, from the chain and what was published."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from ledger.audit.bundles.bundle import (
    EarlierDecision,
    RoundBundle,
    manifest_bytes,
    rounds_of_models,
)
from ledger.audit.bundles.bundle_verification import (
    RecordingBlobs,
    RoundVerification,
    verify_bundle,
)
from ledger.audit.bundles.container import write_container
from ledger.audit.checks.blob_commitments import BLOB_MISSING, BLOB_UNREADABLE
from ledger.audit.checks.distances import DISPLACEMENT_UNKNOWN
from ledger.audit.checks.global_model import MODEL_BEFORE_UNKNOWN
from ledger.audit.proofs.proof_maker import make_basis, path_between
from ledger.audit.proofs.trust import end_of, read_trusted_contract
from ledger.chain.contract.codec import decode_log
from ledger.chain.contract.ledger import CommitteeLedger
from ledger.chain.ports import Log
from ledger.protocol.errors import BlobMissingError, ChainError, ConfigurationError
from ledger.protocol.ledger_state import (
    ClientBanned,
    RoundAbandoned,
    RoundDecided,
    UpdatesCommitted,
)
from ledger.storage.blobs import BlobReader

_LACKING = {BLOB_MISSING, BLOB_UNREADABLE, MODEL_BEFORE_UNKNOWN, DISPLACEMENT_UNKNOWN}
"""What is said to be missing where a blob is not to be had that the round's truth rests on."""
_OF_A_ROUND = (UpdatesCommitted, ClientBanned, RoundDecided, RoundAbandoned)


@dataclass(frozen=True, slots=True)
class RoundExport:
    """A round as it was exported.

    Attributes:
        manifest: the bytes of `bundle.json`.
        verification: the result of checking it against the chain that it was read from.
    """

    manifest: bytes
    blobs: RecordingBlobs
    verification: RoundVerification


def export_bundle(
    ledger: CommitteeLedger, blobs: BlobReader, round_number: int, path: Path
) -> RoundVerification:
    """Write a round's bundle into a file: whole, or not at all.

    Args:
        path: of the file; one of that name is replaced.

    Returns:
        The result of checking the round against the chain that it was read from.
    """
    export = prepare_export(ledger, blobs, round_number)
    write_container(path, export.manifest, export.blobs.read, export.blobs)
    return export.verification


def prepare_export(
    ledger: CommitteeLedger, blobs: BlobReader, round_number: int, *, whole: bool = True
) -> RoundExport:
    """Return a round's bundle, of which nothing is written yet.

    What belongs to it is what checking it reads, so that nothing can be forgotten.

    Args:
        whole: let the path begin with the run and end with the newest head; see `make_bundle`.
    """
    noting = RecordingBlobs(blobs)
    bundle = make_bundle(ledger, noting, round_number, whole=whole)
    verification = verify_bundle(bundle, noting, read_trusted_contract(ledger, round_number))
    for step in verification.audit:
        for lacking in step.missing:
            if lacking.need in _LACKING:
                raise BlobMissingError(
                    f"round {round_number} cannot be exported: {lacking.sentence}"
                )
    return RoundExport(manifest_bytes(bundle), noting, verification)


def make_bundle(
    ledger: CommitteeLedger, blobs: BlobReader, round_number: int, *, whole: bool = False
) -> RoundBundle:
    """Return what the chain holds of a round, and what its beginning follows from.

    Args:
        whole: let the path begin with the run and end with the newest head, so that any later
            head that somebody kept will do. Else it reaches back to the models that are needed.
    """
    basis = make_basis(ledger, blobs, round_number, whole=whole)
    if basis.path.ended(round_number) is None:
        raise ConfigurationError(f"round {round_number} has not ended: there is no bundle of it")
    events = [_decided_before(ledger, number) for number in rounds_of_models(basis)]
    earlier = tuple(dict.fromkeys(event for event in events if event is not None))
    if not whole:
        first = 1 if None in events else min(event.round for event in earlier)
        path = path_between(ledger, first, round_number)
        basis = replace(basis, path=path)
    opening = ledger.opening(round_number)
    assert opening is not None, "a round that has ended was opened"
    logs = _logs(ledger, round_number, opening.opened_block)
    chain = ledger.chain
    numbers = dict.fromkeys(log.block_number for log in logs)
    hashes = dict.fromkeys(log.transaction_hash for log in logs)
    return RoundBundle(
        basis=basis,
        opened_block=opening.opened_block,
        earlier=tuple(EarlierDecision(event.round, event.opening()) for event in earlier),
        blocks=tuple(replace(chain.block(number), timestamp=0) for number in numbers),
        transactions=tuple(
            replace(chain.transaction(transaction_hash), sender="", nonce=0)
            for transaction_hash in hashes
        ),
        logs=logs,
    )


def _decided_before(ledger: CommitteeLedger, number: int) -> RoundDecided | None:
    """Return the newest decision before a round, None if there is none."""
    for earlier in range(number - 1, 0, -1):
        for recorded in ledger.round_events(earlier):
            if isinstance(recorded.event, RoundDecided):
                return recorded.event
    return None


def _logs(ledger: CommitteeLedger, number: int, opened_block: int) -> tuple[Log, ...]:
    """Return the logs of a round's events up to its end, as the chain has them."""
    recorded = ledger.round_events(number)
    last = end_of(recorded) or recorded[-1]
    end = (last.block_number, last.log_index)
    logs = tuple(
        log
        for log in ledger.chain.logs(ledger.address, [], opened_block, last.block_number)
        if (log.block_number, log.log_index) <= end
        and isinstance(event := decode_log(log).event, _OF_A_ROUND)
        and event.round == number
    )
    if not logs:
        raise ChainError(f"the chain does not hold the events of round {number}")
    return logs
