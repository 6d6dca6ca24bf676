"""Attestations of repeated updates: an auditor's own, and others' compared with it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ledger.history.training_coverage import attestations_of_round
from ledger.protocol.documents.envelope import Attestation, Envelope
from ledger.protocol.encoding import to_hex
from ledger.protocol.signing import sign
from ledger.protocol.training_replay import ReplayVerdict, replay_witness

if TYPE_CHECKING:
    from clients.replay.replayed_update import ReplayedUpdate, TrainingReplay
    from ledger.protocol.signing import Signer
    from ledger.protocol.types import Address, ClientId, Digest
    from ledger.storage.mailbox import Mailbox

CONFIRMED = "confirmed"
FALSE = "false"
NOT_COMPARABLE = "not comparable"

_NO_SIGNATURE = bytes(65)


@dataclass(frozen=True, slots=True)
class ComparedAttestation:
    """Another's attestation, compared with the own repetition of the update.

    Attributes:
        round: t.
        client: whose update it is about.
        auditor: who attests.
        finding: "confirmed", "false" or "not comparable".
        reason: sentence without a full stop; empty for a confirmed one.
    """

    round: int
    client: ClientId
    auditor: Address
    finding: str
    reason: str

    @property
    def is_false(self) -> bool:
        """True if the repetition shows that it is false."""
        return self.finding == FALSE

    def as_dict(self) -> dict[str, Any]:
        """Return it as plain data for JSON."""
        return {
            "round": self.round,
            "client": int(self.client),
            "auditor": to_hex(self.auditor),
            "finding": self.finding,
            "reason": self.reason,
        }

    def __str__(self) -> str:
        about = f"attestation of round {self.round}, client {self.client}, by "
        reason = f": {self.reason}" if self.reason else ""
        return f"{about}{to_hex(self.auditor)}: {self.finding}{reason}"


def own_attestations(result: TrainingReplay, run: Digest, signer: Signer) -> list[Envelope]:
    """Return signed attestations of all updates of a replay that are the same or other.

    Args:
        result: of the replay.
        run: sha256 of the run document.
        signer: of the auditor.
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
        result: of the replay.
        run: sha256 of the run document.
        mailbox: with the attestations.

    Raises:
        OSError: the mailbox cannot be read.
        BlobError: it cannot be read.
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
