"""Attestations of repeated updates: an auditor's own, and others' compared with it."""

from __future__ import annotations

from dataclasses import replace

from clients.replay.replayed_update import (
    CONFIRMED,
    FALSE,
    NOT_COMPARABLE,
    ComparedAttestation,
    ReplayedUpdate,
    TrainingReplay,
)
from ledger.history.training import attestations_of_round
from ledger.protocol.documents.envelope import Attestation, Envelope
from ledger.protocol.signing import Signer, sign
from ledger.protocol.training_replay import ReplayVerdict, replay_witness
from ledger.protocol.types import Digest
from ledger.storage.mailbox import Mailbox

_NO_SIGNATURE = bytes(65)


def own_attestations(result: TrainingReplay, run: Digest, signer: Signer) -> list[Envelope]:
    """Return signed attestations of all updates of a replay that are the same or other.

    Args:
        run: sha256 of the run document.
    """
    envelopes = []
    for update in result.updates:
        if not update.is_attestable:
            continue
        assert update.losses is not None
        attestation = Attestation(
            auditor=signer.address,
            run=run,
            verdict=update.verdict,
            environment=update.environment,
            witness=replay_witness(signer.address, update.losses),
            signature=_NO_SIGNATURE,
        )
        statement = attestation.statement(update.round, update.client)
        signed = replace(attestation, signature=sign(signer, result.domain, statement))
        envelopes.append(Envelope(result.domain, update.round, update.client, signed))
    return envelopes


def compared_attestations(
    result: TrainingReplay, run: Digest, mailbox: Mailbox
) -> list[ComparedAttestation]:
    """Return what the attestations of a mailbox about the repeated updates are worth.

    One is false if it names the environment of this repetition, and another verdict or losses that
    are not those of the recorded training in it.

    Args:
        run: sha256 of the run document.
    """
    updates = {(update.round, update.client): update for update in result.updates}
    compared = []
    for number in sorted({update.round for update in result.updates}):
        for client, attestation in attestations_of_round(mailbox, result.domain, run, number):
            update = updates.get((number, client))
            if update is not None:
                finding, reason = _compared(attestation, update)
                auditor = attestation.auditor
                compared.append(ComparedAttestation(number, client, auditor, finding, reason))
        mailbox.forget(result.domain, number + 1)
    return compared


def _compared(attestation: Attestation, update: ReplayedUpdate) -> tuple[str, str]:
    if attestation.environment != update.environment:
        return NOT_COMPARABLE, f"it is of another environment: {attestation.environment}"
    if update.verdict is ReplayVerdict.NOT_CHECKABLE or update.losses is None:
        return NOT_COMPARABLE, "the update could not be checked here"
    if attestation.verdict is not update.verdict:
        said, here = attestation.verdict.name.lower(), update.verdict.name.lower()
        return FALSE, f'it says "{said}", and the update is "{here}" in the same environment'
    if attestation.witness != replay_witness(attestation.auditor, update.losses):
        return FALSE, "its witness is not of the losses that the training has in this environment"
    return CONFIRMED, ""
