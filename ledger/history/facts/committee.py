"""The committee of a round and the next one, and what each member did."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ledger.history.facts.words import coded, hexed_or_none, phase_name
from ledger.history.participation import members_of
from ledger.protocol.types import RefusalReason

if TYPE_CHECKING:
    from ledger.history.facts.words import Facts, Told
    from ledger.history.participation import Participation
    from ledger.protocol.documents.record import RefusedScores


def committee_facts(told: Told) -> Facts:
    """Return the members by their places, with what they did, and the next committee.

    Args:
        told: the round.
    """
    following = told.one.end.next_committee if told.one.end else ()
    return told.heading() | {
        "committee": [_member(told, part) for part in members_of(told.one, told.documents)],
        "next_committee": [
            {"place": place, "client": client, "address": told.address(client)}
            for place, client in enumerate(following)
        ],
        "record": told.record(),
    }


def _member(told: Told, part: Participation) -> Facts:
    return {
        "place": part.place,
        "client": part.client,
        "address": told.address(part.client),
        "empty_seat": part.empty_seat,
        "committed": part.committed,
        "commitment": hexed_or_none(part.commitment),
        "payload": hexed_or_none(part.payload),
        "reason": None if part.dropout is None else coded(part.dropout),
        **duties(part),
    }


def duties(part: Participation) -> Facts:
    """Return what a member did: its scores, its votes, and what it is accused of."""
    return {
        "scores": None if part.scores is None else part.scores.value,
        "refused": [refusal_facts(entry) for entry in part.refused],
        "voted": [phase_name(phase) for phase in part.voted],
        "primary_of": [phase_name(phase) for phase in part.primary_of],
        "incidents": [
            {"phase": phase_name(one.phase), "view": one.view, "kind": coded(one.kind)}
            for one in part.incidents
        ],
    }


def refusal_facts(entry: RefusedScores) -> Facts:
    """Return why scores do not count, and the client whose distance is false if that is why."""
    is_false = entry.reason is RefusalReason.FALSE_DISTANCE
    return {"reason": coded(entry.reason), "named": entry.client if is_false else None}
