"""A committee that colludes: every signature is right, the contract took it, and yet it is named.

Each case is a run whose second round departs from the protocol in one way; the whole committee
signs it. The table says which step must fail and whom the contradiction must name.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from ledger.audit.audit import audit, readable
from ledger.blobs.store import MemoryBlobs
from ledger.chain.committee_ledger import LedgerWriter
from ledger.chain.deployment import creation_data, deployment_for
from ledger.chain.embedded import EmbeddedChain
from ledger.protocol import merkle
from ledger.protocol.aggregation import aggregate
from ledger.protocol.counting import CountedScores, Updates
from ledger.protocol.decision import Decision, decide, update_leaves
from ledger.protocol.documents import (
    Incident,
    RefusedScores,
    RoundRecord,
    decode_record,
    encode_record,
    encode_run,
)
from ledger.protocol.election import elect
from ledger.protocol.encoding import (
    float_bits,
    sha256,
    vector_bytes,
    word_client,
)
from ledger.protocol.ledger_state import deployment_of
from ledger.protocol.sampling import first_committee
from ledger.protocol.selection import accepted_size, select
from ledger.protocol.signing import sign
from ledger.protocol.types import (
    Beacon,
    ClientId,
    Digest,
    Phase,
    Scores,
    SignedScores,
    SignedVote,
    Strategy,
    VoteKind,
)
from tests.audit.play import DIMENSION, INITIAL, PARAMETERS, SIGNERS, Game, Plot, document_of
from tests.audit.test_tampered_blobs import ChangedBlobs

if TYPE_CHECKING:
    from pathlib import Path

    from ledger.protocol.documents import ScoreVector

Who = Callable[[Game], int | None]
Vectors = dict[ClientId, "ScoreVector"]


def nobody(_game: Game) -> None:
    return None


def first_trainer(game: Game) -> int:
    return game.trainers[0]


def last_trainer(game: Game) -> int:
    return game.trainers[-1]


def first_member(game: Game) -> int:
    return min(game.committee)


def bystander(game: Game) -> int:
    return min(set(range(PARAMETERS.clients)) - {*game.trainers, *game.committee})


def rebuilt(decision: Decision, ranking: tuple[int, ...], game: Game) -> Decision:
    """Return a decision over another ranking, with all that the contract derives from it."""
    payloads = {c: sha256(vector_bytes(game.update(c))) for c in map(word_client, ranking)}
    size = accepted_size(PARAMETERS.aggregation_ppm, len(ranking))
    strategy = game.document.parameters.strategy
    accepted = select(ranking, strategy, size, decision.threshold_bits)
    leaves = update_leaves(ranking, accepted, payloads)
    return replace(
        decision,
        ranking=ranking,
        accepted=accepted,
        next_committee=elect(ranking, PARAMETERS.members),
        updates_root=merkle.root(merkle.UPDATE_LEAF, leaves),
    )


def wrong_model(decision: Decision, _game: Game) -> Decision:
    model = decision.model.copy()
    model[3] = np.nextafter(model[3], np.float32(9))
    return replace(decision, model=model, model_digest=sha256(vector_bytes(model)))


def one_more_ulp(decision: Decision, game: Game) -> Decision:
    """Move the first trainer's mean by one unit in its last place."""
    words = [w + (1 << 32) * (word_client(w) == first_trainer(game)) for w in decision.ranking]
    return rebuilt(decision, tuple(sorted(words)), game)


def without_last_trainer(decision: Decision, game: Game) -> Decision:
    kept = (w for w in decision.ranking if word_client(w) != last_trainer(game))
    return rebuilt(decision, tuple(kept), game)


def other_root(name: str) -> Callable[[Decision, Game], Decision]:
    other: dict[str, Any] = {name: sha256(b"another tree")}
    return lambda decision, _game: replace(decision, **other)


def wrong_threshold(decision: Decision, game: Game) -> Decision:
    wrong = replace(decision, threshold_bits=float_bits(1e6))
    return rebuilt(wrong, decision.ranking, game)


def swapped_trainer(trainers: tuple[ClientId, ...], game: Game) -> tuple[ClientId, ...]:
    outside = set(range(PARAMETERS.clients)) - {*trainers, *game.committee}
    return tuple(sorted((*trainers[1:], ClientId(min(outside)))))


def one_lies(vectors: Vectors, game: Game) -> Vectors:
    liar = min(game.committee)
    return vectors | {liar: replace(vectors[liar], distances=vectors[liar].distances * 1.0001)}


def one_lies_about_a_member(vectors: Vectors, game: Game) -> Vectors:
    liar = min(game.committee)
    wrong = vectors[liar].member_distances * 2
    return vectors | {liar: replace(vectors[liar], member_distances=wrong)}


def lies_count(counted: dict[ClientId, CountedScores], game: Game) -> dict[ClientId, CountedScores]:
    """Count what the members published, whether true or not."""
    return {member: game.published[member] for member in sorted(game.published)}


def excluded(reason: str) -> Plot:
    """Leave the last trainer out as if it had dropped out."""

    def leave_out(updates: Updates, game: Game) -> Updates:
        client = game.trainers[-1]
        vectors = {c: v for c, v in updates.vectors.items() if c != client}
        payloads = {c: p for c, p in updates.payloads.items() if c != client}
        dropouts = tuple(sorted((*updates.dropouts, (client, reason))))
        return Updates(vectors, payloads, dropouts)

    return Plot(updates=leave_out)


def unnamed_dropout(record: RoundRecord, _game: Game) -> RoundRecord:
    return replace(record, dropouts=())


def invented_dropout(record: RoundRecord, game: Game) -> RoundRecord:
    return replace(record, dropouts=((ClientId(bystander(game)), "no commitment"),))


def refuse_honest(reason: str) -> Plot:
    """Leave the first member's true scores out."""

    def without(
        counted: dict[ClientId, CountedScores], game: Game
    ) -> dict[ClientId, CountedScores]:
        return {m: c for m, c in counted.items() if m != first_member(game)}

    def refused(record: RoundRecord, game: Game) -> RoundRecord:
        member = min(game.committee)
        signed = game.sign_scores(game.published[member].vector, member)
        return replace(record, refused=(*record.refused, RefusedScores(signed, reason)))

    return Plot(counted=without, record=refused)


ELECTION = Phase.ELECTION


def accuse(
    kind: str,
    who: Who | None = None,
    votes: Callable[[Game, ClientId], tuple[SignedVote, ...]] = lambda _game, _client: (),
    view: int = 0,
) -> Plot:
    """Accuse the primary of view 0 of the election, or somebody else."""

    def accusation(_none: tuple[Incident, ...], game: Game) -> tuple[Incident, ...]:
        client = ClientId(accused(game) if who is None else who(game) or 0)
        return (Incident(ELECTION, view, client, kind, votes(game, client)),)

    return Plot(failed=accusation)


def accused(game: Game) -> int:
    return game.primary(ELECTION, 0)


def primary_of_view_1(game: Game) -> int:
    return game.primary(ELECTION, 1)


def other_member(game: Game) -> int:
    return next(member for member in game.committee if member != accused(game))


def right_request(game: Game, client: ClientId) -> tuple[SignedVote, ...]:
    what = game.decided.voted(ELECTION)
    return (game.vote(VoteKind.REQUEST, ELECTION, 0, client, what),)


def one_reply(game: Game, client: ClientId) -> tuple[SignedVote, ...]:
    what = (sha256(b"a set"), Digest(bytes(32)))
    return (game.vote(VoteKind.REPLY, ELECTION, 0, client, what),)


def two_replies(game: Game, client: ClientId) -> tuple[SignedVote, ...]:
    what = (sha256(b"another set"), Digest(bytes(32)))
    return (
        *one_reply(game, client),
        game.vote(VoteKind.REPLY, ELECTION, 0, client, what),
    )


def signed_by_another(game: Game, client: ClientId) -> tuple[SignedVote, ...]:
    one, other = two_replies(game, ClientId(other_member(game)))
    return (replace(one, member=client), replace(other, member=client))


def same_vote_twice(game: Game, client: ClientId) -> tuple[SignedVote, ...]:
    return one_reply(game, client) * 2


def scores_named_twice(record: RoundRecord, _game: Game) -> RoundRecord:
    return replace(record, scores=(record.scores[0], *record.scores))


def ranked_dropout(record: RoundRecord, game: Game) -> RoundRecord:
    return replace(record, dropouts=((game.trainers[-1], "payload missing"),))


def uncommitted_dropout(record: RoundRecord, _game: Game) -> RoundRecord:
    return replace(record, dropouts=tuple((c, "payload missing") for c, _ in record.dropouts))


def silent_trainer(payloads: dict[ClientId, bytes], game: Game) -> dict[ClientId, bytes]:
    return {client: data for client, data in payloads.items() if client != game.trainers[-1]}


def garbage_scores(record: RoundRecord, game: Game) -> RoundRecord:
    """Name a signed blob that is no score vector among those that count."""
    first = record.scores[0]
    digest = game.blobs.put(b"no vector")
    scores = Scores(game.round, first.scores.member, digest)
    signature = sign(SIGNERS[scores.member], game.manifest.domain(), scores)
    return replace(record, scores=(SignedScores(scores, signature), *record.scores[1:]))


def garbage_refused(reason: str) -> Plot:
    """Refuse a signed blob that is no score vector, for this reason."""

    def refused(record: RoundRecord, game: Game) -> RoundRecord:
        garbage = garbage_scores(record, game).scores[0]
        return replace(record, refused=(RefusedScores(garbage, reason),))

    return Plot(record=refused)


def shorter_vector(vectors: Vectors, game: Game) -> Vectors:
    """Let one member leave its first trainer out."""
    member = first_member(game)
    vector = vectors[ClientId(member)]
    short = replace(vector, trainers=vector.trainers[1:], distances=vector.distances[1:])
    return vectors | {ClientId(member): short}


def short_is_recorded(record: RoundRecord, game: Game) -> RoundRecord:
    """Count the shorter vector in the record, though the decision rests on the others."""
    signed = next(r.signed for r in record.refused)
    scores = sorted((signed, *record.scores), key=lambda claim: claim.scores.member)
    return replace(record, scores=tuple(scores), refused=())


def unsigned_scores(record: RoundRecord, game: Game) -> RoundRecord:
    first = record.scores[0]
    forged = replace(first, signature=record.scores[1].signature)
    return replace(record, scores=(forged, *record.scores[1:]))


def malformed_payload(payloads: dict[ClientId, bytes], game: Game) -> dict[ClientId, bytes]:
    return payloads | {game.trainers[-1]: np.full(DIMENSION, np.inf, dtype="<f4").tobytes()}


@dataclass(frozen=True)
class Case:
    """What the committee does, which step must fail, and whom it must name."""

    plot: Plot
    step: int
    who: Who = nobody
    strategy: Strategy = Strategy.NEAREST
    says: str = ""


CASES = {
    "a model that does not follow": Case(Plot(decision=wrong_model), 9),
    "a mean moved by one ulp": Case(Plot(decision=one_more_ulp), 7, first_trainer),
    "false distances to a trainer counted": Case(
        Plot(vectors=one_lies, counted=lies_count), 6, first_member, says="false distance"
    ),
    "false distances to a member counted": Case(
        Plot(vectors=one_lies_about_a_member, counted=lies_count), 6, first_member
    ),
    "scores that are not signed": Case(
        Plot(record=unsigned_scores), 6, first_member, says="not signed"
    ),
    "a trainer that the seed did not sample": Case(Plot(trainers=swapped_trainer), 4, bystander),
    "another threshold": Case(
        Plot(decision=wrong_threshold), 8, strategy=Strategy.WITHIN_SPREAD, says="threshold"
    ),
    "another updates root": Case(Plot(decision=other_root("updates_root")), 8, says="updates root"),
    "another scores root": Case(Plot(decision=other_root("scores_root")), 8, says="scores root"),
    "a trainer missing from the ranking": Case(
        Plot(decision=without_last_trainer), 8, last_trainer, says="complete without"
    ),
    "a trainer left out: no commitment": Case(excluded("no commitment"), 10, last_trainer),
    "a trainer left out: malformed": Case(excluded("payload malformed"), 10, last_trainer),
    "a trainer left out for no known reason": Case(excluded("we dislike it"), 10, last_trainer),
    "a dropout that the record keeps silent about": Case(
        Plot(payloads=malformed_payload, record=unnamed_dropout), 10, last_trainer
    ),
    "a dropout that was not active": Case(Plot(record=invented_dropout), 10),
    "true scores refused as false": Case(
        refuse_honest("false distance to client 3: 1 published, 2 true"), 6, first_member
    ),
    "true scores refused as incomplete": Case(
        refuse_honest("it does not score exactly the other members"), 6, first_member
    ),
    "true scores refused as unreadable": Case(
        refuse_honest("unreadable: EncodingError"), 6, first_member
    ),
    "true scores refused as repeated": Case(
        refuse_honest("its member has published another before"), 6, first_member
    ),
    "a wrong proposal that nobody made": Case(accuse("wrong proposal"), 3, accused),
    "an equivocation that nobody made": Case(accuse("equivocation"), 3, accused),
    "an incident that the protocol does not know": Case(accuse("rudeness"), 3, accused),
    "a member accused in a view that decided": Case(
        accuse("silent", primary_of_view_1, view=1),
        3,
        primary_of_view_1,
        says="not one that failed",
    ),
    "a stranger accused": Case(accuse("silent", bystander), 3, bystander, says="no member"),
    "a member accused that was not the primary": Case(
        accuse("silent", other_member), 3, other_member, says="is the primary"
    ),
    "a right request called wrong": Case(
        accuse("wrong proposal", votes=right_request), 3, accused, says="proposed what was decided"
    ),
    "a reply called a wrong proposal": Case(
        accuse("wrong proposal", votes=one_reply), 3, accused, says="not a request"
    ),
    "one vote twice called equivocation": Case(
        accuse("equivocation", votes=same_vote_twice), 3, accused
    ),
    "another's votes called equivocation": Case(
        accuse("equivocation", votes=signed_by_another), 3, accused
    ),
    "scores counted twice": Case(Plot(record=scores_named_twice), 6, says="twice"),
    "a blob that is no score vector counted": Case(
        Plot(record=garbage_scores), 6, first_member, says="counts"
    ),
    "a blob that is no score vector refused for another reason": Case(
        garbage_refused("it is of another round or member"), 6, first_member, says="unreadable"
    ),
    "an incomplete vector counted": Case(
        Plot(vectors=shorter_vector, record=short_is_recorded), 6, first_member, says="exactly"
    ),
    "a ranked trainer called a dropout": Case(
        Plot(record=ranked_dropout), 8, last_trainer, says="holds them"
    ),
    "a trainer without commitment called missing": Case(
        Plot(payloads=silent_trainer, record=uncommitted_dropout), 10, last_trainer
    ),
    "a trainer without commitment that nobody names": Case(
        Plot(payloads=silent_trainer, record=unnamed_dropout), 10, last_trainer
    ),
    "a record that is none": Case(Plot(record_blob=lambda _data, _game: b"nothing"), 10),
    "the record of another round": Case(
        Plot(record_blob=lambda _data, _game: encode_record(RoundRecord(1, (), (), (), ()))), 10
    ),
    "an empty record": Case(
        Plot(record_blob=lambda _data, _game: encode_record(RoundRecord(2, (), (), (), ()))),
        6,
        says="needs 3",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_colluding_committee_is_found_and_named(tmp_path: Path, name: str) -> None:
    case = CASES[name]
    game = Game.opened(tmp_path, replace(PARAMETERS, strategy=case.strategy))
    with game.chain:
        game.play()
        trainers, committee, seed = game.trainers, game.committee, game.seed
        game.play(case.plot)
        game.play()
        report = audit(game.ledger, game.blobs)
    step = report.steps[case.step - 1]
    assert (report.outcome, step.outcome) == ("failed", "failed"), readable(report)
    assert step.contradiction is not None
    assert step.contradiction.round == 2, readable(report)
    assert case.says in step.contradiction.sentence
    game.trainers, game.committee, game.seed = trainers, committee, seed
    who = case.who(game)
    assert step.contradiction.clients == (() if who is None else (who,)), readable(report)


@pytest.mark.parametrize(
    ("plot", "kind", "proven"),
    [
        (accuse("equivocation", votes=two_replies), "equivocation", True),
        (accuse("no quorum", votes=right_request), "no quorum", False),
        (garbage_refused("unreadable: EncodingError"), "refused scores", False),
    ],
)
def test_true_accusations_are_findings(tmp_path: Path, plot: Plot, kind: str, proven: bool) -> None:
    game = Game.opened(tmp_path)
    with game.chain:
        game.play(plot)
        report = audit(game.ledger, game.blobs)
    assert report.outcome == "passed", readable(report)
    [finding] = [found for found in report.findings if found.kind == kind]
    assert (finding.round, finding.proven) == (1, proven)


def test_a_view_that_nobody_explains_is_a_finding(tmp_path: Path) -> None:
    game = Game.opened(tmp_path)
    with game.chain:
        primary = accused(game)
        silent = accuse("silent")
        game.play(replace(silent, record_blob=without_incidents))
        report = audit(game.ledger, game.blobs)
    assert report.outcome == "passed", readable(report)
    [finding] = [found for found in report.findings if found.kind == "unexplained view"]
    assert finding.clients == (primary,)


def without_incidents(data: bytes, _game: Game) -> bytes:
    return encode_record(replace(decode_record(data), incidents=()))


@pytest.mark.parametrize("reason", ["unreadable: BlobMissingError", "unreadable: BlobError"])
def test_scores_refused_as_missing_that_are_there_now_cannot_be_judged(
    tmp_path: Path, reason: str
) -> None:
    game = Game.opened(tmp_path)
    with game.chain:
        member = first_member(game)
        game.play(refuse_honest(reason))
        report = audit(game.ledger, game.blobs)
    assert report.outcome == "incomplete", readable(report)
    assert f"whether member {member} was rightly refused" in report.steps[5].missing[0]


def test_scores_refused_as_missing_that_are_missing_are_a_finding(tmp_path: Path) -> None:
    game = Game.opened(tmp_path)
    with game.chain:
        game.play(garbage_refused("unreadable: BlobMissingError"))
        digest = sha256(b"no vector")
        report = audit(game.ledger, ChangedBlobs(game.blobs, {digest: None}))
    assert report.outcome == "passed", readable(report)
    assert report.finding_counts["refused scores"] == 1


def test_a_refusal_that_needs_a_missing_payload_cannot_be_judged(tmp_path: Path) -> None:
    game = Game.opened(tmp_path)
    with game.chain:
        member, trainer = first_member(game), game.trainers[0]
        payload = sha256(vector_bytes(game.update(trainer)))
        game.play(refuse_honest(f"false distance to client {trainer}: 1 published, 2 true"))
        report = audit(game.ledger, ChangedBlobs(game.blobs, {payload: None}))
    assert report.outcome == "incomplete", readable(report)
    assert f"round 1: whether member {member} was rightly refused" in report.steps[5].missing


def test_an_oversized_payload_is_a_missing_one(tmp_path: Path) -> None:
    """A store reads no more than an update can have, so the committee never saw it."""

    def oversized(payloads: dict[ClientId, bytes], game: Game) -> dict[ClientId, bytes]:
        return payloads | {game.trainers[-1]: bytes(8 * DIMENSION)}

    def missing(record: RoundRecord, _game: Game) -> RoundRecord:
        return replace(record, dropouts=tuple((c, "payload missing") for c, _ in record.dropouts))

    game = Game.opened(tmp_path)
    with game.chain:
        game.play(Plot(payloads=oversized, record=missing))
        report = audit(game.ledger, game.blobs)
    assert report.outcome == "passed", readable(report)
    assert report.finding_counts["dropout"] == 1


def test_a_model_that_is_not_finite_is_found(tmp_path: Path) -> None:
    game = Game.opened(tmp_path, replace(PARAMETERS, server_rate=1e300))
    with game.chain, np.errstate(over="ignore"):
        game.play(Plot(decides=decide_the_infinite))
        report = audit(game.ledger, game.blobs)
    contradiction = report.steps[8].contradiction
    assert contradiction is not None, readable(report)
    assert contradiction.true == "it is not finite"


def decide_the_infinite(*arguments: Any) -> Decision:
    parameters, registry, model, updates, counted = arguments
    decision = decide(replace(parameters, server_rate=1.0), registry, model, updates, counted)
    accepted = {client: updates.vectors[client] for client in decision.accepted}
    samples = {client: registry[client].samples for client in decision.accepted}
    infinite = aggregate(model, accepted, samples, parameters.server_rate)
    return replace(decision, model=infinite, model_digest=sha256(vector_bytes(infinite)))


def test_an_honest_trainer_left_out_as_missing_is_named_but_cannot_be_proven(
    tmp_path: Path,
) -> None:
    game = Game.opened(tmp_path)
    with game.chain:
        excluded_client = game.trainers[-1]
        game.play(excluded("payload missing"))
        report = audit(game.ledger, game.blobs)
    assert report.outcome == "incomplete", readable(report)
    [why] = report.steps[9].missing
    assert f"client {excluded_client} was left out" in why
    assert "published late" in why


def test_false_scores_are_found_even_if_the_run_does_not_check_them(tmp_path: Path) -> None:
    game = Game.opened(tmp_path, replace(PARAMETERS, scores_checked=False))
    with game.chain:
        liar = min(game.committee)
        game.play(Plot(vectors=one_lies, counted=lies_count))
        report = audit(game.ledger, game.blobs)
    contradiction = report.steps[5].contradiction
    assert contradiction is not None
    assert contradiction.clients == (liar,)


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("aggregation_ppm", 1_000_000),
        ("strategy", Strategy.FARTHEST),
        ("rounds", 6),
        ("deadline_blocks", 3),
        ("trainers", 6),
        ("beacon", Beacon.BLOCK),
        ("model", Digest(bytes(32))),
        ("committee", (ClientId(0), ClientId(1), ClientId(2), ClientId(3), ClientId(4))),
    ],
)
def test_a_deployment_that_is_not_the_configuration_s_fails_step_1(
    tmp_path: Path, name: str, wrong: object
) -> None:
    blobs = MemoryBlobs()
    document = document_of(PARAMETERS, blobs.put(vector_bytes(INITIAL)))
    blobs.put(encode_run(document))
    deployment, batches = deployment_for(document)
    with EmbeddedChain.create(tmp_path / "chain.sqlite", synchronous="NORMAL") as chain:
        data = creation_data(replace(deployment, **{name: wrong}))  # type: ignore[arg-type]
        receipt = chain.send(None, data, 8_000_000)
        assert receipt.contract_address is not None
        ledger = LedgerWriter(chain, receipt.contract_address, receipt.block_number)
        for words, rest in batches:
            ledger.register_clients(words, rest)
        report = audit(ledger, blobs)
    assert report.steps[0].outcome == "failed", readable(report)
    assert report.steps[0].contradiction is not None
    assert name in report.steps[0].contradiction.sentence


def test_clients_that_the_configuration_does_not_list_fail_step_1(tmp_path: Path) -> None:
    blobs = MemoryBlobs()
    document = document_of(PARAMETERS, blobs.put(vector_bytes(INITIAL)))
    config = blobs.put(encode_run(document))
    richer = (replace(document.registry[0], samples=1_000_000), *document.registry[1:])
    deployment, batches = deployment_of(
        PARAMETERS,
        config,
        richer,
        first_committee(config, PARAMETERS.clients, PARAMETERS.members),
        document.initial_model,
    )
    with EmbeddedChain.create(tmp_path / "chain.sqlite", synchronous="NORMAL") as chain:
        receipt = chain.send(None, creation_data(deployment), 8_000_000)
        assert receipt.contract_address is not None
        ledger = LedgerWriter(chain, receipt.contract_address, receipt.block_number)
        for words, rest in batches:
            ledger.register_clients(words, rest)
        report = audit(ledger, blobs)
    assert report.steps[0].outcome == "failed", readable(report)


def test_a_configuration_that_is_none_or_repeats_an_address_fails_step_1(tmp_path: Path) -> None:
    document = document_of(PARAMETERS, sha256(b"a model"))
    repeated = replace(document, registry=(document.registry[0], *document.registry[:-1]))
    with EmbeddedChain.create(tmp_path / "chain.sqlite", synchronous="NORMAL") as chain:
        for blob, says in ((b"nothing", "is a configuration"), (encode_run(repeated), "addresses")):
            blobs = MemoryBlobs()
            config = blobs.put(blob)
            deployment = replace(deployment_for(repeated)[0], config=config)
            receipt = chain.send(None, creation_data(deployment), 8_000_000)
            assert receipt.contract_address is not None
            ledger = LedgerWriter(chain, receipt.contract_address, receipt.block_number)
            report = audit(ledger, blobs)
            assert report.steps[0].contradiction is not None, readable(report)
            assert says in report.steps[0].contradiction.sentence


@pytest.mark.parametrize(("size", "step"), [(4 * DIMENSION + 4, 5), (4 * DIMENSION - 4, 1)])
def test_a_first_model_of_another_size_is_named(tmp_path: Path, size: int, step: int) -> None:
    game = Game.opened(tmp_path, initial=bytes(size))
    with game.chain:
        report = audit(game.ledger, game.blobs)
    assert report.steps[step - 1].contradiction is not None, readable(report)


def test_scores_published_twice_count_once_and_are_a_finding(tmp_path: Path) -> None:
    def twice(claims: list[SignedScores], game: Game) -> list[SignedScores]:
        member = claims[0].scores.member
        vector = game.published[member].vector
        nearly = replace(vector, distances=vector.distances * (1 + 1e-12))
        return [*claims, game.sign_scores(nearly, member)]

    game = Game.opened(tmp_path)
    with game.chain:
        member = first_member(game)
        game.play(Plot(claims=twice))
        report = audit(game.ledger, game.blobs)
    assert report.outcome == "passed", readable(report)
    [finding] = [found for found in report.findings if found.kind == "refused scores"]
    assert (finding.clients, finding.proven) == ((member,), True)
    assert finding.sentence == "its member has published another before"
