"""A round in plain words, with numbers that a pencil can check."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ledger.chain.round_ledger import RecordedEvent
from ledger.history.explain import explain_round
from ledger.history.history import FoldedHistory
from ledger.history.round import NO_DOCUMENTS, Documents, HistoryRound
from ledger.protocol.documents.record import (
    Dropout,
    Incident,
    Incidents,
    RefusedScores,
    RoundRecord,
    UsableUpdate,
)
from ledger.protocol.encoding import RegisteredClient, keccak256, ranking_word, sha256, word_client
from ledger.protocol.inputs import Participants
from ledger.protocol.ledger_state import (
    ClientBanned,
    RoundAbandoned,
    RoundDecided,
    RoundStart,
    UpdatesCommitted,
    deployment_of,
)
from ledger.protocol.types import (
    AcceptanceForm,
    Address,
    ClientId,
    Digest,
    DropoutReason,
    IncidentKind,
    Phase,
    RefusalReason,
    Scores,
    SignedScores,
)
from tests.audit.runs import PARAMETERS, Run, document_of

COMMITTEE = tuple(ClientId(client) for client in (6, 7, 8, 10))
TRAINERS = tuple(ClientId(client) for client in (0, 1, 2, 3, 4))
NOTHING = Digest(bytes(32))
RANKING = tuple(
    ranking_word(distance, ClientId(client))
    for distance, client in ((0.5, 3), (1.0, 0), (1.5, 4), (2.25, 1))
)


def signed(member: int) -> SignedScores:
    scores = Scores(2, ClientId(member), NOTHING, NOTHING, sha256(b"%d" % member))
    return SignedScores(scores, bytes(65))


RECORD = RoundRecord(
    round=2,
    base=NOTHING,
    updates=tuple(UsableUpdate(ClientId(client), NOTHING) for client in (0, 1, 3, 4, 6, 7)),
    dropouts=(
        Dropout(ClientId(2), DropoutReason.PAYLOAD_MALFORMED, NOTHING),
        Dropout(ClientId(8), DropoutReason.NO_COMMITMENT),
        Dropout(ClientId(10), DropoutReason.NO_COMMITMENT),
    ),
    scores=(signed(6),),
    refused=(RefusedScores(signed(7), RefusalReason.FALSE_DISTANCE, ClientId(1)),),
)
INCIDENTS = Incidents(
    2,
    NOTHING,
    (
        Incident(Phase.AGGREGATION, 0, ClientId(7), IncidentKind.SILENT),
        Incident(Phase.ELECTION, 0, ClientId(8), IncidentKind.EQUIVOCATION),
    ),
)
DIGESTS = (
    *("base", "model", "updates_root", "scores_root", "reveal", "record", "incidents"),
    *("next_seed", "head"),
)
DECIDED = RoundDecided(
    round=2,
    ranking=RANKING,
    accepted=(ClientId(3), ClientId(0)),
    next_committee=(ClientId(3), ClientId(0), ClientId(4), ClientId(1)),
    views=(1, 0),
    primaries=(ClientId(8), ClientId(6)),
    signers=(0b0011, 0b0110),
    **dict.fromkeys(DIGESTS, NOTHING),
)
DOCUMENTS = Documents(RECORD, INCIDENTS, names_incidents=True)
REGISTRY = tuple(
    RegisteredClient(Address(bytes(20)), 1, banned_in=1 if client == 10 else 0)
    for client in range(PARAMETERS.clients)
)
SIZES, _ = deployment_of(PARAMETERS, NOTHING, REGISTRY, NOTHING)
COMMITTED = [*TRAINERS, ClientId(6), ClientId(7), ClientId(9)]


def ended_with(event: RoundDecided | RoundAbandoned | None, *late: int) -> HistoryRound:
    """Return round 2, opened in block 5, whose window of 3 blocks takes what came in block 6."""
    came = [(6, client) for client in COMMITTED] + [(9, ClientId(client)) for client in late]
    events = [
        RecordedEvent(UpdatesCommitted(2, (client,), (NOTHING,)), block, bytes(32), bytes(32), 0)
        for block, client in came
    ]
    ended = None if event is None else RecordedEvent(event, 12, bytes(32), bytes(32), 0)
    banned = RecordedEvent(ClientBanned(2, ClientId(5), NOTHING), 7, bytes(32), bytes(32), 0)
    opening = RoundStart(2, COMMITTEE, keccak256(b"a seed"), 5)
    one = HistoryRound(opening, SIZES, REGISTRY, ended, (*events, banned))
    # Who is sampled is a matter of other tests.
    vars(one)["participants"] = Participants(COMMITTEE, TRAINERS, frozenset({ClientId(10)}))
    return one


HISTORY = ended_with(DECIDED)


def test_explains_a_decided_round_by_pencil() -> None:
    assert explain_round(HISTORY, DOCUMENTS, document_of(PARAMETERS, NOTHING)) == [
        "Round 2 was decided, with 5 trainers and 4 members.",
        "Trainers are 0, 1, 2, 3, 4; members are 6, 7, 8, 10.",
        "Banned members with empty seats: 10.",
        "7 of 8 of these clients committed to an update.",
        "Clients without a commitment: 8.",
        "Commitments of inactive clients, without effect: 9.",
        "Client 5 was banned during the round, with effect from the next round: it signed two "
        "different statements.",
        "Client 2 was left out: its payload is not an update of the model.",
        "Client 8 was left out: it had not committed by the closing block.",
        "The scores of 1 of 4 members count: 6.",
        "The scores of member 7 were left out: its distance to client 1 is false.",
        "4 trainers were ranked by the mean of their squared distances to the members; the 2 "
        "nearest were accepted, up to distance 1.",
        "  rank   1 of 4: client 3, distance 0.5: accepted",
        "  rank   2 of 4: client 0, distance 1: accepted",
        "  rank   3 of 4: client 4, distance 1.5: not accepted",
        "  rank   4 of 4: client 1, distance 2.25: not accepted",
        "The sender of the decision reports on view 1 of the aggregation: member 7 sent no "
        "request as primary.",
        "View 2 decided the aggregation: primary 8 sent the request, and 2 members (3 needed) "
        "replied: 6, 7.",
        "The sender of the decision reports on view 1 of the election: member 8 signed two "
        "different votes.",
        "View 1 decided the election: primary 6 sent the request, and 2 members (3 needed) "
        "replied: 7, 8.",
        "The next committee is the middle of the ranking, ranks 1 to 4: 3, 0, 4, 1.",
    ]


def rule(settings: dict[str, Any], **changes: Any) -> str:
    one = ended_with(replace(DECIDED, **changes))
    document = document_of(replace(PARAMETERS, **settings), NOTHING)
    return next(line for line in explain_round(one, DOCUMENTS, document) if "ranked by" in line)


def test_says_what_strategy_three_compared_and_accepted() -> None:
    later, first = rule({"strategy": 3}), rule({"strategy": 3}, round=1)
    common = "direction to the round's other updates, "
    assert f"{common}along the model's travel and apart from crowds;" in later
    assert f"{common}apart from crowds;" in first
    assert later.endswith("the 2 below a right angle were accepted, clipped and weighted equally.")
    far = tuple(ranking_word(2.0 + place, word_client(w)) for place, w in enumerate(RANKING))
    none = rule({"strategy": 3}, ranking=far)
    assert none.endswith("none is below a right angle, so the 2 nearest were accepted.")


def test_says_how_a_committee_was_drawn() -> None:
    def election(*accepted: int) -> str:
        event = replace(DECIDED, accepted=tuple(map(ClientId, accepted)))
        lots = replace(SIZES, form=AcceptanceForm.BELOW_TWO, members=2)
        return explain_round(replace(ended_with(event), sizes=lots), NO_DOCUMENTS, None)[-1]

    who = "The next committee is "
    assert election(3, 0, 4) == who + "2 of the 3 accepted, drawn by the next seed: 3, 0, 4, 1."
    assert election(3, 0) == who + "the 2 accepted: 3, 0, 4, 1."
    assert election(3) == who + "the 1 accepted and the 1 ranked next: 3, 0, 4, 1."


def test_says_so_if_the_record_is_missing() -> None:
    lines = explain_round(HISTORY, Documents(names_incidents=True), None)
    assert sum("record is missing" in line for line in lines) == 1
    assert not any("The sender of" in line for line in lines)


def test_explains_rounds_without_a_decision() -> None:
    abandoned = RoundAbandoned(2, (ClientId(1), ClientId(2), ClientId(3)), NOTHING, NOTHING)
    lines = explain_round(ended_with(abandoned), NO_DOCUMENTS, None)
    assert lines[0] == "Round 2, with 5 trainers and 4 members, was abandoned at its deadline."
    assert lines[-1].endswith("drew a new committee: 1, 2, 3.")
    waiting = explain_round(ended_with(None), NO_DOCUMENTS, None)
    assert waiting[0] == "Round 2 is open, with 5 trainers and 4 members."


def test_explains_every_round_of_a_run(honest: Run) -> None:
    history = FoldedHistory.of(honest.ledger, honest.blobs)
    for number in range(1, 6):
        one = history.round(number)
        assert one is not None
        lines = explain_round(one, history.documented(one).documents, honest.document)
        assert lines[0].startswith(f"Round {number}")
        if number == 2:
            assert any("signed a wrong request." in line for line in lines)
