"""Both certificates of a round, and what is said to have gone wrong on the way to them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ledger.chain.ports import NotServedError
from ledger.history.facts.words import coded, hexed, phase_name
from ledger.protocol.consensus import primary_seat
from ledger.protocol.types import Phase, VoteKind

if TYPE_CHECKING:
    from ledger.history.facts.words import Facts, Told
    from ledger.protocol import encoding
    from ledger.protocol.documents.incidents import Incident
    from ledger.protocol.ledger_state import RoundDecided, SubmittedCertificate
    from ledger.protocol.types import ClientId, SignedVote

MAX_INCIDENTS = 320


def votes_facts(told: Told) -> Facts:
    """Return both certificates of a round and the incidents on the way to them.

    Args:
        told: the round.

    Returns:
        `certificates` is None where the decision's call data are not to be had: an account with
        code of its own called the contract from within another transaction.

    Raises:
        ChainError: the chain cannot be read, or has another transaction in its place.
    """
    incidents = told.documents.reported_incidents
    return told.heading() | {
        "replies_needed": told.history.fixed.replies,
        "certificates": _certificates(told),
        "incidents": [incident_facts(one) for one in incidents[:MAX_INCIDENTS]],
        "left_out": max(0, len(incidents) - MAX_INCIDENTS),
        "incidents_document": told.incidents(),
    }


def _certificates(told: Told) -> list[Facts] | None:
    decided = told.one.decided
    if decided is None:
        return []
    call = told.history.decision_call(told.one)
    if call is None:
        return None
    return [
        _certificate(told, phase, certificate, decided)
        for phase, certificate in zip(Phase, call.certificates, strict=True)
    ]


def _certificate(
    told: Told, phase: Phase, certificate: SubmittedCertificate, decided: RoundDecided
) -> Facts:
    committee = told.one.committee
    primary = primary_seat(told.one.seed, phase, certificate.view, len(committee))
    signers = [place for place in range(len(committee)) if certificate.signers >> place & 1]
    if len(signers) != len(certificate.replies):
        raise NotServedError(
            f"{len(certificate.replies)} signatures of {len(signers)} signers: "
            "this is not the transaction that the contract took"
        )
    return {
        "phase": phase_name(phase),
        "view": certificate.view,
        "base": hexed(decided.base),
        "set": hexed(certificate.set_digest),
        "result": hexed(decided.result()),
        "primary": _signed(committee, primary, certificate.request),
        "replies": [
            _signed(committee, place, reply)
            for place, reply in zip(signers, certificate.replies, strict=True)
        ],
    }


def _signed(committee: tuple[ClientId, ...], place: int, signature: bytes) -> Facts:
    return {"place": place, "client": committee[place], "signature": hexed(signature)}


def incident_facts(incident: Incident) -> Facts:
    """Return what a member is said to have done wrong, with its own signed votes."""
    return {
        "phase": phase_name(incident.phase),
        "view": incident.view,
        "member": incident.member,
        "kind": coded(incident.kind),
        "votes": [_evidence(signed) for signed in incident.votes],
        "opening": None if incident.opening is None else _opening(incident.opening),
    }


def _evidence(signed: SignedVote) -> Facts:
    return {
        "kind": "Request" if signed.vote.kind is VoteKind.REQUEST else "Reply",
        "base": hexed(signed.vote.base),
        "set": hexed(signed.vote.set_digest),
        "result": hexed(signed.vote.result),
        "signature": hexed(signed.signature),
    }


def _opening(opening: encoding.ResultPreimage) -> Facts:
    return {
        "model": hexed(opening.model),
        "updates_root": hexed(opening.updates_root),
        "scores_root": hexed(opening.scores_root),
        "ranking_digest": hexed(opening.ranking_digest),
        "threshold_bits": str(opening.threshold_bits),
        "reveal": hexed(opening.reveal),
        "record": hexed(opening.record),
    }
