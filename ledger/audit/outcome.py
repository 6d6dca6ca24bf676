"""What follows from the scores and the updates: means, ranking, roots, model (steps 7 to 9)."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from ledger.audit import report
from ledger.protocol import encoding, merkle
from ledger.protocol.aggregation import aggregate
from ledger.protocol.decision import update_leaves
from ledger.protocol.election import elect
from ledger.protocol.errors import EncodingError
from ledger.protocol.scoring import committee_distances, spread_threshold
from ledger.protocol.selection import accepted_size, select
from ledger.protocol.types import Strategy

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ledger.audit.evidence import Archive, RoundEvidence
    from ledger.audit.report import Notebook
    from ledger.protocol.counting import CountedScores
    from ledger.protocol.ledger_state import Deployment, RoundDecided
    from ledger.protocol.parameters import Parameters
    from ledger.protocol.types import ClientId, Digest


def is_sane(event: RoundDecided, deployment: Deployment, notes: Notebook) -> bool:
    """Say whether a decision's numbers are in range; a believed event may hold anything.

    Args:
        event: the decision.
        deployment: its bounds.
        notes: where a contradiction is written down.
    """
    ranked = [encoding.word_client(word) for word in event.ranking]
    clients = [*ranked, *event.accepted, *event.next_committee]
    sane = (
        all(0 <= word < encoding.INFINITY_BITS << 32 for word in event.ranking)
        and all(client < deployment.clients for client in clients)
        and all(one < other for one, other in pairwise(event.ranking))
        and len(set(ranked)) == len(ranked)
        and deployment.members <= len(ranked) <= deployment.trainers
    )
    if not sane:
        true = "its words, clients or length are out of range, or it is not sorted"
        notes.contradict(report.RANKING, "it has a ranking", true, event.round)
    return sane


def check_means(evidence: RoundEvidence, parameters: Parameters, notes: Notebook) -> None:
    """Recompute mean or median of the counted distances, and what is ranked by them.

    Args:
        evidence: of the round.
        parameters: of the run.
        notes: where contradictions are written down.
    """
    at, event = evidence.facts.round, evidence.event
    vectors = _counted_vectors(evidence, notes)
    if vectors is None:
        return
    trainers = vectors[0].vector.trainers
    rows = np.array([counted.vector.distances for counted in vectors])
    distances = committee_distances(rows, parameters.scoring).tolist()
    recorded = {encoding.word_client(word): word >> 32 for word in event.ranking}
    for client, distance in zip(trainers, distances, strict=True):
        if client in recorded and encoding.float_bits(distance) != recorded[client]:
            notes.contradict(
                report.MEANS,
                f"its distance is {encoding.float_from_bits(recorded[client])!r}",
                f"the {parameters.scoring} of {len(vectors)} members is {distance!r}",
                at,
                (client,),
            )
    _check_threshold(evidence, vectors, parameters, notes)


def check_ranking(evidence: RoundEvidence, deployment: Deployment, notes: Notebook) -> None:
    """Check who is ranked, what follows from the ranking, and the roots over it.

    Args:
        evidence: of the round.
        deployment: the rules that the contract enforces.
        notes: where contradictions are written down.
    """
    at, event = evidence.facts.round, evidence.event
    ranked = tuple(map(encoding.word_client, event.ranking))
    if evidence.usable is not None:
        trainers = evidence.usable.intersection(evidence.electorate.trainers)
        left_out = tuple(sorted(trainers.difference(ranked)))
        if left_out:
            true = "each has a usable update, and the record gives no reason"
            notes.contradict(
                report.RANKING, "the ranking is complete without them", true, at, left_out
            )
        dropped = tuple(sorted(evidence.dropouts.keys() & set(ranked)))
        if dropped:
            true = "the round's record says that they have no usable update"
            notes.contradict(report.RANKING, "the ranking holds them", true, at, dropped)
    size = accepted_size(deployment.aggregation_ppm, len(ranked))
    accepted = select(event.ranking, deployment.strategy, size, event.threshold_bits)
    elected = elect(event.ranking, deployment.members)
    for what, recorded, true_set in (
        ("accepted set", event.accepted, accepted),
        ("next committee", event.next_committee, elected),
    ):
        if recorded != true_set:
            message = f"the ranking gives {true_set}"
            notes.contradict(report.RANKING, f"the {what} is {recorded}", message, at)
    _check_roots(evidence, ranked, notes)


@dataclass
class ModelChain:
    """The global model from round to round; keeps the newest only.

    Attributes:
        digest: of w_t.
        vector: w_t; None if it could neither be read nor recomputed.
    """

    digest: Digest
    vector: NDArray[np.float32] | None = None

    def load(self, digest: Digest, dimension: int, at: int, desk: Archive) -> None:
        """Make a model the current one; what is missing or malformed is noted.

        Args:
            digest: of the model.
            dimension: d.
            at: the round whose decision names it, 0 for the first model.
            desk: where the blobs are.
        """
        known = self.vector if digest == self.digest else None
        self.digest, self.vector = digest, known
        data = desk.read(digest, 4 * dimension, f"the model after round {at}", at)
        if data is None or known is not None:
            return
        try:
            self.vector = encoding.vector_from_bytes(data, dimension)
        except EncodingError as error:
            step = report.MODEL if at else report.DEPLOYMENT
            what = f"blob {report.shown(digest)} is the model after round {at}"
            desk.notes.contradict(step, what, str(error), at or None)

    def check(self, evidence: RoundEvidence, parameters: Parameters, desk: Archive) -> None:
        """Recompute w_{t+1} from w_t and the accepted updates, and make it the current one.

        Args:
            evidence: of the round.
            parameters: of the run.
            desk: where the blobs are, and where contradictions are written down.
        """
        event, notes, at = evidence.event, desk.notes, evidence.facts.round
        lacking = tuple(c for c in event.accepted if c not in evidence.vectors)
        computed: NDArray[np.float32] | None = None
        if self.vector is None:
            notes.lack(report.MODEL, f"round {at}: the model before it")
        elif lacking or not event.accepted:
            who = report.listed(lacking) or "nobody"
            notes.lack(report.MODEL, f"round {at}: the updates of clients {who}")
        else:
            computed = aggregate(
                self.vector,
                {client: evidence.vectors[client] for client in event.accepted},
                {client: evidence.electorate.registry[client].samples for client in event.accepted},
                parameters.server_rate,
            )
            true = encoding.sha256(encoding.vector_bytes(computed))
            if true != event.model:
                message = f"the accepted updates make it {report.shown(true)}"
                what = f"the model is {report.shown(event.model)}"
                notes.contradict(report.MODEL, what, message, at)
                computed = None
            elif not np.isfinite(computed).all():
                notes.contradict(report.MODEL, "the model is usable", "it is not finite", at)
        if computed is not None:
            self.digest, self.vector = event.model, computed
        self.load(event.model, parameters.dimension, at, desk)


def _counted_vectors(evidence: RoundEvidence, notes: Notebook) -> list[CountedScores] | None:
    """Return the counted vectors by member if the means can be recomputed from them."""
    at = evidence.facts.round
    if evidence.record is None:
        return None
    members = {signed.scores.member for signed in evidence.record.scores}
    lacking = tuple(sorted(members - evidence.scores.keys()))
    vectors = [evidence.scores[member] for member in sorted(evidence.scores)]
    reason = f"the score vectors of members {report.listed(lacking)}" if lacking else ""
    if len({counted.vector.trainers for counted in vectors}) != 1:
        reason = reason or "score vectors of one length"
    if reason:
        notes.lack(report.MEANS, f"round {at}: {reason}")
        notes.lack(report.RANKING, f"round {at}: {reason}")
        return None
    return vectors


def _check_threshold(
    evidence: RoundEvidence, vectors: list[CountedScores], parameters: Parameters, notes: Notebook
) -> None:
    """Recompute the threshold of strategy III."""
    true = 0
    if parameters.strategy is Strategy.WITHIN_SPREAD:
        others = [
            c.vector.member_distances[[m in evidence.scores for m in c.vector.members]]
            for c in vectors
        ]
        true = encoding.float_bits(spread_threshold(others))
    if evidence.event.threshold_bits != true:
        notes.contradict(
            report.RANKING,
            f"the threshold is {encoding.float_from_bits(evidence.event.threshold_bits)!r}",
            f"the committee's spread gives {encoding.float_from_bits(true)!r}",
            evidence.facts.round,
        )


def _check_roots(evidence: RoundEvidence, ranked: tuple[ClientId, ...], notes: Notebook) -> None:
    at, event = evidence.facts.round, evidence.event
    lacking = tuple(client for client in ranked if client not in evidence.payloads)
    if lacking:
        true = "they have no commitment in this round, or are banned"
        notes.contradict(report.COMPLETENESS, "the ranking holds them", true, at, lacking)
    else:
        leaves = update_leaves(event.ranking, event.accepted, evidence.payloads)
        true_root = merkle.root(merkle.UPDATE_LEAF, leaves)
        if true_root != event.updates_root:
            what = f"the updates root is {report.shown(event.updates_root)}"
            true = f"it is {report.shown(true_root)}"
            notes.contradict(report.RANKING, what, true, at)
    if evidence.record is None:
        return
    scores: list[merkle.Leaf] = [(s.scores.member, s.scores.digest) for s in evidence.record.scores]
    true_root = merkle.root(merkle.SCORES_LEAF, scores)
    if true_root != event.scores_root:
        what = f"the scores root is {report.shown(event.scores_root)}"
        true = f"the counted score vectors have {report.shown(true_root)}"
        notes.contradict(report.RANKING, what, true, at)
