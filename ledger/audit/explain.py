"""One round in plain words: who took part, who was left out and why, and who decided it.

The sentences say what chain and record say; whether that is true is the audit's business.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ledger.protocol.consensus import primary_place, quorum
from ledger.protocol.encoding import float_from_bits, word_client, word_distance
from ledger.protocol.types import Phase, Strategy

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ledger.audit.history import RoundHistory
    from ledger.protocol.documents import RoundRecord, RunDocument
    from ledger.protocol.ledger_state import RoundDecided
    from ledger.protocol.types import ClientId

_PHASES = {Phase.AGGREGATION: "the aggregation", Phase.ELECTION: "the election"}


def explain_round(history: RoundHistory, document: RunDocument | None) -> list[str]:
    """Return a round in plain words, one sentence or two per line.

    Args:
        history: all that chain and record hold of the round.
        document: the run's configuration; None leaves out what only it says.

    Returns:
        Lines without trailing newlines.
    """
    lines = [_headline(history), *_participation(history)]
    lines += [f"Client {client} was banned during the round." for client in history.banned]
    if history.abandoned is not None:
        drawn = _listed(history.abandoned.next_committee)
        lines.append(f"The model stayed as it was; the seed drew a new committee: {drawn}.")
    if history.decided is None:
        return lines
    if history.record is None:
        lines.append(
            "The round's record is missing, so the reasons for dropouts, refused scores and "
            "failed views are not known."
        )
    else:
        lines += _dropouts(history.record) + _scores(history, history.record)
    lines += _ranking(history.decided, document)
    for phase in Phase:
        lines += _vote(history, history.decided, phase)
    lines.append(_election(history.decided))
    return lines


def _headline(history: RoundHistory) -> str:
    sizes = f"{len(history.trainers)} trainers and {len(history.committee)} members"
    if history.status == "open":
        return f"Round {history.round} is open, with {sizes}."
    if history.status == "abandoned":
        return f"Round {history.round}, with {sizes}, was abandoned at its deadline."
    return f"Round {history.round} was decided, with {sizes}."


def _participation(history: RoundHistory) -> list[str]:
    active = sorted({*history.trainers, *history.committee})
    came = [client for client in active if client in history.commitments]
    absent = [client for client in active if client not in history.commitments]
    strays = [client for client in history.commitments if client not in active]
    lines = [
        f"Trainers are {_listed(history.trainers)}; members are {_listed(history.committee)}.",
        f"{len(came)} of {len(active)} of them committed to an update.",
    ]
    if absent:
        lines.append(f"No commitment came from {_listed(absent)}.")
    if strays:
        lines.append(
            f"{_listed(strays)} committed though neither trainer nor member, to no effect."
        )
    return lines


def _dropouts(record: RoundRecord) -> list[str]:
    return [f"Client {client} was left out: {reason}." for client, reason in record.dropouts]


def _scores(history: RoundHistory, record: RoundRecord) -> list[str]:
    counted = [signed.scores.member for signed in record.scores]
    lines = [
        f"The scores of {len(counted)} of {len(history.committee)} members count: "
        f"{_listed(counted)}."
    ]
    lines += [
        f"The scores of member {refused.signed.scores.member} were left out: {refused.reason}."
        for refused in record.refused
    ]
    heard = {*counted, *(refused.signed.scores.member for refused in record.refused)}
    dropped = {client for client, _ in record.dropouts}
    silent = [member for member in sorted(history.committee) if member not in heard | dropped]
    if silent:
        lines.append(f"No scores are recorded of {_listed(silent)}.")
    return lines


def _ranking(event: RoundDecided, document: RunDocument | None) -> list[str]:
    ranked = len(event.ranking)
    how = f"the {document.parameters.scoring} of their" if document is not None else "their"
    lines = [
        f"{ranked} trainers were ranked by {how} squared distances to the members; "
        f"{_rule(event, document)}"
    ]
    accepted = set(event.accepted)
    for place, word in enumerate(event.ranking, start=1):
        client = word_client(word)
        verdict = "accepted" if client in accepted else "refused"
        lines.append(
            f"  rank {place:3d} of {ranked}: client {client}, distance "
            f"{word_distance(word):.6g}: {verdict}"
        )
    return lines


def _rule(event: RoundDecided, document: RunDocument | None) -> str:
    """Return how the accepted were chosen, and where the cut-off lies."""
    accepted, ranked = len(event.accepted), len(event.ranking)
    strategy = document.parameters.strategy if document is not None else _strategy(event)
    if strategy is Strategy.FARTHEST:
        first = word_distance(event.ranking[ranked - accepted])
        return f"the {accepted} farthest were accepted, from distance {first:.6g} on."
    last = word_distance(event.ranking[accepted - 1])
    if strategy is Strategy.NEAREST:
        return f"the {accepted} nearest were accepted, up to distance {last:.6g}."
    threshold = float_from_bits(event.threshold_bits)
    if last > threshold:
        return (
            f"none lies within the committee's own spread of {threshold:.6g}, "
            f"so the {accepted} nearest were accepted."
        )
    return f"the {accepted} within the committee's own spread of {threshold:.6g} were accepted."


def _strategy(event: RoundDecided) -> Strategy:
    """Return the strategy that the outcome shows."""
    if event.threshold_bits:
        return Strategy.WITHIN_SPREAD
    first = tuple(word_client(word) for word in event.ranking[: len(event.accepted)])
    return Strategy.NEAREST if first == event.accepted else Strategy.FARTHEST


def _vote(history: RoundHistory, event: RoundDecided, phase: Phase) -> list[str]:
    committee, view = history.committee, event.views[phase - 1]
    lines = [_failed_view(history, phase, failed) for failed in range(min(view, 256))]
    lines += [
        f"Member {incident.member} signed two different votes in view {incident.view} of "
        f"{_PHASES[phase]}."
        for incident in (history.record.incidents if history.record is not None else ())
        if incident.kind == "equivocation" and incident.phase is phase
    ]
    bits = event.signers[phase - 1]
    voters = [member for place, member in enumerate(committee) if bits >> place & 1]
    primary = event.primaries[phase - 1]
    return [
        *lines,
        f"View {view} decided {_PHASES[phase]}: primary {primary} asked, and {len(voters)} members "
        f"({quorum(len(committee))} are needed) replied: {_listed(voters)}.",
    ]


def _failed_view(history: RoundHistory, phase: Phase, view: int) -> str:
    place = primary_place(history.seed, phase, view, len(history.committee))
    primary = history.committee[place]
    incidents = history.record.incidents if history.record is not None else ()
    reasons = [
        incident.kind
        for incident in incidents
        if (incident.phase, incident.view, incident.member) == (phase, view, primary)
    ]
    why = ", ".join(dict.fromkeys(reasons)) or "the record does not say why"
    return f"View {view} of {_PHASES[phase]}, with primary {primary}, failed: {why}."


def _election(event: RoundDecided) -> str:
    places = {word_client(word): place for place, word in enumerate(event.ranking, start=1)}
    elected = [places[client] for client in event.next_committee]
    span = f"{elected[0]} to {elected[-1]}" if elected else "none"
    return (
        f"The next committee is the middle of the ranking, ranks {span}: "
        f"{_listed(event.next_committee)}."
    )


def _listed(clients: Iterable[ClientId]) -> str:
    return ", ".join(str(client) for client in clients) or "nobody"
