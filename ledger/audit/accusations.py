"""What a round's record accuses members of while voting, and whether its evidence proves it.

Votes are evidence only with the signature of the accused: a record that accuses without it
contradicts itself (step 3). Silence leaves no evidence and is reported as unproven.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ledger.audit import report
from ledger.audit.report import Finding
from ledger.protocol import algorithms, encoding
from ledger.protocol.consensus import primary_place
from ledger.protocol.signing import is_signed_by, typed_digest
from ledger.protocol.types import NO_DIGEST, Phase, VoteKind

if TYPE_CHECKING:
    from ledger.audit.evidence import RoundEvidence
    from ledger.audit.replay import ReplayedRound
    from ledger.audit.report import Notebook
    from ledger.protocol.documents import Incident
    from ledger.protocol.types import Digest, Domain, SignedVote

_KINDS = {
    algorithms.SILENT: "silent member",
    algorithms.NO_QUORUM: "no quorum",
    algorithms.EQUIVOCATION: "equivocation",
    algorithms.WRONG_PROPOSAL: "wrong proposal",
}


def check_accusations(evidence: RoundEvidence, notes: Notebook) -> None:
    """Check every incident of a round's record, and that every failed view has one.

    Args:
        evidence: of the round.
        notes: where contradictions and findings are written down.
    """
    if evidence.record is None:
        return
    for incident in evidence.record.incidents:
        false = _why_unproven(evidence, incident)
        if false is not None:
            notes.contradict(
                report.CERTIFICATES,
                f"it is guilty of {incident.kind} in view {incident.view}",
                false,
                evidence.facts.round,
                (incident.member,),
            )
        else:
            notes.find(_finding(evidence, incident))
    _find_unexplained(evidence, notes)


def find_bans(facts: ReplayedRound, domain: Domain, notes: Notebook) -> None:
    """Name who was banned during a round; the replay has recovered both signatures.

    Args:
        facts: the round.
        domain: what the votes are bound to.
        notes: where findings are written down.
    """
    for call, transaction in facts.reports:
        votes = (call.first[0], call.second[0])
        digests = tuple(typed_digest(domain, vote).hex() for vote in votes)
        vote = votes[0]
        sentence = (
            f"banned: it signed two different votes ({vote.kind.lower()}) in round {vote.round}, "
            f"phase {int(vote.phase)}, view {vote.view}"
        )
        evidence = (*digests, transaction.hex())
        notes.find(Finding("ban", facts.round, (call.client,), sentence, evidence, proven=True))


def _why_unproven(evidence: RoundEvidence, incident: Incident) -> str | None:
    """Say why an incident's evidence does not prove it, None if it does or cannot be asked to."""
    if incident.member not in evidence.electorate.committee:
        return "it is no member of the committee"
    if incident.kind not in _KINDS:
        return "the protocol knows no such incident"
    if incident.kind == algorithms.EQUIVOCATION:
        return _why_no_equivocation(evidence, incident)
    return _why_no_failed_view(evidence, incident) or _why_no_request(evidence, incident)


def _why_no_failed_view(evidence: RoundEvidence, incident: Incident) -> str | None:
    committee, seed = evidence.electorate.committee, evidence.facts.before.seed
    primary = committee[primary_place(seed, incident.phase, incident.view, len(committee))]
    if primary != incident.member:
        return f"client {primary} is the primary of that view"
    if incident.view >= evidence.event.views[incident.phase - 1]:
        return "that view is not one that failed"
    return None


def _why_no_request(evidence: RoundEvidence, incident: Incident) -> str | None:
    if incident.kind == algorithms.SILENT:
        return None
    if len(incident.votes) != 1 or not _is_its_own(evidence, incident, incident.votes[0]):
        return "there is no request that it signed"
    vote = incident.votes[0].vote
    if vote.kind is not VoteKind.REQUEST:
        return "its vote is not a request"
    agrees = (vote.set_digest, vote.result) == _decided(evidence, incident.phase)
    if agrees and incident.kind == algorithms.WRONG_PROPOSAL:
        return "it proposed what was decided"
    return None


def _why_no_equivocation(evidence: RoundEvidence, incident: Incident) -> str | None:
    own = [signed.vote for signed in incident.votes if _is_its_own(evidence, incident, signed)]
    for kind in VoteKind:
        if len({vote for vote in own if vote.kind is kind}) > 1:
            return None
    return "there are no two different votes that it signed"


def _is_its_own(evidence: RoundEvidence, incident: Incident, signed: SignedVote) -> bool:
    electorate = evidence.electorate
    return signed.member == incident.member and is_signed_by(
        electorate.registry[incident.member].address,
        electorate.domain,
        signed.vote,
        signed.signature,
    )


def _decided(evidence: RoundEvidence, phase: Phase) -> tuple[Digest, Digest]:
    """Return set digest and result that the certificate of a phase stands for."""
    event = evidence.event
    if phase is Phase.ELECTION:
        return encoding.set_digest(event.next_committee), NO_DIGEST
    return encoding.set_digest(event.accepted), event.aggregation_result()


def _finding(evidence: RoundEvidence, incident: Incident) -> Finding:
    phase = incident.phase.name.lower()
    where = f"in view {incident.view} of the {phase} phase"
    sentences = {
        algorithms.SILENT: f"as primary it sent no request {where}; silence cannot be proven",
        algorithms.NO_QUORUM: f"its request was right but found no quorum {where}",
        algorithms.EQUIVOCATION: f"it signed two different votes {where}",
        algorithms.WRONG_PROPOSAL: f"it signed a request {where} that contradicts what was decided",
    }
    digests = (
        typed_digest(evidence.electorate.domain, signed.vote).hex() for signed in incident.votes
    )
    return Finding(
        kind=_KINDS[incident.kind],
        round=evidence.facts.round,
        clients=(incident.member,),
        sentence=sentences[incident.kind],
        evidence=tuple(digests),
        proven=incident.kind in {algorithms.EQUIVOCATION, algorithms.WRONG_PROPOSAL},
    )


def _find_unexplained(evidence: RoundEvidence, notes: Notebook) -> None:
    assert evidence.record is not None
    committee, event = evidence.electorate.committee, evidence.event
    explained = {(i.phase, i.view, i.member) for i in evidence.record.incidents}
    for phase in Phase:
        # A view that nobody explains may be any number: only the first few are named.
        for view in range(min(event.views[phase - 1], algorithms.MAX_VIEWS)):
            place = primary_place(evidence.facts.before.seed, phase, view, len(committee))
            if (phase, view, committee[place]) not in explained:
                sentence = f"the record does not say why view {view} of phase {int(phase)} failed"
                who = (committee[place],)
                notes.find(Finding("unexplained view", event.round, who, sentence, (), proven=True))
