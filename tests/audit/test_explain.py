"""A round in plain words, with numbers that a pencil can check."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ledger.audit.explain import explain_round
from ledger.audit.history import RoundHistory, read_round
from ledger.protocol.consensus import primary_place
from ledger.protocol.documents import Incident, RefusedScores, RoundRecord
from ledger.protocol.encoding import float_bits, keccak256, ranking_word, sha256
from ledger.protocol.ledger_state import RoundAbandoned, RoundDecided
from ledger.protocol.types import ClientId, Digest, Phase, Scores, SignedScores

if TYPE_CHECKING:
    from tests.audit.play import Game

SEED = keccak256(b"a seed")
COMMITTEE = tuple(ClientId(client) for client in (6, 7, 8))
TRAINERS = tuple(ClientId(client) for client in (0, 1, 2, 3, 4))
NOTHING = Digest(bytes(32))
RANKING = tuple(
    ranking_word(distance, ClientId(client))
    for distance, client in ((0.5, 3), (1.0, 0), (1.5, 4), (2.25, 1))
)


def signed(member: int) -> SignedScores:
    return SignedScores(Scores(2, ClientId(member), sha256(b"%d" % member)), bytes(65))


def primary(phase: Phase, view: int) -> ClientId:
    return COMMITTEE[primary_place(SEED, phase, view, 3)]


RECORD = RoundRecord(
    round=2,
    scores=(signed(6),),
    refused=(RefusedScores(signed(7), "false distance to client 0: 9 published, 1 true"),),
    dropouts=((ClientId(2), "payload malformed"),),
    incidents=(
        Incident(Phase.AGGREGATION, 0, primary(Phase.AGGREGATION, 0), "silent", ()),
        Incident(Phase.ELECTION, 0, ClientId(8), "equivocation", ()),
    ),
)
DECIDED = RoundDecided(
    round=2,
    ranking=RANKING,
    accepted=(ClientId(3), ClientId(0)),
    next_committee=(ClientId(3), ClientId(0), ClientId(4)),
    model=NOTHING,
    updates_root=NOTHING,
    scores_root=NOTHING,
    threshold_bits=0,
    record=NOTHING,
    views=(1, 0),
    primaries=(primary(Phase.AGGREGATION, 1), primary(Phase.ELECTION, 0)),
    signers=(0b011, 0b110),
    next_seed=NOTHING,
    head=NOTHING,
)
HISTORY = RoundHistory(
    round=2,
    status="decided",
    seed=SEED,
    committee=COMMITTEE,
    trainers=TRAINERS,
    commitments=dict.fromkeys([*TRAINERS, ClientId(6), ClientId(7), ClientId(9)], NOTHING),
    decided=DECIDED,
    abandoned=None,
    banned=(ClientId(5),),
    ended=None,
    record=RECORD,
)


def test_explains_a_decided_round_by_pencil() -> None:
    failed, first = primary(Phase.AGGREGATION, 0), primary(Phase.AGGREGATION, 1)
    assert explain_round(HISTORY, None) == [
        "Round 2 was decided, with 5 trainers and 3 members.",
        "Trainers are 0, 1, 2, 3, 4; members are 6, 7, 8.",
        "7 of 8 of them committed to an update.",
        "No commitment came from 8.",
        "9 committed though neither trainer nor member, to no effect.",
        "Client 5 was banned during the round.",
        "Client 2 was left out: payload malformed.",
        "The scores of 1 of 3 members count: 6.",
        "The scores of member 7 were left out: false distance to client 0: 9 published, 1 true.",
        "No scores are recorded of 8.",
        "4 trainers were ranked by their squared distances to the members; the 2 nearest were "
        "accepted, up to distance 1.",
        "  rank   1 of 4: client 3, distance 0.5: accepted",
        "  rank   2 of 4: client 0, distance 1: accepted",
        "  rank   3 of 4: client 4, distance 1.5: refused",
        "  rank   4 of 4: client 1, distance 2.25: refused",
        f"View 0 of the aggregation, with primary {failed}, failed: silent.",
        f"View 1 decided the aggregation: primary {first} asked, and 2 members (2 are needed) "
        "replied: 6, 7.",
        "Member 8 signed two different votes in view 0 of the election.",
        f"View 0 decided the election: primary {primary(Phase.ELECTION, 0)} asked, and 2 members "
        "(2 are needed) replied: 7, 8.",
        "The next committee is the middle of the ranking, ranks 1 to 3: 3, 0, 4.",
    ]


def test_says_what_the_rule_of_the_cut_off_was() -> None:
    def rule(**changes: object) -> str:
        decided = replace(DECIDED, **changes)  # type: ignore[arg-type]
        lines = explain_round(replace(HISTORY, decided=decided), None)
        return next(line for line in lines if "ranked by" in line)

    last_two = (ClientId(4), ClientId(1))
    assert rule(accepted=last_two).endswith("the 2 farthest were accepted, from distance 1.5 on.")
    within = rule(threshold_bits=float_bits(1.25))
    assert within.endswith("the 2 within the committee's own spread of 1.25 were accepted.")
    none = rule(threshold_bits=float_bits(0.25))
    assert none.endswith("spread of 0.25, so the 2 nearest were accepted.")


def test_says_so_if_the_record_is_missing() -> None:
    lines = explain_round(replace(HISTORY, record=None), None)
    assert sum("record is missing" in line for line in lines) == 1
    assert any("failed: the record does not say why" in line for line in lines)


def test_explains_rounds_without_a_decision() -> None:
    abandoned = RoundAbandoned(2, (ClientId(1), ClientId(2), ClientId(3)), NOTHING, NOTHING)
    ended = replace(HISTORY, status="abandoned", decided=None, abandoned=abandoned, record=None)
    lines = explain_round(ended, None)
    assert lines[0] == "Round 2, with 5 trainers and 3 members, was abandoned at its deadline."
    assert lines[-1].endswith("drew a new committee: 1, 2, 3.")
    waiting = replace(HISTORY, status="open", decided=None, record=None)
    assert explain_round(waiting, None)[0] == "Round 2 is open, with 5 trainers and 3 members."


def test_explains_every_round_of_a_run(honest: Game) -> None:
    sizes = honest.ledger.deployment()
    for number in range(1, 6):
        history = read_round(honest.ledger, sizes, number, honest.blobs)
        assert history is not None
        lines = explain_round(history, honest.document)
        assert lines[0].startswith(f"Round {number}")
    history = read_round(honest.ledger, sizes, 2, honest.blobs)
    assert history is not None
    lines = explain_round(history, honest.document)
    assert any("failed: wrong proposal." in line for line in lines)
    assert any("ranked by the mean of" in line for line in lines)
