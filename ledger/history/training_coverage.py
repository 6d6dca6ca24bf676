"""Coverage of a run's training: which updates auditors have repeated, by their attestations.

No decision and no step of an audit rests on it: an attestation is an auditor's word, and auditors
who disagree are shown side by side (docs/protocol.md, "Attestation").
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ledger.history.status import RoundStatus
from ledger.protocol.documents.envelope import Attestation, EnvelopeKind
from ledger.protocol.encoding import to_hex
from ledger.protocol.errors import ConfigurationError
from ledger.protocol.signing import is_signed_by
from ledger.protocol.training_replay import ReplayVerdict

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from ledger.history.chain_history import ChainHistory
    from ledger.protocol.types import Address, ClientId, Digest, Domain
    from ledger.storage.mailbox import Mailbox

VERDICTS = {ReplayVerdict.SAME: "same", ReplayVerdict.OTHER: "other"}


@dataclass(frozen=True, slots=True)
class AttestedUpdate:
    """An update that the chain has, and the attestations about it.

    Attributes:
        round: t.
        client: whose update it is.
        attestations: genuine ones, by auditor; an auditor may have several.
    """

    round: int
    client: ClientId
    attestations: tuple[Attestation, ...]

    @property
    def verdict(self) -> str:
        """Return "same", "other", "disputed" where auditors disagree, or "none"."""
        verdicts = {VERDICTS[attestation.verdict] for attestation in self.attestations}
        return "disputed" if len(verdicts) > 1 else next(iter(verdicts), "none")

    def as_dict(self) -> dict[str, Any]:
        """Return it as plain data for JSON."""
        return {
            "round": self.round,
            "client": int(self.client),
            "verdict": self.verdict,
            "attestations": [
                {
                    "auditor": to_hex(attestation.auditor),
                    "verdict": VERDICTS[attestation.verdict],
                    "environment": str(attestation.environment),
                    "witness": to_hex(attestation.witness),
                }
                for attestation in self.attestations
            ],
        }


@dataclass(frozen=True, slots=True)
class TrainingCoverage:
    """Coverage of some rounds of a run.

    Attributes:
        domain: of the run's contract.
        first: round.
        last: round.
        clients: number of registered ones.
        updates: of these rounds, ascending.
    """

    domain: Domain
    first: int
    last: int
    clients: int
    updates: tuple[AttestedUpdate, ...]

    @property
    def counts(self) -> dict[str, int]:
        """Number of updates by verdict: same, other, disputed, none."""
        verdicts = [update.verdict for update in self.updates]
        return {name: verdicts.count(name) for name in ("same", "other", "disputed", "none")}

    @property
    def auditors(self) -> list[Address]:
        """Those who have attested anything here, ascending."""
        return sorted({a.auditor for update in self.updates for a in update.attestations})

    def as_dict(self) -> dict[str, Any]:
        """Return it as plain data for JSON."""
        return {
            "contract": to_hex(self.domain.contract),
            "chain_id": self.domain.chain_id,
            "rounds": [self.first, self.last],
            "clients": self.clients,
            "counts": self.counts,
            "auditors": [to_hex(auditor) for auditor in self.auditors],
            "updates": [update.as_dict() for update in self.updates],
        }


def training_coverage(
    history: ChainHistory,
    domain: Domain,
    mailbox: Mailbox,
    rounds: tuple[int, int] | None = None,
    auditors: Collection[Address] = (),
) -> TrainingCoverage:
    """Return the coverage of ended rounds; every commitment that counts is an update.

    Args:
        history: of the run.
        domain: of its contract.
        mailbox: with the attestations.
        rounds: first and last; None for all that have ended.
        auditors: whose attestations count; empty for everybody's.

    Raises:
        ConfigurationError: a round that has not ended.
        OSError: the mailbox cannot be read.
        BlobError: it cannot be read.
    """
    ended = [r for r in history.rounds(1, history.newest()) if r.status is not RoundStatus.OPEN]
    first, last = rounds or (1, len(ended))
    if not 1 <= first <= last <= len(ended) and rounds is not None:
        raise ConfigurationError(
            f"rounds {first}..{last}: must be first and last of the {len(ended)} ended rounds"
        )
    updates: list[AttestedUpdate] = []
    for number in range(first, last + 1):
        round_ = history.round(number)
        assert round_ is not None, "it has ended"
        found = attestations_of_round(mailbox, domain, history.fixed.config, number)
        updates += [
            AttestedUpdate(
                number,
                client,
                tuple(
                    attestation
                    for about, attestation in found
                    if about == client and (not auditors or attestation.auditor in auditors)
                ),
            )
            for client in sorted(round_.counted)
        ]
        mailbox.forget(domain, number + 1)
    return TrainingCoverage(domain, first, last, history.fixed.clients, tuple(updates))


def attestations_of_round(
    mailbox: Mailbox, domain: Domain, run: Digest, round_number: int
) -> Sequence[tuple[ClientId, Attestation]]:
    """Return the genuine attestations of a round, by auditor, each with the client it is about."""
    found = set()
    for envelope in mailbox.listed(domain, round_number, EnvelopeKind.ATTESTATION):
        body = envelope.body
        assert isinstance(body, Attestation)
        if is_genuine(body, domain, run, round_number, envelope.client):
            found.add((envelope.client, body))
    return sorted(found, key=lambda each: (each[1].auditor, each[1].verdict, each[1].witness))


def is_genuine(
    attestation: Attestation, domain: Domain, run: Digest, round_number: int, client: ClientId
) -> bool:
    """Say whether an attestation is of a run, and its auditor's own."""
    statement = attestation.statement(round_number, client)
    signed = attestation.auditor, domain, statement, attestation.signature
    return attestation.run == run and is_signed_by(*signed)
