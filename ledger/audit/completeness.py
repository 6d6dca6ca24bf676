"""Who was sampled, and what became of each of them (steps 4 and 10)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ledger.audit import report
from ledger.audit.report import Finding
from ledger.protocol.counting import NO_COMMITMENT, PAYLOAD_MALFORMED, PAYLOAD_MISSING
from ledger.protocol.encoding import vector_from_bytes, word_client
from ledger.protocol.errors import EncodingError
from ledger.protocol.sampling import sample_trainers

if TYPE_CHECKING:
    from ledger.audit.evidence import Archive, RoundEvidence
    from ledger.audit.replay import ReplayedRound
    from ledger.audit.report import Notebook
    from ledger.protocol.ledger_state import Deployment
    from ledger.protocol.types import ClientId


def check_sampling(facts: ReplayedRound, deployment: Deployment, notes: Notebook) -> None:
    """Check that nobody is ranked but who was sampled, and name who committed unasked.

    Args:
        facts: the round.
        deployment: K and n.
        notes: where contradictions are written down.
    """
    committee = facts.before.committee
    sampled = sample_trainers(facts.before.seed, deployment.clients, committee, deployment.trainers)
    ranked = [word_client(word) for word in facts.decided.ranking] if facts.decided else []
    foreign = tuple(client for client in ranked if client not in sampled)
    if foreign:
        true = f"the seed samples {report.listed(sampled, 256)}"
        notes.contradict(
            report.SAMPLING, "the ranking holds sampled trainers only", true, facts.round, foreign
        )
    for client, payload in facts.payloads.items():
        if client not in sampled and client not in committee:
            notes.find(
                Finding(
                    "stray commitment",
                    facts.round,
                    (client,),
                    "it committed to an update though it was neither trainer nor member",
                    (payload.hex(),),
                    proven=True,
                )
            )


def check_completeness(evidence: RoundEvidence, dimension: int, desk: Archive) -> None:
    """Check that everybody who is left out is left out for a true reason.

    Args:
        evidence: of the round.
        dimension: d.
        desk: where the blobs are, and where contradictions are written down.
    """
    if evidence.record is None:
        return
    notes, at = desk.notes, evidence.facts.round
    active = set(evidence.active)
    named = [client for client, _ in evidence.record.dropouts]
    if named != sorted(set(named)) or not active.issuperset(named):
        true = "one of them was not active, or is named twice"
        notes.contradict(report.COMPLETENESS, f"{named} dropped out", true, at)
    for client, reason in evidence.record.dropouts:
        if client in active:
            _check_reason(evidence, client, reason, dimension, desk)
    for client in sorted((evidence.usable or frozenset()) - evidence.payloads.keys()):
        true = "it has no commitment on the chain, or was banned"
        notes.contradict(report.COMPLETENESS, "its update is usable", true, at, (client,))
    _find_silent(evidence, notes)


def _check_reason(
    evidence: RoundEvidence, client: ClientId, reason: str, dimension: int, desk: Archive
) -> None:
    notes, at = desk.notes, evidence.facts.round
    payload = evidence.payloads.get(client)
    claim = f"it dropped out: {reason}"
    false = ""
    if reason == NO_COMMITMENT:
        false = f"it committed to {report.shown(payload)}" if payload is not None else ""
    elif reason not in {PAYLOAD_MISSING, PAYLOAD_MALFORMED}:
        false = "the protocol knows no such reason"
    elif payload is None:
        false = "it has no commitment"
    else:
        data = desk.payload(payload, 4 * dimension, at, client)
        if data is None and reason == PAYLOAD_MALFORMED:
            notes.lack(report.BLOBS, f"round {at}: the payload of client {client} is missing")
            why = f"whether the payload of client {client} is malformed: it is missing"
            notes.lack(report.COMPLETENESS, f"round {at}: {why}")
        elif data is not None and reason == PAYLOAD_MISSING:
            why = f"client {client} was left out because its payload was missing: it is there now"
            late = "which proves nothing, for it may have been published late"
            notes.lack(report.COMPLETENESS, f"round {at}: {why}, {late}")
        elif data is not None and _is_update(data, dimension):
            false = "its payload is a well-formed update"
    if false:
        notes.contradict(report.COMPLETENESS, claim, false, at, (client,))
        return
    digests = (payload.hex(),) if payload is not None else ()
    proven = reason != PAYLOAD_MISSING
    notes.find(Finding("dropout", at, (client,), reason, digests, proven))


def _is_update(data: bytes, dimension: int) -> bool:
    try:
        vector_from_bytes(data, dimension)
    except EncodingError:
        return False
    return True


def _find_silent(evidence: RoundEvidence, notes: Notebook) -> None:
    """Name members with a usable update that published no scores."""
    assert evidence.record is not None
    record, at = evidence.record, evidence.facts.round
    heard = {signed.scores.member for signed in record.scores}
    heard |= {refused.signed.scores.member for refused in record.refused}
    for member in sorted(evidence.electorate.committee):
        if member in heard or member in evidence.dropouts:
            continue
        sentence = "the record holds no scores of this member; silence cannot be proven"
        notes.find(Finding("silent member", at, (member,), sentence, (), proven=False))
