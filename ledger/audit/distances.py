"""Each member's published distances against the updates that it had before it (step 6).

A false vector that was counted is a contradiction that names its member. A vector that was left
out must deserve it: if it does, its signed digest is kept as evidence; if not, the contradiction
names the member who was wrongly left out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ledger.audit import report
from ledger.audit.report import Finding
from ledger.protocol.consensus import quorum
from ledger.protocol.counting import RELATIVE_TOLERANCE, Updates, why_not_counted
from ledger.protocol.documents import MAX_SCORES_BYTES, decode_score_vector
from ledger.protocol.errors import BlobError, BlobMissingError, EncodingError
from ledger.protocol.scoring import squared_distance
from ledger.protocol.signing import is_signed_by, typed_digest

if TYPE_CHECKING:
    from ledger.audit.evidence import Archive, RoundEvidence
    from ledger.audit.report import Notebook
    from ledger.protocol.documents import RefusedScores, ScoreVector
    from ledger.protocol.types import ClientId

UNREADABLE = "unreadable: "
REPEATED = "its member has published another before"


def check_distances(evidence: RoundEvidence, desk: Archive) -> None:
    """Check every score vector of a round, those that count and those that do not.

    Args:
        evidence: of the round.
        desk: where the blobs are, and where contradictions are written down.
    """
    if evidence.record is None:
        return
    notes, at = desk.notes, evidence.facts.round
    oracle = _Oracle(evidence, notes)
    for client in sorted(evidence.unread):
        notes.lack(report.DISTANCES, f"round {at}: distances to client {client}: no update")
    members = [signed.scores.member for signed in evidence.record.scores]
    if members != sorted(set(members)):
        true = "a member is named twice, or out of order"
        notes.contradict(report.DISTANCES, f"the scores of {members} count", true, at)
    needed = quorum(len(evidence.electorate.committee))
    if len(members) < needed:
        true = f"the protocol needs {needed}"
        notes.contradict(report.DISTANCES, f"{len(members)} score vectors suffice", true, at)
    for signed in evidence.record.scores:
        member = signed.scores.member
        if member not in evidence.scores:
            notes.lack(report.DISTANCES, f"round {at}: the score vector of member {member}")
            continue
        vector = evidence.scores[member].vector
        reason = why_not_counted(evidence.electorate, oracle.updates, signed, vector)
        reason = reason or oracle.why_false(vector)
        if reason is not None:
            notes.contradict(report.DISTANCES, "its scores count", reason, at, (member,))
    for refused in evidence.record.refused:
        _check_refused(evidence, refused, oracle, desk)


class _Oracle:
    """True distances, each computed once by the plain code of the protocol.

    Attributes:
        updates: who has a usable update, as the record says.
    """

    def __init__(self, evidence: RoundEvidence, notes: Notebook) -> None:
        nothing = np.empty(0, dtype=np.float32)
        usable = evidence.usable or frozenset()
        self.updates = Updates(dict.fromkeys(usable, nothing), {}, ())
        self._vectors = evidence.vectors
        self._known: dict[tuple[ClientId, ClientId], float] = {}
        self._notes = notes

    def why_false(self, vector: ScoreVector) -> str | None:
        """Say which distance is false first, as far as the updates can be read."""
        published = [*vector.distances.tolist(), *vector.member_distances.tolist()]
        for client, claim in zip(vector.trainers + vector.members, published, strict=True):
            truth = self._distance(client, vector.member)
            if truth is not None and abs(claim - truth) > RELATIVE_TOLERANCE * truth:
                return f"false distance to client {client}: {claim:.9g} published, {truth:.9g} true"
        return None

    def is_complete(self, vector: ScoreVector) -> bool:
        """Say whether every update that the vector speaks of can be read."""
        clients = {*vector.trainers, *vector.members, vector.member}
        return clients <= self._vectors.keys()

    def _distance(self, client: ClientId, member: ClientId) -> float | None:
        if client not in self._vectors or member not in self._vectors:
            return None
        pair = (client, member) if client < member else (member, client)
        if pair not in self._known:
            self._known[pair] = squared_distance(self._vectors[client], self._vectors[member])
            self._notes.counts["distances"] += 1
        return self._known[pair]


def _check_refused(
    evidence: RoundEvidence, refused: RefusedScores, oracle: _Oracle, desk: Archive
) -> None:
    """Check that refused scores deserved it, and keep them as evidence if they did."""
    at, signed, notes = evidence.facts.round, refused.signed, desk.notes
    member = signed.scores.member
    what = f"its scores do not count ({refused.reason})"
    vector = _refused_vector(evidence, refused, desk)
    if vector is not None:
        true = why_not_counted(evidence.electorate, oracle.updates, signed, vector)
        false = oracle.why_false(vector) if true is None else None
        repeated = member in evidence.scores
        if true is None and refused.reason == REPEATED and repeated:
            true = REPEATED
        true = true or false
        if true is None and not oracle.is_complete(vector):
            notes.lack(report.DISTANCES, f"round {at}: whether member {member} was rightly refused")
            return
        if true is None:
            notes.contradict(report.DISTANCES, what, "they are right and complete", at, (member,))
            return
        if _class(true) != _class(refused.reason):
            notes.contradict(report.DISTANCES, what, true, at, (member,))
            return
    _find(evidence, refused, notes, is_compared=vector is not None)


def _refused_vector(
    evidence: RoundEvidence, refused: RefusedScores, desk: Archive
) -> ScoreVector | None:
    """Return the vector of refused scores; None if there is nothing that can be compared."""
    at, member, notes = evidence.facts.round, refused.signed.scores.member, desk.notes
    unreadable = refused.reason.startswith(UNREADABLE)
    shown = report.shown(refused.signed.scores.digest)
    why = f"round {at}: whether member {member} was rightly refused: its vector {shown} "
    try:
        vector = decode_score_vector(desk.get(refused.signed.scores.digest, MAX_SCORES_BYTES))
    except BlobMissingError:
        if not unreadable:
            notes.lack(report.BLOBS, f"{why}is missing")
            notes.lack(report.DISTANCES, f"{why}is missing")
        return None
    except BlobError as error:
        what = f"the score vector is blob {shown}"
        notes.contradict(report.BLOBS, what, str(error), at, (member,))
        return None
    except EncodingError as error:
        if refused.reason != f"{UNREADABLE}{type(error).__name__}":
            what = f"its scores do not count ({refused.reason})"
            notes.contradict(report.DISTANCES, what, f"they are unreadable: {error}", at, (member,))
        return None
    if not unreadable:
        return vector
    if refused.reason == f"{UNREADABLE}{EncodingError.__name__}":
        what = f"its scores do not count ({refused.reason})"
        notes.contradict(report.DISTANCES, what, "they can be read", at, (member,))
    else:
        notes.lack(report.DISTANCES, f"{why}is there now, but may have been published late")
    return None


def _find(
    evidence: RoundEvidence, refused: RefusedScores, notes: Notebook, *, is_compared: bool
) -> None:
    signed, electorate = refused.signed, evidence.electorate
    member = signed.scores.member
    is_own = member in electorate.committee and is_signed_by(
        electorate.registry[member].address, electorate.domain, signed.scores, signed.signature
    )
    kind = "false scores" if _class(refused.reason) == "false distance" else "refused scores"
    evidence_digests = (
        signed.scores.digest.hex(),
        typed_digest(electorate.domain, signed.scores).hex(),
    )
    proven = is_own and is_compared
    notes.find(Finding(kind, electorate.round, (member,), refused.reason, evidence_digests, proven))


def _class(reason: str) -> str:
    """Return a reason without its figures, which may differ in their last digits."""
    return "false distance" if reason.startswith("false distance to client ") else reason
