"""Scores of a round, and violations of records and score vectors.

The stages are claims, updates, scores and omissions; `judgement.py` derives the results of a
record that passes them. A violation is a code and the clients that it concerns.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

from ledger.protocol import encoding
from ledger.protocol.documents.record import (
    MAX_VECTOR_BYTES,
    RefusedScores,
    RoundRecord,
    ScoreVector,
    decode_vector,
)
from ledger.protocol.errors import EncodingError
from ledger.protocol.inputs import Evidence, Inputs
from ledger.protocol.parameters import majority
from ledger.protocol.rules.direction import direction_distances
from ledger.protocol.rules.distance import RELATIVE_TOLERANCE, Distances, Updates, plain_distances
from ledger.protocol.signing import is_signed_by
from ledger.protocol.types import ClientId, DropoutReason, RefusalReason, Scores, SignedScores

REFUSAL_MARGINS = 1.0  # margins from which a distance may be refused
PRIMARY_MARGINS = 1.5  # a primary refuses from here on, so that others' sums agree with it
COUNTING_MARGINS = 2.0  # a distance may count up to here; beyond, an audit names the member


class DistanceTable:
    """True distances among the usable updates of a round, computed when first asked for."""

    def __init__(
        self,
        inputs: Inputs,
        updates: Updates,
        distances: Distances = plain_distances,
        displacement: NDArray[np.float32] | None = None,
    ) -> None:
        if inputs.needs_displacement and displacement is None:
            raise ValueError(f"the distances of round {inputs.round} need an unknown displacement")
        self._rule = inputs.parameters.distance_rule
        self._travel = displacement if inputs.needs_displacement else None
        self._updates = updates
        self._distances = distances
        self._members = tuple(m for m in sorted(inputs.participants.members) if m in updates)
        self._columns = {client: place for place, client in enumerate(sorted(updates))}
        self._rows = {member: place for place, member in enumerate(self._members)}
        self._places: dict[tuple[ClientId, ...], NDArray[np.intp]] = {}
        self._margins: NDArray[np.float64] | None = None

    @cached_property
    def _matrix(self) -> NDArray[np.float64]:
        return self._distances(self._rule, self._travel, self._updates, self._members)

    def between(self, client: ClientId, member: ClientId) -> float:
        return float(self._matrix[self._rows[member], self._columns[client]])

    def row(self, member: ClientId, clients: tuple[ClientId, ...]) -> NDArray[np.float64]:
        """Return the distances of clients' updates from a member's, shape (len(clients),)."""
        if clients not in self._places:  # all members score the same trainers
            self._places[clients] = np.array([self._columns[c] for c in clients], dtype=np.intp)
        return np.take(self._matrix[self._rows[member]], self._places[clients])

    def is_off(self, client: ClientId, member: ClientId, claim: float, margins: float) -> bool:
        """Say whether a published distance is a number of margins or more from the true one."""
        truth = self.between(client, member)
        if claim == truth:
            return False
        if self._rule.between is not None:
            absolute = self._rule.absolute_tolerance
        else:
            if self._margins is None:
                self._margins = direction_distances(self._updates, self._travel).margins
            absolute = float(self._margins[self._columns[client]])
        return abs(claim - truth) >= margins * (RELATIVE_TOLERANCE * truth + absolute)

    def can_score(self, member: ClientId) -> bool:
        """Return whether the member has a usable update; for strategy III, one with a direction."""
        is_used = self._rule.between is not None
        return member in self._rows and (is_used or bool(self._updates[member].any()))


@lru_cache(maxsize=256)
def parse_vector(data: bytes) -> ScoreVector | None:
    """Return the vector behind bytes, None if they are not one (reason 1)."""
    # All members of a process read the vectors of a round again at every step.
    try:
        return decode_vector(data)
    except EncodingError:
        return None


class ViolationCode(IntEnum):
    """The rules that a record, or a result derived from it, can violate."""

    OTHER_ROUND_OR_BASE = 1
    NOT_THE_ACTIVE_CLIENTS = 2
    OPENS_NO_COMMITMENT = 3
    HAS_COMMITTED = 4
    HAS_NOT_COMMITTED = 5
    UPDATE_MISSING = 6
    UPDATE_MALFORMED = 7
    UPDATE_USABLE = 8
    PAYLOAD_HELD = 9
    NO_MEMBER = 10
    CLAIM_NOT_SIGNED = 11
    VECTOR_MISSING = 12
    SCORES_DO_NOT_COUNT = 13
    REFUSAL_UNFOUNDED = 14
    VECTOR_LEFT_OUT = 15
    TOO_FEW_SCORES = 16
    TOO_FEW_TRAINERS = 17
    MODEL_UNKNOWN = 18
    MODEL_NOT_FINITE = 19
    VECTOR_TOO_LONG = 20


@dataclass(frozen=True, slots=True)
class Violation:
    """One violation of a rule by a record."""

    code: ViolationCode
    clients: tuple[ClientId, ...] = ()
    reason: RefusalReason | None = None  # the true or the given reason, for rules of scores


@dataclass(frozen=True, slots=True)
class ScoreFault:
    """Reason why a score vector does not count, with the client of a false distance."""

    reason: RefusalReason
    client: ClientId | None = None


def validate_claims(inputs: Inputs, record: RoundRecord) -> list[Violation]:
    """Return the violations that need no blob: round, base, clients, commitments, signatures."""
    violations = []
    if (record.round, record.base) != (inputs.round, inputs.closing.base):
        violations.append(Violation(ViolationCode.OTHER_ROUND_OR_BASE))
    listed = sorted([*record.clients, *(dropout.client for dropout in record.dropouts)])
    if tuple(listed) != inputs.participants.active:
        odd = tuple(sorted(set(listed) ^ set(inputs.participants.active)))
        violations.append(Violation(ViolationCode.NOT_THE_ACTIVE_CLIENTS, odd))
    commitments = inputs.closing.commitments
    opened = {
        update: encoding.commitment_of(update.client, update.payload) for update in record.updates
    }
    violations += [
        Violation(ViolationCode.OPENS_NO_COMMITMENT, (update.client,))
        for update, commitment in opened.items()
        if commitments.get(update.client) != commitment
    ]
    for dropout in record.dropouts:
        client = dropout.client
        if dropout.reason is DropoutReason.NO_COMMITMENT:
            if client in commitments:
                violations.append(Violation(ViolationCode.HAS_COMMITTED, (client,)))
        elif client not in commitments:
            violations.append(Violation(ViolationCode.HAS_NOT_COMMITTED, (client,)))
        elif (payload := dropout.payload) is not None and (
            commitments[client] != encoding.commitment_of(client, payload)
        ):
            violations.append(Violation(ViolationCode.OPENS_NO_COMMITMENT, (client,)))
    for signed in record.claims:
        violations += validate_score_claim(inputs, signed)
    return violations


def validate_updates(record: RoundRecord, evidence: Evidence) -> list[Violation]:
    """Return the violations about usable updates, as far as their payloads are in the evidence."""
    violations = []
    malformed = DropoutReason.PAYLOAD_MALFORMED
    listed = [(client, False) for client in record.clients]
    listed += [(dropout.client, True) for dropout in record.dropouts if dropout.reason is malformed]
    for client, is_left_out in listed:
        if client not in evidence.updates:
            violations.append(Violation(ViolationCode.UPDATE_MISSING, (client,)))
        elif (evidence.updates[client] is None) != is_left_out:
            code = ViolationCode.UPDATE_USABLE if is_left_out else ViolationCode.UPDATE_MALFORMED
            violations.append(Violation(code, (client,)))
    return violations


def validate_scores(
    inputs: Inputs, record: RoundRecord, evidence: Evidence, table: DistanceTable | None
) -> list[Violation]:
    """Return the violations of score vectors; without a table, only violations without updates."""
    violations, clients = [], record.clients
    for signed in record.scores:
        violations += _vector_violations(inputs, clients, signed, None, evidence, table)
    entries = Counter(entry.signed.scores.member for entry in record.refused)
    counted = {signed.scores.member for signed in record.scores}
    for entry in record.refused:
        member = entry.signed.scores.member
        is_pair = entries[member] == 2
        if (entry.reason is RefusalReason.TWO_VECTORS) != is_pair or member in counted:
            violations.append(Violation(ViolationCode.REFUSAL_UNFOUNDED, (member,), entry.reason))
        elif not is_pair:
            violations += _vector_violations(inputs, clients, entry.signed, entry, evidence, table)
    if len(record.scores) < majority(inputs.parameters.members):
        violations.append(Violation(ViolationCode.TOO_FEW_SCORES))
    if len(set(clients) & set(inputs.participants.trainers)) < inputs.parameters.members:
        violations.append(Violation(ViolationCode.TOO_FEW_TRAINERS))
    return violations


def validate_omissions(
    record: RoundRecord, held: Iterable[ClientId], claims: Iterable[SignedScores]
) -> list[Violation]:
    """Return the violations that a member sees which held more when it entered the view."""
    in_time = set(held)
    violations = [
        Violation(ViolationCode.PAYLOAD_HELD, (dropout.client,))
        for dropout in record.dropouts
        if dropout.reason is DropoutReason.PAYLOAD_MISSING and dropout.client in in_time
    ]
    named = {signed.scores for signed in record.scores}
    refused = {entry.signed.scores for entry in record.refused}
    refusals = Counter(entry.signed.scores.member for entry in record.refused)
    clients = record.clients_digest
    for signed in claims:
        scores = signed.scores
        if scores.base != record.base or scores.clients != clients:
            continue
        is_third = refusals[scores.member] == 2
        if scores not in named and scores not in refused and not is_third:
            violations.append(Violation(ViolationCode.VECTOR_LEFT_OUT, (scores.member,)))
    return violations


def validate_score_claim(inputs: Inputs, signed: SignedScores) -> list[Violation]:
    """Return the violations about the signer of a score claim: a member that is not banned."""
    member = signed.scores.member
    if member not in inputs.participants.members:
        return [Violation(ViolationCode.NO_MEMBER, (member,))]
    address = inputs.registry[member].address
    if not is_signed_by(address, inputs.domain, signed.scores, signed.signature):
        return [Violation(ViolationCode.CLAIM_NOT_SIGNED, (member,))]
    return []


def find_score_fault(
    inputs: Inputs,
    clients: Sequence[ClientId],
    claim: Scores,
    vector: ScoreVector | None,
    table: DistanceTable | None,
    margins: float,
) -> ScoreFault | None:
    """Return the lowest reason why a vector cannot count for a set of usable updates, or None.

    Without a table, reason 6, and whether an update is only zeros, are not checked.
    """
    if vector is None:
        return ScoreFault(RefusalReason.NOT_A_VECTOR)
    if (vector.round, vector.member, vector.base) != (claim.round, claim.member, claim.base):
        return ScoreFault(RefusalReason.OF_ANOTHER)
    if claim.member not in clients or (table is not None and not table.can_score(claim.member)):
        return ScoreFault(RefusalReason.NO_USABLE_UPDATE)
    trainers, others = scored_clients(inputs, clients, claim.member)
    if (vector.trainers, vector.members) != (trainers, others):
        return ScoreFault(RefusalReason.OTHER_CLIENTS)
    if not vector.is_in_range:
        return ScoreFault(RefusalReason.OUT_OF_RANGE)
    if table is None:
        return None
    for scored, published in ((trainers, vector.distances), (others, vector.member_distances)):
        for place in np.flatnonzero(published != table.row(claim.member, scored)).tolist():
            if table.is_off(scored[place], claim.member, float(published[place]), margins):
                return ScoreFault(RefusalReason.FALSE_DISTANCE, scored[place])
    return None


def scored_clients(
    inputs: Inputs, clients: Sequence[ClientId], member: ClientId
) -> tuple[tuple[ClientId, ...], tuple[ClientId, ...]]:
    """Return the trainers among clients, and the other members, which a member's vector is for."""
    committee = set(inputs.participants.committee)
    trainers = tuple([client for client in clients if client not in committee])
    return trainers, tuple([c for c in clients if c in committee and c != member])


def _vector_violations(
    inputs: Inputs,
    clients: Sequence[ClientId],
    signed: SignedScores,
    refusal: RefusedScores | None,
    evidence: Evidence,
    table: DistanceTable | None,
) -> list[Violation]:
    """Return the violations about one vector, which the record counts if it does not refuse it."""
    scores, member = signed.scores, signed.scores.member
    data = evidence.vectors.get(scores.digest)
    if data is None:
        return [Violation(ViolationCode.VECTOR_MISSING, (member,))]
    if len(data) > MAX_VECTOR_BYTES:
        return [Violation(ViolationCode.VECTOR_TOO_LONG, (member,))]
    vector = parse_vector(data)
    margins = COUNTING_MARGINS if refusal is None else REFUSAL_MARGINS
    fault = find_score_fault(inputs, clients, scores, vector, table, margins)
    if refusal is None:
        if fault is None:
            return []
        named = (member,) if fault.client is None else (member, fault.client)
        return [Violation(ViolationCode.SCORES_DO_NOT_COUNT, named, fault.reason)]
    reason = refusal.reason
    if table is None and _needs_updates(reason, fault):
        return []
    holds = fault is not None and fault.reason is reason
    if holds and reason is RefusalReason.FALSE_DISTANCE:
        # Any false distance may be the one that is named, not only the first.
        assert vector is not None
        assert table is not None
        claim = vector.claims().get(refusal.client)
        holds = claim is not None and table.is_off(refusal.client, member, claim, margins)
    return [] if holds else [Violation(ViolationCode.REFUSAL_UNFOUNDED, (member,), reason)]


def _needs_updates(reason: RefusalReason, fault: ScoreFault | None) -> bool:
    """Return whether a reason could hold by updates that one does not have."""
    if reason is RefusalReason.FALSE_DISTANCE:
        return fault is None
    return reason is RefusalReason.NO_USABLE_UPDATE and (fault is None or fault.reason > reason)
